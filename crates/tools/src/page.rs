//! Snapshots as one HTML page without other files, network or server.
//!
//! ```text
//! head.html  page.css  body.html │ for each snapshot: its values as JSON, its events as numbers │ *.js
//! ```
//!
//! Text of a snapshot never becomes markup. It is in elements that browsers do not parse, every `<`
//! is escaped, and the script shows it as text. The script in `page/` is read in this order:
//! `decode.js`, `model.js` and `groups.js` decode the snapshot and compute what the views need.
//! `timeline.js`, `slabmap.js`, `table.js` and `panels.js` are the views. `input.js` and `main.js`
//! connect them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lapidary_core::DType;
use lapidary_core::internal::{
    EVENT_KINDS, OLDEST_SNAPSHOT_VERSION, SNAPSHOT_FORMAT, SNAPSHOT_VERSION,
};
use lapidary_core::shares::ShareUse;
use lapidary_core::stats::{
    Event, EvictedStorage, Moment, NumberValue, ReclaimStep, ReclaimStepUse, SlabMap, Snapshot,
    Tag, Waits,
};
use lapidary_core::stores::StoreUse;
use serde::Serialize;
use serde_json::json;

/// The page before the snapshots.
const BEFORE: &str = concat!(
    include_str!("page/head.html"),
    include_str!("page/page.css"),
    include_str!("page/body.html"),
);

/// The page after the snapshots and the [`names`].
const AFTER: &str = concat!(
    include_str!("page/format.js"),
    include_str!("page/decode.js"),
    include_str!("page/model.js"),
    include_str!("page/groups.js"),
    include_str!("page/colors.js"),
    include_str!("page/dom.js"),
    include_str!("page/timeline.js"),
    include_str!("page/slabmap.js"),
    include_str!("page/table.js"),
    include_str!("page/panels.js"),
    include_str!("page/input.js"),
    include_str!("page/main.js"),
    "})();\n</script>\n</body>\n</html>\n",
);

/// A new kind of event needs a number in `Numbers` and a reader in `decode.js`.
const _: () = assert!(EVENT_KINDS == 20);

/// Longer texts are clipped.
const MOST_TEXT_BYTES: usize = 1024;

/// The largest integer up to which JavaScript's numbers are exact.
const MOST_NUMBER: u64 = (1 << 53) - 1;

/// Writes a snapshot as a page for a browser. It shows live memory over time by holder, every slab
/// at any moment of the history, and the greatest holders. The page is one file and loads nothing.
/// Texts of more than 1 KiB are clipped, and the page says so.
///
/// A million events take about 9 MB.
///
/// ```no_run
/// # let gpu = lapidary_core::Gpu::open(Default::default())?;
/// gpu.memory().keep_history(1_000_000);
/// // ... a few steps ...
/// let file = std::fs::File::create("memory.html")?;
/// lapidary_tools::page::write(&gpu.memory().snapshot(), file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the writer.
pub fn write(snapshot: &Snapshot, to: impl Write) -> io::Result<()> {
    write_page(&[snapshot], to)
}

/// Writes a page with two snapshots, of one run or of two. It shows what each tag held in both, the
/// difference, and both maps. Each snapshot can also be viewed alone.
///
/// ```no_run
/// # let gpu = lapidary_core::Gpu::open(Default::default())?;
/// let before = gpu.memory().snapshot();
/// // ... a few steps ...
/// let file = std::fs::File::create("compare.html")?;
/// lapidary_tools::page::write_comparison(&before, &gpu.memory().snapshot(), file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the writer.
pub fn write_comparison(before: &Snapshot, after: &Snapshot, to: impl Write) -> io::Result<()> {
    write_page(&[before, after], to)
}

fn write_page(snapshots: &[&Snapshot], to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    to.write_all(BEFORE.as_bytes())?;
    for (number, snapshot) in snapshots.iter().enumerate() {
        write!(
            to,
            "<script type=\"application/json\" data-snapshot=\"events-{number}\">"
        )?;
        serde_json::to_writer(WithoutTags(&mut to), &Head::new(snapshot))?;
        write!(
            to,
            "</script>\n<script type=\"text/plain\" id=\"events-{number}\">"
        )?;
        write_base64(&events(&snapshot.moments), &mut to)?;
        to.write_all(b"</script>\n")?;
    }
    to.write_all(b"<script>\n(() => {\n\"use strict\";\n")?;
    write!(WithoutTags(&mut to), "{}", names(snapshots))?;
    to.write_all(AFTER.as_bytes())?;
    to.flush()
}

/// What the script takes from the library: the versions that it reads, the names of the reclaim
/// steps by their numbers in [`events`], and what the numbers of the snapshots are.
fn names(snapshots: &[&Snapshot]) -> String {
    let steps: Vec<&str> = steps().map(ReclaimStep::name).collect();
    let numbers = snapshots.iter().flat_map(|one| one.stats.numbers());
    let help: BTreeMap<_, _> = numbers.map(|one| (one.name, one.help)).collect();
    let (steps, help) = (json!(steps), json!(help));
    let versions = json!([OLDEST_SNAPSHOT_VERSION, SNAPSHOT_VERSION]);
    format!("const VERSIONS = {versions}, STEPS = {steps}, HELP = {help};\n")
}

/// The reclaim steps, also those of other versions.
fn steps() -> impl Iterator<Item = ReclaimStep> {
    ReclaimStep::ALL.into_iter().chain([ReclaimStep::Other])
}

/// The values of a snapshot for the page, except its events.
#[derive(Serialize)]
struct Head<'a> {
    format: &'static str,
    version: u32,
    taken_at_ns: u64,
    taken_unix_ms: u64,
    granule_bytes: u64,
    stats: Stats<'a>,
    tags: Vec<Option<ClippedTag<'a>>>,
    slabs: &'a [SlabMap],
    #[serde(skip_serializing_if = "<[SlabMap]>::is_empty")]
    host_slabs: &'a [SlabMap],
    evicted: &'a [EvictedStorage],
    types: &'a [(DType, Vec<u64>)],
    kernels: Vec<&'a str>,
    dropped: u64,
    event_count: usize,
    /// Number of the texts that were clipped.
    clipped: usize,
}

#[derive(Serialize)]
struct Stats<'a> {
    adapter: &'a str,
    backend: &'a str,
    #[serde(flatten)]
    numbers: BTreeMap<&'static str, NumberValue>,
    reclaim_steps: &'a [ReclaimStepUse],
    #[serde(skip_serializing_if = "<[StoreUse]>::is_empty")]
    stores: &'a [StoreUse],
    #[serde(skip_serializing_if = "<[ShareUse]>::is_empty")]
    shares: &'a [ShareUse],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory_waits: Vec<ClippedWaits<'a>>,
}

#[derive(Serialize)]
struct ClippedWaits<'a> {
    tag: &'a str,
    waits: Waits,
}

#[derive(Serialize)]
struct ClippedTag<'a> {
    file: &'a str,
    line: u32,
    column: u32,
    name: Option<&'a str>,
    scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<&'a str>,
}

impl<'a> Head<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let mut clipped = 0;
        let mut clip = |text: &'a str| {
            let short = beginning(text);
            clipped += usize::from(short.len() < text.len());
            short
        };
        let stats = &snapshot.stats;
        let (adapter, backend) = (clip(&stats.adapter), clip(&stats.backend));
        let waits = stats.memory_waits.iter().map(|one| ClippedWaits {
            tag: clip(&one.tag),
            waits: one.waits,
        });
        let stats = Stats {
            adapter,
            backend,
            numbers: (stats.numbers().map(|one| (one.name, one.value))).collect(),
            reclaim_steps: &stats.reclaim_steps,
            stores: &stats.stores,
            shares: &stats.shares,
            memory_waits: waits.collect(),
        };
        let kernels = snapshot.kernels.iter().map(|name| clip(name)).collect();
        let mut tag = |tag: &'a Tag| ClippedTag {
            file: clip(tag.file()),
            line: tag.line(),
            column: tag.column(),
            name: tag.name().map(&mut clip),
            scope: tag.scope().map(&mut clip),
            share: tag.share().map(&mut clip),
        };
        let tags = snapshot.tags.iter().map(|one| one.as_ref().map(&mut tag));
        Head {
            format: SNAPSHOT_FORMAT,
            version: SNAPSHOT_VERSION,
            taken_at_ns: snapshot.taken_at_ns,
            taken_unix_ms: snapshot.taken_unix_ms,
            granule_bytes: snapshot.granule_bytes,
            stats,
            tags: tags.collect(),
            slabs: &snapshot.slabs,
            host_slabs: &snapshot.host_slabs,
            evicted: &snapshot.evicted,
            types: &snapshot.types,
            kernels,
            dropped: snapshot.dropped,
            event_count: snapshot.moments.len(),
            clipped,
        }
    }
}

/// The longest beginning of whole characters that is within the limit.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(MOST_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Passes JSON on and escapes every `<`, which JSON has only inside strings. So no text ends the
/// element that contains it.
struct WithoutTags<W>(W);

impl<W: Write> Write for WithoutTags<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (number, piece) in bytes.split(|byte| *byte == b'<').enumerate() {
            if number > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(piece)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The events as bytes. Each has its kind, the time since the previous event, and its fields.
/// Numbers are written with seven bits a byte, least significant first. A number of a storage or
/// slab is written as its distance from the last one, which mostly takes one or two bytes.
/// `eventsFromBytes` of `decode.js` reads them.
fn events(moments: &[Moment]) -> Vec<u8> {
    let mut to = Numbers::default();
    for moment in moments {
        to.event(moment);
    }
    to.bytes
}

#[derive(Default)]
struct Numbers {
    bytes: Vec<u8>,
    at_ns: u64,
    storage: u64,
    slab: u64,
}

impl Numbers {
    fn event(&mut self, moment: &Moment) {
        let kind = self.bytes.len();
        self.bytes.push(0);
        let at_ns = moment.at_ns.min(MOST_NUMBER);
        self.number(at_ns.saturating_sub(self.at_ns));
        self.at_ns = at_ns;
        self.bytes[kind] = self.fields(moment.event);
    }

    /// Writes the fields and returns the number of the kind.
    fn fields(&mut self, event: Event) -> u8 {
        match event {
            Event::Alloc {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            } => self.block(0, [storage, tag.into(), bytes, slab.into(), offset_bytes]),
            Event::Free { storage, bytes } => self.of_storage(storage, 1, [bytes]),
            Event::Donate {
                storage,
                heir,
                tag,
                bytes,
            } => {
                self.storage(storage);
                self.storage(heir);
                self.numbers(2, [tag.into(), bytes])
            }
            Event::Move {
                storage,
                bytes,
                slab,
                offset_bytes,
            } => self.moved(3, storage, bytes, slab, offset_bytes),
            Event::Evict { storage, bytes, to } => self.of_storage(storage, 4, [bytes, to as u64]),
            Event::Restore {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            } => self.block(5, [storage, tag.into(), bytes, slab.into(), offset_bytes]),
            other => self.happening(other),
        }
    }

    /// As [`fields`](Self::fields), for the kinds that place or free no storage on the device.
    fn happening(&mut self, event: Event) -> u8 {
        match event {
            Event::SlabCreated { slab, bytes, class } => {
                self.of_slab(slab, 6, [bytes, class as u64])
            }
            Event::SlabReleased { slab, bytes } => self.of_slab(slab, 7, [bytes]),
            Event::Submission { serial, commands } => self.numbers(8, [serial, commands]),
            Event::ReclaimStep { step, freed_bytes } => {
                let place = steps().position(|one| one == step);
                self.numbers(9, [place.unwrap_or_default() as u64, freed_bytes])
            }
            Event::Refusal { bytes } => self.numbers(10, [bytes]),
            Event::Reopened => 11,
            Event::Upload { storage, bytes } => self.of_storage(storage, 12, [bytes]),
            Event::Read { storage, bytes } => self.of_storage(storage, 13, [bytes]),
            Event::Kernel {
                kernel,
                begin_ns,
                end_ns,
            } => {
                let took_ns = end_ns.saturating_sub(begin_ns);
                self.numbers(14, [kernel.into(), begin_ns, took_ns])
            }
            Event::HostSlabCreated { slab, bytes, class } => {
                self.of_slab(slab, 15, [bytes, class as u64])
            }
            Event::HostSlabReleased { slab, bytes } => self.of_slab(slab, 16, [bytes]),
            Event::HostAlloc {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes,
            } => self.block(17, [storage, tag.into(), bytes, slab.into(), offset_bytes]),
            Event::HostFree { storage, bytes } => self.of_storage(storage, 18, [bytes]),
            Event::HostMove {
                storage,
                bytes,
                slab,
                offset_bytes,
            } => self.moved(19, storage, bytes, slab, offset_bytes),
            _ => unreachable!("`fields` writes the others of the {EVENT_KINDS} kinds"),
        }
    }

    fn block(&mut self, kind: u8, [storage, tag, bytes, slab, offset_bytes]: [u64; 5]) -> u8 {
        self.storage(storage);
        self.number(tag);
        self.number(bytes);
        self.slab(slab as u32);
        self.numbers(kind, [offset_bytes])
    }

    fn moved(&mut self, kind: u8, storage: u64, bytes: u64, slab: u32, offset_bytes: u64) -> u8 {
        self.storage(storage);
        self.number(bytes);
        self.slab(slab);
        self.numbers(kind, [offset_bytes])
    }

    fn of_storage<const N: usize>(&mut self, storage: u64, kind: u8, numbers: [u64; N]) -> u8 {
        self.storage(storage);
        self.numbers(kind, numbers)
    }

    fn of_slab<const N: usize>(&mut self, slab: u32, kind: u8, numbers: [u64; N]) -> u8 {
        self.slab(slab);
        self.numbers(kind, numbers)
    }

    fn numbers<const N: usize>(&mut self, kind: u8, numbers: [u64; N]) -> u8 {
        numbers.into_iter().for_each(|number| self.number(number));
        kind
    }

    fn storage(&mut self, storage: u64) {
        let storage = storage.min(MOST_NUMBER);
        self.distance(self.storage, storage);
        self.storage = storage;
    }

    fn slab(&mut self, slab: u32) {
        self.distance(self.slab, slab.into());
        self.slab = slab.into();
    }

    /// Twice the distance; one less if the distance is negative.
    fn distance(&mut self, from: u64, to: u64) {
        let twice = 2 * from.abs_diff(to);
        self.raw(twice - u64::from(to < from));
    }

    fn number(&mut self, number: u64) {
        self.raw(number.min(MOST_NUMBER));
    }

    fn raw(&mut self, mut number: u64) {
        while number >= 1 << 7 {
            self.bytes.push(number as u8 | 1 << 7);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

/// Base64: four letters for three bytes. None of them has a meaning in HTML.
fn write_base64(bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(bits);
        let mut four = [b'='; 4];
        for (place, letter) in four.iter_mut().enumerate().take(three.len() + 1) {
            *letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
        }
        to.write_all(&four)?;
    }
    Ok(())
}
