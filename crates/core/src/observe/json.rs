//! Snapshots as JSON, for the tools and for other programs.

mod reader;

use std::fs::File;
use std::io;
use std::path::Path;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::error::{Error, Result};
use crate::memory::{Event, SlabMap, SlabUse};

/// The format's name in a file.
pub const SNAPSHOT_FORMAT: &str = "lapidary-snapshot";

/// The format's version in a file. It rises when a number changes its meaning, a row its shape, or
/// when there is a new kind of event, of slab or of place. It does not rise with a new name.
pub const SNAPSHOT_VERSION: u32 = 6;

/// The oldest version that can be read. Later ones only added to it.
pub const OLDEST_SNAPSHOT_VERSION: u32 = 4;

#[derive(Serialize)]
struct FileOut<'a> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

/// The beginning of a file. It says whether this version can read the rest.
#[derive(Deserialize)]
struct FileHead {
    format: String,
    version: u32,
}

impl FileHead {
    fn check(&self) -> Result<()> {
        if self.format != SNAPSHOT_FORMAT {
            let format = crate::memory::printable(&self.format, 40);
            return Err(wrong(format!(
                "it is a `{format}`, not a `{SNAPSHOT_FORMAT}`"
            )));
        }
        let (version, oldest) = (self.version, OLDEST_SNAPSHOT_VERSION);
        if !(oldest..=SNAPSHOT_VERSION).contains(&version) {
            return Err(wrong(format!(
                "it is of version {version}, and only versions {oldest} to {SNAPSHOT_VERSION} can \
                 be read: use the lapidary that wrote it"
            )));
        }
        Ok(())
    }
}

impl Snapshot {
    /// Writes the snapshot as one line of JSON.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_json(&self, to: impl io::Write) -> io::Result<()> {
        let file = FileOut {
            format: SNAPSHOT_FORMAT,
            version: SNAPSHOT_VERSION,
            snapshot: self,
        };
        let mut to = io::BufWriter::new(to);
        serde_json::to_writer(&mut to, &file)?;
        io::Write::flush(&mut to)
    }

    /// Writes the snapshot to a file, as [`write_json`](Snapshot::write_json) does. `lapidary view`
    /// shows it.
    ///
    /// # Errors
    /// Those of the file.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.write_json(File::create(path)?)
    }

    /// Reads what [`write_json`](Snapshot::write_json) wrote, also that of another version of
    /// lapidary. Numbers that the file does not have are 0, and those that only the other version
    /// has are left out. Its reclaim steps that this version does not know are
    /// [`ReclaimStep::Other`](crate::stats::ReclaimStep::Other).
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use lapidary_core::{Gpu, stats::Snapshot};
    ///
    /// let (gpu, _) = Gpu::simulated(Default::default())?;
    /// let x = gpu.buffer_from(&[1.0_f32; 4096])?.named("weights");
    /// x.force()?;
    /// let mut json = Vec::new();
    /// gpu.memory().snapshot().write_json(&mut json).unwrap();
    /// let snapshot = Snapshot::from_json(&json)?;
    /// assert_eq!(snapshot.slabs[0].blocks[0].size_bytes, 16384);
    /// assert!(Snapshot::from_json(&json[..100]).is_err());
    /// # }
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Format`] if the JSON is not a snapshot, has a version that cannot be read, is cut
    /// off, or contradicts itself. The error says where.
    pub fn from_json(json: &[u8]) -> Result<Snapshot> {
        let head: FileHead = serde_json::from_slice(json).map_err(|error| broken(&error))?;
        head.check()?;
        let snapshot: Snapshot = serde_json::from_slice(json).map_err(|error| broken(&error))?;
        snapshot.check()?;
        Ok(snapshot)
    }

    /// Reads what [`write_json`](Snapshot::write_json) wrote, from a file for example. It looks at
    /// the first bytes before it takes more. So it soon refuses what is no snapshot, even if that
    /// has no end.
    ///
    /// ```
    /// use lapidary_core::stats::Snapshot;
    ///
    /// let error = Snapshot::read_json(std::io::repeat(0)).unwrap_err().to_string();
    /// assert!(error.contains("begins with"), "{error}");
    /// ```
    ///
    /// # Errors
    /// As [`from_json`](Snapshot::from_json). Also [`Error::Format`](crate::Error::Format) with the
    /// reader's error, or beyond 4 GiB.
    pub fn read_json(from: impl io::Read) -> Result<Snapshot> {
        reader::read(from)
    }

    /// Are all parts consistent?
    fn check(&self) -> Result<()> {
        for slab in &self.slabs {
            self.check_slab(slab, "slabs")?;
        }
        for slab in &self.host_slabs {
            self.check_slab(slab, "host_slabs")?;
        }
        self.check_sums()?;
        for (index, evicted) in self.evicted.iter().enumerate() {
            self.check_tag(evicted.tag, || format!("`evicted`, row {index}"))?;
        }
        let mut before_ns = 0;
        for (index, moment) in self.moments.iter().enumerate() {
            let place = || format!("`moments`, row {index}");
            if moment.at_ns < before_ns {
                let (place, at_ns) = (place(), moment.at_ns);
                let reason = format!("{place}: {at_ns} ns comes after {before_ns} ns");
                return Err(wrong(reason));
            }
            before_ns = moment.at_ns;
            if let Event::Alloc { tag, .. }
            | Event::Restore { tag, .. }
            | Event::HostAlloc { tag, .. }
            | Event::Donate { tag, .. } = moment.event
            {
                self.check_tag(tag, place)?;
            }
            if let Event::Kernel { kernel, .. } = moment.event {
                let count = self.kernels.len();
                if kernel as usize >= count {
                    return Err(wrong(format!("{}: kernel {kernel} of {count}", place())));
                }
            }
        }
        if before_ns > self.taken_at_ns {
            let taken_at_ns = self.taken_at_ns;
            return Err(wrong(format!(
                "`taken_at_ns` is {taken_at_ns}, before the last of `moments`, {before_ns}"
            )));
        }
        Ok(())
    }

    /// Do the statistics agree with the slabs?
    fn check_sums(&self) -> Result<()> {
        if !self.granule_bytes.is_power_of_two() {
            let granule_bytes = self.granule_bytes;
            return Err(wrong(format!(
                "`granule_bytes` is {granule_bytes}, not a power of two"
            )));
        }
        let (mut blocks, mut live_bytes, mut reserved_bytes) = (0, 0, 0_u64);
        let mut numbers = FxHashSet::default();
        for slab in self.slabs.iter().chain(&self.host_slabs) {
            if !numbers.insert(slab.slab) {
                let number = slab.slab;
                return Err(wrong(format!("`slabs`: number {number} occurs twice")));
            }
        }
        for slab in &self.slabs {
            blocks += slab.blocks.len() as u64;
            reserved_bytes = reserved_bytes.saturating_add(slab.size_bytes);
            let granted = slab.blocks.iter().map(|block| block.granted_bytes);
            live_bytes = granted.fold(live_bytes, u64::saturating_add);
        }
        let stats = &self.stats;
        let mut steps = FxHashSet::default();
        for one in &stats.reclaim_steps {
            if !steps.insert(one.step) {
                let name = one.step.name();
                return Err(wrong(format!("`stats.reclaim_steps`: {name} occurs twice")));
            }
        }
        let counts = |slabs: &[SlabUse], maps: &[SlabMap]| [slabs.len() as u64, maps.len() as u64];
        let slabs = counts(&stats.slabs, &self.slabs);
        let host_slabs = counts(&stats.host_slabs, &self.host_slabs);
        for (what, [told, found], list) in [
            ("live_storages", [stats.live_storages.now, blocks], "slabs"),
            ("live_bytes", [stats.live_bytes.now, live_bytes], "slabs"),
            (
                "reserved_bytes",
                [stats.reserved_bytes.now, reserved_bytes],
                "slabs",
            ),
            ("slabs", slabs, "slabs"),
            ("host_slabs", host_slabs, "host_slabs"),
        ] {
            if told != found {
                return Err(wrong(format!(
                    "`stats.{what}` says {told}, but `{list}` has {found}"
                )));
            }
        }
        Ok(())
    }

    fn check_slab(&self, slab: &SlabMap, list: &str) -> Result<()> {
        let mut end_bytes = 0;
        for (index, block) in slab.blocks.iter().enumerate() {
            let place = || format!("`{list}`, number {}, block {index}", slab.slab);
            let offset_bytes = block.offset_bytes;
            if offset_bytes < end_bytes {
                return Err(wrong(format!(
                    "{}: it begins at {offset_bytes}, before the end of another at {end_bytes}",
                    place()
                )));
            }
            end_bytes = offset_bytes.saturating_add(block.granted_bytes);
            if end_bytes > slab.size_bytes || block.size_bytes > block.granted_bytes {
                return Err(wrong(format!(
                    "{}: {} bytes of {} at {offset_bytes} in a slab of {}",
                    place(),
                    block.size_bytes,
                    block.granted_bytes,
                    slab.size_bytes
                )));
            }
            self.check_tag(block.tag, place)?;
        }
        Ok(())
    }

    fn check_tag(&self, tag: u32, place: impl Fn() -> String) -> Result<()> {
        let count = self.tags.len();
        if (tag as usize) < count {
            return Ok(());
        }
        Err(wrong(format!("{}: tag {tag} of {count}", place())))
    }
}

fn wrong(reason: String) -> Error {
    let format = "snapshot";
    Error::Format { format, reason }
}

/// The parser's message, which says where. Cut short, because it may quote long names of the file.
fn broken(error: &serde_json::Error) -> Error {
    wrong(crate::memory::printable_end(&error.to_string(), 400))
}
