//! Chrome's trace events, which Perfetto opens: live and reserved bytes as counters, events as
//! instants on tracks by subject, kernels as slices.

use std::convert::Infallible;
use std::io::{self, Write};

use lapidary_core::internal::{EVENT_KINDS, printable};
use lapidary_core::stats::{Event, Snapshot};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::places::{Places, Step};

/// A new kind of event needs a branch in `event`.
const _: () = assert!(EVENT_KINDS == 20);

/// Number of tags with a counter of their own: those with the highest peaks.
const TAGS: usize = 8;

const NAME_COLUMNS: usize = 100;

/// Names of the tracks, numbered from 1.
const TRACKS: [&str; 5] = ["slabs", "submissions", "transfers", "kernels", "pressure"];
const SLABS: u32 = 1;
const SUBMISSIONS: u32 = 2;
const TRANSFERS: u32 = 3;
const KERNELS: u32 = 4;
const PRESSURE: u32 = 5;

/// Writes the history of a snapshot as a trace for <https://ui.perfetto.dev> and
/// `chrome://tracing`. Counters show the budget, reserved bytes, live bytes (blocks, as
/// [`MemoryStats::live_bytes`](lapidary_core::stats::MemoryStats::live_bytes)), and the tags with
/// the highest peaks. Canaries are no part of the live bytes. Instants show submissions, transfers,
/// moves, slabs, reclaim steps and refusals. Kernels are slices if [they were
/// timed](lapidary_core::diagnostics::GpuKernels::time). Times begin when the device was opened.
///
/// # Errors
/// Those of the writer.
pub fn write_trace(snapshot: &Snapshot, to: impl Write) -> io::Result<()> {
    let places = Places::new(snapshot);
    let mut writer = Writer {
        to: io::BufWriter::new(to),
        is_first: true,
    };
    write!(writer.to, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    writer.names(snapshot)?;
    let mut levels = Levels::before(snapshot, &places);
    levels.watch(greatest(snapshot, &places));
    let first_ns = snapshot.moments.first().map(|moment| moment.at_ns);
    let mut now_ns = first_ns.unwrap_or(snapshot.taken_at_ns);
    writer.budget(snapshot, now_ns)?;
    levels.write(&mut writer, now_ns)?;
    places.tell(|at_ns, step| {
        if at_ns != now_ns {
            levels.write(&mut writer, now_ns)?;
            now_ns = at_ns;
        }
        levels.take(&places, step);
        match step {
            Step::Event(event) => write_event(snapshot, &mut writer, at_ns, event),
            _ => Ok(()),
        }
    })?;
    levels.write(&mut writer, now_ns)?;
    writer.budget(snapshot, snapshot.taken_at_ns)?;
    writer.to.write_all(b"\n]}\n")?;
    writer.to.flush()
}

fn write_event(
    snapshot: &Snapshot,
    to: &mut Writer<impl Write>,
    at_ns: u64,
    event: Event,
) -> io::Result<()> {
    let mut instant =
        |track, name: &str, args: &[(&str, u64)]| to.instant(track, name, at_ns, args);
    let slab_of = |slab: u32, bytes| [("slab", slab.into()), ("bytes", bytes)];
    let of = |storage, bytes| [("storage", storage), ("bytes", bytes)];
    match event {
        Event::SlabCreated { slab, bytes, .. } => {
            instant(SLABS, "slab created", &slab_of(slab, bytes))
        }
        Event::SlabReleased { slab, bytes } => {
            instant(SLABS, "slab released", &slab_of(slab, bytes))
        }
        Event::HostSlabCreated { slab, bytes, .. } => {
            instant(SLABS, "slab of the host created", &slab_of(slab, bytes))
        }
        Event::HostSlabReleased { slab, bytes } => {
            instant(SLABS, "slab of the host released", &slab_of(slab, bytes))
        }
        Event::Submission { serial, commands } => {
            let args = [("serial", serial), ("commands", commands)];
            instant(SUBMISSIONS, "submission", &args)
        }
        Event::Upload { storage, bytes } => instant(TRANSFERS, "upload", &of(storage, bytes)),
        Event::Read { storage, bytes } => instant(TRANSFERS, "read", &of(storage, bytes)),
        Event::Evict { storage, bytes, to } => {
            let name = format!("evict to {to:?}").to_lowercase();
            instant(TRANSFERS, &name, &of(storage, bytes))
        }
        Event::Restore { storage, bytes, .. } => instant(TRANSFERS, "restore", &of(storage, bytes)),
        Event::HostAlloc { storage, bytes, .. } => {
            instant(TRANSFERS, "room in the host's memory", &of(storage, bytes))
        }
        Event::HostFree { storage, bytes } => {
            let name = "room in the host's memory free";
            instant(TRANSFERS, name, &of(storage, bytes))
        }
        Event::Move { storage, bytes, .. } => instant(PRESSURE, "move", &of(storage, bytes)),
        Event::HostMove { storage, bytes, .. } => {
            instant(PRESSURE, "move in the host's memory", &of(storage, bytes))
        }
        Event::ReclaimStep { step, freed_bytes } => {
            let name = format!("reclaim step: {}", step.name());
            instant(PRESSURE, &name, &[("freed_bytes", freed_bytes)])
        }
        Event::Refusal { bytes } => instant(PRESSURE, "refusal", &[("bytes", bytes)]),
        Event::Reopened => instant(PRESSURE, "device reopened", &[]),
        Event::Kernel {
            kernel,
            begin_ns,
            end_ns,
        } => {
            let name = snapshot.kernels.get(kernel as usize);
            let name = name.map_or("others", String::as_str);
            to.kernel(name, begin_ns, end_ns)
        }
        // The counters show the others.
        _ => Ok(()),
    }
}

struct Writer<W> {
    to: W,
    is_first: bool,
}

impl<W: Write> Writer<W> {
    /// The beginning of an event, before its arguments.
    fn begin(&mut self, phase: &str, track: u32, name: &str) -> io::Result<()> {
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        write!(
            self.to,
            "{comma}\n{{\"ph\":\"{phase}\",\"pid\":1,\"tid\":{track},\"name\":"
        )?;
        self.string(&printable(name, NAME_COLUMNS))
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        let mut json = serde_json::Serializer::new(&mut self.to);
        text.serialize(&mut json).map_err(io::Error::from)
    }

    /// The time, in microseconds.
    fn time(&mut self, field: &str, ns: u64) -> io::Result<()> {
        write!(self.to, ",\"{field}\":{}.{:03}", ns / 1000, ns % 1000)
    }

    fn end(&mut self, args: &[(&str, u64)]) -> io::Result<()> {
        self.to.write_all(b",\"args\":{")?;
        for (index, (name, value)) in args.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(self.to, "{comma}\"{name}\":{value}")?;
        }
        self.to.write_all(b"}}")
    }

    fn names(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let process = format!("lapidary on {}", snapshot.stats.adapter);
        let process = std::iter::once((0, "process_name", process.as_str()));
        let tracks = TRACKS.iter().zip(1..);
        let tracks = tracks.map(|(name, track)| (track, "thread_name", *name));
        for (track, what, name) in process.chain(tracks) {
            self.begin("M", track, what)?;
            self.to.write_all(b",\"args\":{\"name\":")?;
            self.string(&printable(name, NAME_COLUMNS))?;
            self.to.write_all(b"}}")?;
        }
        Ok(())
    }

    fn instant(&mut self, track: u32, name: &str, ns: u64, args: &[(&str, u64)]) -> io::Result<()> {
        self.begin("i", track, name)?;
        self.time("ts", ns)?;
        self.to.write_all(b",\"s\":\"t\"")?;
        self.end(args)
    }

    fn kernel(&mut self, name: &str, begin_ns: u64, end_ns: u64) -> io::Result<()> {
        self.begin("X", KERNELS, name)?;
        self.time("ts", begin_ns)?;
        self.time("dur", end_ns.saturating_sub(begin_ns))?;
        self.end(&[])
    }

    fn counter(&mut self, name: &str, ns: u64, bytes: u64) -> io::Result<()> {
        self.begin("C", 0, name)?;
        self.time("ts", ns)?;
        self.end(&[("bytes", bytes)])
    }

    fn budget(&mut self, snapshot: &Snapshot, ns: u64) -> io::Result<()> {
        match snapshot.stats.budget_bytes {
            Some(bytes) => self.counter("budget", ns, bytes),
            None => Ok(()),
        }
    }
}

/// The levels at one time.
struct Levels<'a> {
    snapshot: &'a Snapshot,
    live_bytes: u64,
    reserved_bytes: u64,
    by_tag: FxHashMap<u32, u64>,
    /// The tags that have a counter, with their names.
    watched: Vec<(u32, String)>,
    /// The last written values: live, reserved, and each watched tag.
    written: Vec<Option<u64>>,
}

impl<'a> Levels<'a> {
    fn before(snapshot: &'a Snapshot, places: &Places<'_>) -> Self {
        let mut levels = Levels {
            snapshot,
            live_bytes: 0,
            reserved_bytes: 0,
            by_tag: FxHashMap::default(),
            watched: Vec::new(),
            written: vec![None; 2],
        };
        for slab in places.slabs_before() {
            levels.take(places, Step::SlabGained(slab));
        }
        for held in places.before() {
            levels.take(places, Step::Gained(*held));
        }
        levels
    }

    fn watch(&mut self, tags: Vec<u32>) {
        self.written.resize(2 + tags.len(), None);
        let name = |tag| (tag, format!("by {}", self.snapshot.tag_name(tag)));
        self.watched = tags.into_iter().map(name).collect();
    }

    fn take(&mut self, places: &Places<'_>, step: Step) {
        let granule_bytes = self.snapshot.granule_bytes.max(1);
        let granted_bytes =
            |bytes: u64| bytes.div_ceil(granule_bytes).saturating_mul(granule_bytes);
        match step {
            Step::Gained(held) => {
                self.live_bytes = self.live_bytes.saturating_add(granted_bytes(held.bytes));
                let of_tag = self.by_tag.entry(held.tag).or_default();
                *of_tag = of_tag.saturating_add(held.bytes);
            }
            Step::Lost(held) => {
                self.live_bytes = self.live_bytes.saturating_sub(granted_bytes(held.bytes));
                let of_tag = self.by_tag.entry(held.tag).or_default();
                *of_tag = of_tag.saturating_sub(held.bytes);
            }
            Step::SlabGained(slab) if !places.is_made_up(slab) => {
                self.reserved_bytes = self.reserved_bytes.saturating_add(slab.bytes);
            }
            Step::SlabLost(slab) if !places.is_made_up(slab) => {
                self.reserved_bytes = self.reserved_bytes.saturating_sub(slab.bytes);
            }
            _ => {}
        }
    }

    /// Writes the values that have changed.
    fn write(&mut self, to: &mut Writer<impl Write>, ns: u64) -> io::Result<()> {
        let all = [("live", self.live_bytes), ("reserved", self.reserved_bytes)];
        let by_tag = self.watched.iter().map(|(tag, name)| {
            let bytes = self.by_tag.get(tag).copied();
            (name.as_str(), bytes.unwrap_or(0))
        });
        let written = self.written.iter_mut();
        for ((name, bytes), written) in all.into_iter().chain(by_tag).zip(written) {
            if *written != Some(bytes) {
                *written = Some(bytes);
                to.counter(name, ns, bytes)?;
            }
        }
        Ok(())
    }
}

/// The tags with the highest peaks, greatest first.
fn greatest(snapshot: &Snapshot, places: &Places<'_>) -> Vec<u32> {
    let mut levels = Levels::before(snapshot, places);
    let mut peaks = levels.by_tag.clone();
    let told: Result<(), Infallible> = places.tell(|_, step| {
        levels.take(places, step);
        if let Step::Gained(held) = step {
            let now = levels.by_tag.get(&held.tag).copied().unwrap_or(0);
            let peak = peaks.entry(held.tag).or_default();
            *peak = now.max(*peak);
        }
        Ok(())
    });
    let Ok(()) = told;
    let mut tags: Vec<(u32, u64)> = peaks.into_iter().collect();
    tags.sort_unstable_by_key(|&(tag, bytes)| (std::cmp::Reverse(bytes), tag));
    tags.truncate(TAGS);
    tags.into_iter().map(|(tag, _)| tag).collect()
}
