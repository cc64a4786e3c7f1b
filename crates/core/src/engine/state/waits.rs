//! For whose memory execution passes waited.

use rustc_hash::FxHashMap;

use crate::engine::numbers::Counters;
use crate::memory::{Memory, Storage, Tag};
use crate::waits::{MakerWaits, Waits};

/// The most makers in a report.
const MOST: usize = 8;

/// The waits for the memory of each maker, by the number of its tag. There is a limit of tags.
#[derive(Debug, Default)]
pub(crate) struct WaitsByMaker(FxHashMap<u32, Waits>);

impl WaitsByMaker {
    /// Counts the waits for a storage.
    pub(crate) fn note(&mut self, storage: &Storage, waits: &Waits, memory: &mut Memory) {
        let number = memory.census.tag_index(storage);
        self.0.entry(number).or_default().add(waits);
    }

    /// Those that were waited for most, the longest first.
    pub(crate) fn longest(&self, memory: &Memory) -> Vec<MakerWaits> {
        let mut all: Vec<(&u32, &Waits)> = self.0.iter().collect();
        all.sort_by_key(|(number, waits)| {
            let total = waits.total();
            (std::cmp::Reverse((total.ns, total.times)), **number)
        });
        let named = all.into_iter().take(MOST).map(|(number, waits)| {
            let tag = memory.census.tag(*number);
            MakerWaits {
                tag: tag.as_ref().map_or("others".into(), Tag::to_string),
                waits: *waits,
            }
        });
        named.collect()
    }
}

impl Counters {
    /// Counts waits of a pass for memory.
    pub(crate) fn waited(&mut self, waits: &Waits) {
        self.device_waits += waits.device.times;
        self.device_wait_ns += waits.device.ns;
        self.host_waits += waits.host.times;
        self.host_wait_ns += waits.host.ns;
        self.store_waits += waits.store.times;
        self.store_wait_ns += waits.store.ns;
        self.disk_waits += waits.disk.times;
        self.disk_wait_ns += waits.disk.ns;
    }
}
