//! The running times of kernels by the device's clock, per kernel, operand sizes and call site.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::driver::KernelRun;
use crate::dtype::DType;
use crate::engine::kernel::{Launch, Role};
use crate::memory::{Memory, Storage, Tag};

/// The most kinds of dispatches with separate entries. All further kinds share one entry.
const MOST_ENTRIES: usize = 1 << 12;

/// The running times of dispatches by the device's own clock. An entry covers dispatches of one
/// kernel, with operands of the same sizes, for tensors made at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct KernelTime {
    /// The kernel's name, or the entry point of a kernel of the app's.
    pub kernel: String,
    /// The elements that the kernel reads, then an arrow, then those that it writes: `f32 4096, f32
    /// 16777216 → f32 4096`. Equal operands in a row are counted: `3 × f32 4096`.
    pub operands: String,
    /// The place that made the first written tensor, with its name and scope.
    pub tag: Option<Tag>,
    /// The number of timed dispatches.
    pub calls: u64,
    /// The sum of their times, in nanoseconds.
    pub total_ns: u64,
    /// The shortest time, in nanoseconds.
    pub least_ns: u64,
    /// The longest time, in nanoseconds.
    pub most_ns: u64,
}

impl KernelTime {
    fn none(kernel: &str, operands: String, tag: Option<Tag>) -> Self {
        KernelTime {
            kernel: kernel.to_owned(),
            operands,
            tag,
            calls: 0,
            total_ns: 0,
            least_ns: u64::MAX,
            most_ns: 0,
        }
    }

    fn add(&mut self, ns: u64) {
        self.calls += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.least_ns = self.least_ns.min(ns);
        self.most_ns = self.most_ns.max(ns);
    }
}

impl fmt::Display for KernelTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        let mean_us = us(self.total_ns) / self.calls.max(1) as f64;
        write!(
            f,
            "{:<24} {:>7} calls {:>11.1} µs in all, {:>9.1} each ({:.1} to {:.1})",
            self.kernel,
            self.calls,
            us(self.total_ns),
            mean_us,
            us(self.least_ns),
            us(self.most_ns)
        )?;
        if !self.operands.is_empty() {
            write!(f, "  {}", self.operands)?;
        }
        match &self.tag {
            Some(tag) => write!(f, "  {tag}"),
            None => Ok(()),
        }
    }
}

/// The kind of a dispatch.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    kernel: Arc<str>,
    operands: SmallVec<[(Role, DType, u64); 4]>,
    /// The address of the call site that made the written tensor, and the number of its scope.
    made_at: Option<(usize, u32)>,
    name: Option<Arc<str>>,
}

/// The entry of a dispatch in one table of [`Times`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    table: u32,
    number: u32,
}

/// The number of the next table.
static NEXT_TABLE: AtomicU32 = AtomicU32::new(0);

/// The times of all kinds of dispatches.
pub(crate) struct Times {
    /// Distinguishes its entries from those of other tables.
    table: u32,
    numbers: FxHashMap<Kind, u32>,
    /// The first entry is shared by all kinds without their own.
    entries: Vec<(Arc<str>, KernelTime)>,
    names: FxHashMap<String, Arc<str>>,
}

debug_by_name!(Times);

impl Times {
    pub(super) fn new() -> Self {
        let others = KernelTime::none("others", String::new(), None);
        Times {
            table: NEXT_TABLE.fetch_add(1, Ordering::Relaxed),
            numbers: FxHashMap::default(),
            entries: vec![("others".into(), others)],
            names: FxHashMap::default(),
        }
    }

    fn entry(&self, number: u32) -> Entry {
        let table = self.table;
        Entry { table, number }
    }

    fn enter(
        &mut self,
        kernel: &str,
        operands: SmallVec<[(Role, DType, u64); 4]>,
        made: Option<&Storage>,
    ) -> Entry {
        let kernel = match self.names.get(kernel) {
            Some(known) => known.clone(),
            None if self.entries.len() >= MOST_ENTRIES => return self.others(),
            None => {
                let name: Arc<str> = kernel.into();
                self.names.insert(kernel.to_owned(), name.clone());
                name
            }
        };
        let kind = Kind {
            kernel,
            operands,
            made_at: made.map(|storage| {
                let (site, scope) = storage.made_at();
                (std::ptr::from_ref(site) as usize, scope)
            }),
            name: made.and_then(Storage::name),
        };
        if let Some(&number) = self.numbers.get(&kind) {
            return self.entry(number);
        }
        if self.entries.len() >= MOST_ENTRIES {
            return self.others();
        }
        let number = self.entries.len() as u32;
        let tag = made.map(Storage::tag);
        let time = KernelTime::none(&kind.kernel, describe_operands(&kind.operands), tag);
        self.entries.push((kind.kernel.clone(), time));
        self.numbers.insert(kind, number);
        self.entry(number)
    }

    /// Counts the time of a dispatch and returns the kernel's name. `None`, and not counted, if the
    /// entry belongs to another table: timing was switched off and on while the dispatch ran.
    fn add(&mut self, entry: Entry, ns: u64) -> Option<&Arc<str>> {
        if entry.table != self.table {
            return None;
        }
        let (name, time) = &mut self.entries[entry.number as usize];
        time.add(ns);
        Some(name)
    }

    /// The shared entry of dispatches about which nothing is known.
    pub(super) fn others(&self) -> Entry {
        self.entry(0)
    }

    /// The entry of a kernel of the diagnostics.
    pub(crate) fn of_check(&mut self, kernel: &str) -> Entry {
        self.enter(kernel, SmallVec::new(), None)
    }

    pub(crate) fn of_launch(&mut self, launch: &Launch) -> Entry {
        let operands = launch.args.iter().enumerate().map(|(index, arg)| {
            let bytes = (launch.ranges.get(index)).map_or(arg.storage.len_bytes(), |range| range.1);
            let elements = bytes / arg.dtype.size_bytes();
            (launch.program.role(index), arg.dtype, elements)
        });
        let writes = |index: &usize| launch.program.role(*index) != Role::Read;
        let written = (0..launch.args.len()).find(writes);
        let made = written.map(|index| &*launch.args[index].storage);
        self.enter(launch.program.name(), operands.collect(), made)
    }

    /// Counts the times of dispatches, which ended by `now_ns`, and notes them in the history.
    pub(super) fn kernels_ran(
        &mut self,
        dispatches: &[Entry],
        runs: &[KernelRun],
        now_ns: u64,
        memory: &mut Memory,
    ) {
        for (run, &entry) in runs.iter().zip(dispatches) {
            let Some(kernel) = self.add(entry, run.ns) else {
                continue;
            };
            if memory.events.is_on() {
                let [begin_ns, end_ns] = [run.began_before_ns, run.ended_before_ns]
                    .map(|before_ns| now_ns.saturating_sub(before_ns));
                memory.events.push_kernel(kernel, begin_ns, end_ns);
            }
        }
    }

    /// The times since the last call.
    pub(crate) fn take(&mut self) -> Vec<KernelTime> {
        let timed = self.entries.iter_mut().filter(|(_, time)| time.calls > 0);
        let taken = timed.map(|(_, time)| {
            let none = KernelTime::none(&time.kernel, time.operands.clone(), time.tag.clone());
            std::mem::replace(time, none)
        });
        taken.collect()
    }
}

/// Describes the operands in words.
fn describe_operands(operands: &[(Role, DType, u64)]) -> String {
    let mut text = String::new();
    let (read, written): (Vec<(Role, DType, u64)>, Vec<_>) =
        (operands.iter()).partition(|(role, ..)| *role == Role::Read);
    for (index, side) in [read, written].into_iter().enumerate() {
        if index == 1 && !side.is_empty() {
            text.push_str(if text.is_empty() { "→ " } else { " → " });
        }
        let runs = side.chunk_by(|a, b| (a.1, a.2) == (b.1, b.2));
        for (position, run) in runs.enumerate() {
            if position > 0 {
                text.push_str(", ");
            }
            if run.len() > 1 {
                let _ = write!(text, "{} × ", run.len());
            }
            let (_, dtype, elements) = run[0];
            let _ = write!(text, "{dtype} {elements}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_told_with_what_is_read_first() {
        let (f32, u32) = (DType::F32, DType::U32);
        for (operands, expected) in [
            (&[][..], ""),
            (&[(Role::Write, f32, 5)], "→ f32 5"),
            (
                &[(Role::Read, f32, 5), (Role::Write, u32, 1)],
                "f32 5 → u32 1",
            ),
            (
                &[
                    (Role::Update, f32, 9),
                    (Role::Read, u32, 5),
                    (Role::Read, u32, 5),
                    (Role::Read, f32, 5),
                ],
                "2 × u32 5, f32 5 → f32 9",
            ),
        ] {
            assert_eq!(describe_operands(operands), expected);
        }
    }

    #[test]
    fn sorts_without_end_share_one_entry() {
        let mut times = Times::new();
        for round in 0..2 * MOST_ENTRIES {
            let entry = times.of_check(&format!("kernel {round}"));
            assert!(times.add(entry, 3).is_some());
        }
        let taken = times.take();
        assert_eq!(taken.len(), MOST_ENTRIES);
        let calls: u64 = taken.iter().map(|time| time.calls).sum();
        assert_eq!(calls, 2 * MOST_ENTRIES as u64);
        assert_eq!(taken[0].kernel, "others");
        assert_eq!(times.take(), []);
    }

    #[test]
    fn an_entry_of_an_earlier_table_counts_nowhere() {
        let mut before = Times::new();
        let entries: Vec<_> = (0..6).map(|n| before.of_check(&format!("{n}"))).collect();
        // Timing is off and on again, and one kernel has run since.
        let mut times = Times::new();
        times.of_check("another");
        for entry in entries.into_iter().chain([before.others()]) {
            assert_eq!(times.add(entry, 3), None);
        }
        assert_eq!(times.take(), []);
    }
}
