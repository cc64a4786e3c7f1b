//! PyTorch's memory snapshots, for `torch/cuda/_memory_viz.py` and its viewer. A slab becomes a
//! segment and a block becomes a block. A tag becomes a stack of frames: the call site, then the
//! scopes around it.

use std::io::{self, Write};

use lapidary_core::alloc::SlabClass;
use lapidary_core::internal::{printable, printable_end};
use lapidary_core::stats::{Event, SlabMap, Snapshot};

use super::pickle::Pickle;
use super::places::{Held, Places, Range, Step};
use super::unix_us;

/// Lists and tooltips show the names. Longer names are cut.
const NAME_COLUMNS: usize = 120;

/// Writes a snapshot as a pickle for PyTorch's tools: `python _memory_viz.py trace_plot` of
/// `torch/cuda/`, and the viewer at <https://pytorch.org/memory_viz>.
///
/// Addresses are computed from the numbers of slabs and the offsets in them. A storage that is
/// moved, evicted or donated is freed at one address and allocated at another. Blocks that are
/// older than the history and freed in it have no known place. They are in a segment of their own.
///
/// ```no_run
/// # let gpu = lapidary_core::Gpu::open(Default::default())?;
/// gpu.memory().keep_history(100_000);
/// // ... a few steps ...
/// let file = std::fs::File::create("snapshot.pickle")?;
/// lapidary_tools::formats::write_pickle(&gpu.memory().snapshot(), file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the writer; [`InvalidData`](io::ErrorKind::InvalidData) for sizes over 2^53 bytes.
pub fn write_pickle(snapshot: &Snapshot, to: impl Write) -> io::Result<()> {
    let places = Places::new(snapshot);
    let mut writer = Writer {
        pickle: Pickle::begin(io::BufWriter::new(to))?,
        snapshot,
        frames: vec![None; snapshot.tags.len() + 1],
    };
    writer.pickle.dict()?;
    writer.segments(&places)?;
    writer.traces(&places)?;
    let pickle = &mut writer.pickle;
    pickle.key("allocator_settings")?;
    pickle.dict()?;
    pickle.str_at("allocator", "lapidary")?;
    pickle.str_at("adapter", &printable(&snapshot.stats.adapter, NAME_COLUMNS))?;
    pickle.end_dict()?;
    pickle.end_dict()?;
    writer.pickle.end()
}

struct Writer<'a, W> {
    pickle: Pickle<W>,
    snapshot: &'a Snapshot,
    /// The number of each written tag's frames. The last entry is that of all tags beyond the
    /// limit.
    frames: Vec<Option<u32>>,
}

impl<W: Write> Writer<'_, W> {
    fn segments(&mut self, places: &Places<'_>) -> io::Result<()> {
        self.pickle.key("segments")?;
        let mut segments = self.pickle.list()?;
        for slab in &self.snapshot.slabs {
            self.pickle.item(&mut segments)?;
            self.segment(slab, places.slab(slab.slab))?;
        }
        self.pickle.end_list(segments)
    }

    fn segment(&mut self, slab: &SlabMap, range: Range) -> io::Result<()> {
        let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
        let granted_bytes = sum(&mut slab.blocks.iter().map(|block| block.granted_bytes));
        let size_bytes = sum(&mut slab.blocks.iter().map(|block| block.size_bytes));
        let pickle = &mut self.pickle;
        pickle.dict()?;
        pickle.int_at("device", 0)?;
        pickle.int_at("address", range.address)?;
        pickle.int_at("total_size", slab.size_bytes)?;
        pickle.int_at("allocated_size", granted_bytes)?;
        pickle.int_at("active_size", granted_bytes)?;
        pickle.int_at("requested_size", size_bytes)?;
        pickle.int_at("stream", 0)?;
        let kind = match slab.class {
            SlabClass::Small => "small",
            _ => "large",
        };
        pickle.word_at("segment_type", kind)?;
        pickle.key("segment_pool_id")?;
        pickle.pair(0, 0)?;
        pickle.key("is_expandable")?;
        pickle.bool(false)?;
        self.no_frames()?;
        self.pickle.key("blocks")?;
        // Blocks and holes fill the segment without gaps.
        let mut blocks = self.pickle.list()?;
        let mut end_bytes = 0;
        for block in &slab.blocks {
            let free_bytes = block.offset_bytes.saturating_sub(end_bytes);
            if free_bytes > 0 {
                self.pickle.item(&mut blocks)?;
                self.block(range.address.saturating_add(end_bytes), free_bytes, None)?;
            }
            self.pickle.item(&mut blocks)?;
            let address = range.address.saturating_add(block.offset_bytes);
            let used = Some((block.size_bytes, block.tag));
            self.block(address, block.granted_bytes, used)?;
            end_bytes = block.offset_bytes.saturating_add(block.granted_bytes);
        }
        let free_bytes = slab.size_bytes.saturating_sub(end_bytes);
        if free_bytes > 0 {
            self.pickle.item(&mut blocks)?;
            self.block(range.address.saturating_add(end_bytes), free_bytes, None)?;
        }
        self.pickle.end_list(blocks)?;
        self.pickle.end_dict()
    }

    /// A block with its bytes and tag, or a hole.
    fn block(&mut self, address: u64, bytes: u64, used: Option<(u64, u32)>) -> io::Result<()> {
        self.pickle.dict()?;
        self.pickle.int_at("address", address)?;
        self.pickle.int_at("size", bytes)?;
        match used {
            Some((size_bytes, tag)) => {
                self.pickle.int_at("requested_size", size_bytes)?;
                self.pickle.word_at("state", "active_allocated")?;
                self.frames(tag)?;
            }
            None => {
                self.pickle.int_at("requested_size", 0)?;
                self.pickle.word_at("state", "inactive")?;
                self.no_frames()?;
            }
        }
        self.pickle.end_dict()
    }

    fn traces(&mut self, places: &Places<'_>) -> io::Result<()> {
        self.pickle.key("device_traces")?;
        let mut devices = self.pickle.list()?;
        self.pickle.item(&mut devices)?;
        let mut trace = self.pickle.list()?;
        let budget_bytes = self.snapshot.stats.budget_bytes.unwrap_or(0);
        let slabs_before = places.slabs_before();
        let mut reserved_bytes =
            (slabs_before.iter()).fold(0, |sum: u64, slab| sum.saturating_add(slab.bytes));
        places.tell(|at_ns, step| {
            let us = unix_us(self.snapshot, at_ns);
            let mut entry = |action, place| {
                self.pickle.item(&mut trace)?;
                self.entry(us, action, place)
            };
            match step {
                Step::SlabGained(slab) => {
                    reserved_bytes = reserved_bytes.saturating_add(slab.bytes);
                    entry("segment_alloc", Of::Slab(slab))
                }
                Step::SlabLost(slab) => {
                    reserved_bytes = reserved_bytes.saturating_sub(slab.bytes);
                    entry("segment_free", Of::Slab(slab))
                }
                Step::Gained(held) => entry("alloc", Of::Block(held)),
                Step::Lost(held) => {
                    entry("free_requested", Of::Block(held))?;
                    entry("free_completed", Of::Block(held))
                }
                Step::Event(Event::Refusal { bytes }) => {
                    let free_bytes = budget_bytes.saturating_sub(reserved_bytes);
                    entry("oom", Of::Nothing { bytes, free_bytes })
                }
                Step::Event(_) => Ok(()),
            }
        })?;
        self.pickle.end_list(trace)?;
        self.pickle.end_list(devices)
    }

    fn entry(&mut self, us: u64, action: &'static str, of: Of) -> io::Result<()> {
        self.pickle.dict()?;
        self.pickle.word_at("action", action)?;
        match of {
            Of::Slab(slab) => {
                self.pickle.int_at("addr", slab.address)?;
                self.pickle.int_at("size", slab.bytes)?;
                self.no_frames()?;
            }
            Of::Block(held) => {
                self.pickle.int_at("addr", held.address)?;
                self.pickle.int_at("size", held.bytes)?;
                self.frames(held.tag)?;
            }
            Of::Nothing { bytes, free_bytes } => {
                self.pickle.int_at("device_free", free_bytes)?;
                self.pickle.int_at("size", bytes)?;
                self.no_frames()?;
            }
        }
        self.pickle.int_at("stream", 0)?;
        self.pickle.int_at("time_us", us)?;
        self.pickle.end_dict()
    }

    fn no_frames(&mut self) -> io::Result<()> {
        self.pickle.key("frames")?;
        let frames = self.pickle.list()?;
        self.pickle.end_list(frames)
    }

    /// The maker as a stack. Each tag's stack is written once.
    fn frames(&mut self, tag: u32) -> io::Result<()> {
        self.pickle.key("frames")?;
        let others = self.frames.len() - 1;
        let index = (tag as usize).min(others);
        if let Some(number) = self.frames[index] {
            return self.pickle.again(number);
        }
        let mut frames = self.pickle.list()?;
        let number = self.pickle.remember()?;
        self.frames[index] = Some(number);
        let mut frame = |file: &str, line: u32, name: &str| {
            self.pickle.item(&mut frames)?;
            self.pickle.dict()?;
            self.pickle.str_at("filename", file)?;
            self.pickle.int_at("line", line.into())?;
            self.pickle.str_at("name", name)?;
            self.pickle.end_dict()
        };
        match self.snapshot.tags.get(index) {
            Some(Some(tag)) => {
                let name = tag.name().unwrap_or("tensor");
                frame(&line(tag.file(), false), tag.line(), &line(name, true))?;
                let scopes = tag.scope().into_iter().flat_map(|scope| scope.rsplit('/'));
                for scope in scopes {
                    frame("scope", 0, &line(scope, true))?;
                }
            }
            _ => frame("others", 0, "others")?,
        }
        self.pickle.end_list(frames)
    }
}

enum Of {
    Slab(Range),
    Block(Held),
    Nothing { bytes: u64, free_bytes: u64 },
}

/// A name on one line. A flame graph separates frames at semicolons.
fn line(text: &str, from_beginning: bool) -> String {
    let line = match from_beginning {
        true => printable(text, NAME_COLUMNS),
        false => printable_end(text, NAME_COLUMNS),
    };
    line.replace(';', ",")
}
