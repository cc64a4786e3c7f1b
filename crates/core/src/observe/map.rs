//! The slabs of a snapshot as a picture of letters: the holders, and how full the slabs are. Those
//! in the host's memory come after those of the device.

use std::cmp::Reverse;
use std::fmt;

use rustc_hash::FxHashMap;

use super::Snapshot;
use crate::memory::{SlabMap, printable_end};
use crate::units::Bytes;

/// The greatest holders get a letter.
const LETTERS: usize = 10;

/// Most rows of one slab.
const MOST_ROWS: usize = 8;

/// Columns before the cells of a row.
const MARGIN: usize = 27;

/// Least and most columns; the caller's number is clamped to them.
const COLUMNS: (usize, usize) = (60, 400);
const LINES: (usize, usize) = (16, 400);

/// Cells in which no holder with a letter has half: up to a third full, two thirds, more.
const SHADES: [char; 3] = ['-', '+', '#'];

/// Colours of the letters, of a terminal's 256: distinct on light and on dark ground.
const COLORS: [u8; LETTERS] = [32, 166, 34, 133, 172, 37, 161, 67, 106, 97];

impl Snapshot {
    /// A picture of the slabs to print. Each cell stands for some bytes and shows the letter of the
    /// holder that has most of them.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// println!("{}", gpu.memory().snapshot().map());
    /// println!("{}", gpu.memory().snapshot().map().columns(160).lines(60).colored(true));
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    pub fn map(&self) -> Picture<'_> {
        Picture {
            snapshot: self,
            columns: 100,
            lines: 40,
            is_colored: false,
        }
    }
}

/// A picture of slabs: see [`Snapshot::map`]. `Display` prints it.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    snapshot: &'a Snapshot,
    columns: usize,
    lines: usize,
    is_colored: bool,
}

impl Picture<'_> {
    /// The width in columns: 100 by default, at least 60.
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns.clamp(COLUMNS.0, COLUMNS.1);
        self
    }

    /// The height in lines: at most 40 by default, never below 16.
    pub fn lines(mut self, lines: usize) -> Self {
        self.lines = lines.clamp(LINES.0, LINES.1);
        self
    }

    /// Whether to use the colours of terminals.
    pub fn colored(mut self, is_colored: bool) -> Self {
        self.is_colored = is_colored;
        self
    }
}

/// A range of a slab that one cell shows.
#[derive(Clone, Default)]
struct Cell {
    used_bytes: u64,
    /// The bytes of each holder with a letter.
    by_letter: Vec<(usize, u64)>,
}

impl Cell {
    fn add(&mut self, letter: Option<usize>, bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        let Some(letter) = letter else { return };
        match self.by_letter.iter_mut().find(|one| one.0 == letter) {
            Some(one) => one.1 = one.1.saturating_add(bytes),
            None => self.by_letter.push((letter, bytes)),
        }
    }

    /// The character and the number of its colour.
    fn drawn(&self, size_bytes: u64) -> (char, Option<u8>) {
        if self.used_bytes == 0 {
            return ('.', None);
        }
        let (used, size) = (u128::from(self.used_bytes), u128::from(size_bytes.max(1)));
        let letters = self.by_letter.iter();
        let most = letters.max_by_key(|one| (one.1, Reverse(one.0)));
        match most {
            Some(&(letter, bytes)) if u128::from(bytes) * 2 >= used => {
                let first = if used * 2 >= size { b'A' } else { b'a' };
                let color = COLORS.get(letter).copied();
                (char::from(first + letter as u8), color)
            }
            _ => {
                let third = (used * 3).div_ceil(size).clamp(1, 3) as usize;
                (SHADES[third - 1], None)
            }
        }
    }
}

/// How large a cell is, and which slabs are drawn.
struct MapPlan<'a> {
    cell_bytes: u64,
    cells: usize,
    /// Those of the device, then those in the host's memory.
    heaps: [Shown<'a>; 2],
}

/// The slabs of one heap.
struct Shown<'a> {
    slabs: Vec<&'a SlabMap>,
    /// Number of the slabs that are not drawn, and their bytes.
    rest: (usize, u64),
}

impl<'a> Shown<'a> {
    /// The largest slabs, in at most so many rows.
    fn new(slabs: &'a [SlabMap], rows: usize) -> Self {
        let mut slabs: Vec<&SlabMap> = slabs.iter().collect();
        slabs.sort_by_key(|slab| (Reverse(slab.size_bytes), slab.slab));
        let shown = match slabs.len() > rows {
            true => rows.saturating_sub(1),
            false => slabs.len(),
        };
        let rest = &slabs[shown..];
        let rest = (rest.len(), sum(rest.iter().map(|slab| slab.size_bytes)));
        slabs.truncate(shown);
        Shown { slabs, rest }
    }
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

impl Picture<'_> {
    fn plan(&self, rows: usize) -> MapPlan<'_> {
        let (device, host) = (&self.snapshot.slabs, &self.snapshot.host_slabs);
        // Half of the rows are for the host's slabs, or as many as they need.
        let host_rows = host.len().min(rows / 2);
        let mut plan = MapPlan {
            cell_bytes: self.snapshot.granule_bytes.max(1),
            cells: self.columns - MARGIN,
            heaps: [
                Shown::new(device, rows - host_rows),
                Shown::new(host, host_rows),
            ],
        };
        while !plan.fits(rows) && plan.cell_bytes <= u64::MAX / 2 {
            plan.cell_bytes *= 2;
        }
        plan
    }

    /// The holders with their bytes and blocks, greatest first.
    fn holders(&self) -> Vec<(u32, u64, u64)> {
        let mut by_tag: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        let slabs = self.snapshot.slabs.iter().chain(&self.snapshot.host_slabs);
        for block in slabs.flat_map(|slab| &slab.blocks) {
            let (bytes, blocks) = by_tag.entry(block.tag).or_default();
            *bytes = bytes.saturating_add(block.size_bytes);
            *blocks += 1;
        }
        let mut holders: Vec<(u32, u64, u64)> = (by_tag.into_iter())
            .map(|(tag, (bytes, blocks))| (tag, bytes, blocks))
            .collect();
        holders.sort_unstable_by_key(|&(tag, bytes, _)| (Reverse(bytes), tag));
        holders
    }

    fn print_slabs(
        &self,
        f: &mut fmt::Formatter<'_>,
        plan: &MapPlan<'_>,
        shown: &Shown<'_>,
        letters: &FxHashMap<u32, usize>,
    ) -> fmt::Result {
        for slab in &shown.slabs {
            self.print_slab(f, plan, slab, letters)?;
        }
        match shown.rest {
            (0, _) => Ok(()),
            (count, bytes) => writeln!(f, "  and {count} more of {}", Bytes(bytes)),
        }
    }

    fn print_slab(
        &self,
        f: &mut fmt::Formatter<'_>,
        plan: &MapPlan<'_>,
        slab: &SlabMap,
        letters: &FxHashMap<u32, usize>,
    ) -> fmt::Result {
        let cells = plan.cells_of(slab, letters);
        let live_bytes = sum(slab.blocks.iter().map(|block| block.granted_bytes));
        let percent = u128::from(live_bytes) * 100 / u128::from(slab.size_bytes.max(1));
        let size = Bytes(slab.size_bytes).to_string();
        let mut margin = format!("  {:>7} {size:>10} {:>3} %", slab.slab, percent.min(100));
        let last_bytes = slab.size_bytes % plan.cell_bytes;
        for (row, drawn) in cells.chunks(plan.cells.max(1)).enumerate() {
            write!(f, "{margin:<MARGIN$}")?;
            margin.clear();
            let mut color = None;
            for (column, cell) in drawn.iter().enumerate() {
                let is_last = row * plan.cells + column + 1 == cells.len();
                let size_bytes = match is_last && last_bytes > 0 {
                    true => last_bytes,
                    false => plan.cell_bytes,
                };
                let (character, wanted) = cell.drawn(size_bytes);
                self.change(f, &mut color, wanted)?;
                write!(f, "{character}")?;
            }
            self.change(f, &mut color, None)?;
            writeln!(f)?;
        }
        Ok(())
    }

    fn change(
        &self,
        f: &mut fmt::Formatter<'_>,
        color: &mut Option<u8>,
        wanted: Option<u8>,
    ) -> fmt::Result {
        if !self.is_colored || *color == wanted {
            return Ok(());
        }
        *color = wanted;
        match wanted {
            Some(number) => write!(f, "\u{1b}[38;5;{number}m"),
            None => write!(f, "\u{1b}[0m"),
        }
    }
}

impl MapPlan<'_> {
    fn fits(&self, rows: usize) -> bool {
        let row_bytes = u128::from(self.cell_bytes) * self.cells as u128;
        let rows_of = |slab: &&SlabMap| u128::from(slab.size_bytes).div_ceil(row_bytes).max(1);
        let slabs = || self.heaps.iter().flat_map(|heap| &heap.slabs);
        let most = slabs().map(rows_of).max().unwrap_or(0);
        let all: u128 = slabs().map(rows_of).sum();
        let rests = self.heaps.iter().filter(|heap| heap.rest.0 > 0).count();
        most <= MOST_ROWS as u128 && all + rests as u128 <= rows as u128
    }

    /// The contents of a slab's cells. The part of a block beyond the slab's end is cut off.
    fn cells_of(&self, slab: &SlabMap, letters: &FxHashMap<u32, usize>) -> Vec<Cell> {
        let count = slab.size_bytes.div_ceil(self.cell_bytes).max(1);
        let mut cells = vec![Cell::default(); count as usize];
        for block in &slab.blocks {
            let letter = letters.get(&block.tag).copied();
            let end = block.offset_bytes.saturating_add(block.granted_bytes);
            let end = end.min(slab.size_bytes);
            let mut at = block.offset_bytes;
            while at < end {
                let index = at / self.cell_bytes;
                let cell_end = (index + 1).saturating_mul(self.cell_bytes).min(end);
                cells[index as usize].add(letter, cell_end - at);
                at = cell_end;
            }
        }
        cells
    }
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = self.holders();
        let (named, others) = holders.split_at(holders.len().min(LETTERS));
        let letters = named.iter().map(|holder| holder.0).zip(0..).collect();
        // A line each for the sums, the signs, every holder and the others.
        let host_slabs = &self.snapshot.host_slabs;
        let below = 2 + named.len() + usize::from(!others.is_empty());
        let below = below + usize::from(!host_slabs.is_empty());
        let plan = self.plan(self.lines - below);
        let stats = &self.snapshot.stats;
        writeln!(
            f,
            "{} live of {} in {} slabs, {} a cell",
            Bytes(stats.live_bytes.now),
            Bytes(stats.reserved_bytes.now),
            self.snapshot.slabs.len(),
            Bytes(plan.cell_bytes),
        )?;
        let [device, host] = &plan.heaps;
        self.print_slabs(f, &plan, device, &letters)?;
        if !host_slabs.is_empty() {
            let blocks = host_slabs.iter().flat_map(|slab| &slab.blocks);
            writeln!(
                f,
                "{} of {} in {} slabs of the host's memory",
                Bytes(sum(blocks.map(|block| block.granted_bytes))),
                Bytes(sum(host_slabs.iter().map(|slab| slab.size_bytes))),
                host_slabs.len(),
            )?;
            self.print_slabs(f, &plan, host, &letters)?;
        }
        writeln!(
            f,
            "  . free   a less than half full   A more   - + # of others"
        )?;
        for (&(tag, bytes, blocks), letter) in named.iter().zip(0_u8..) {
            let name = self.snapshot.tag_name(tag);
            let name = printable_end(&name, self.columns - 30);
            let mut color = None;
            write!(f, "  ")?;
            self.change(f, &mut color, COLORS.get(usize::from(letter)).copied())?;
            write!(f, "{}", char::from(b'A' + letter))?;
            self.change(f, &mut color, None)?;
            writeln!(f, " {:>10}  {name}  x{blocks}", Bytes(bytes).to_string())?;
        }
        if !others.is_empty() {
            let bytes = sum(others.iter().map(|other| other.1));
            let bytes = Bytes(bytes).to_string();
            writeln!(f, "  # {bytes:>10}  {} others", others.len())?;
        }
        Ok(())
    }
}
