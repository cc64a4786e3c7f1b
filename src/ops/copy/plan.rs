//! Plans of copies: a transposing one consists of blocks, a scattering one of rows.

use smallvec::SmallVec;

use crate::ops::rows::groups;
use crate::tensor::layout::{Dims, Layout, Strides, collapse};
use lapidary_core::internal::MAX_PARAMS_BYTES;
use lapidary_core::{Caps, DType, adapter::AdapterKind};

/// Least rows and columns of a matrix off the vec4s for which blocks pay.
const LEAST_RAGGED_EDGE: u32 = 8;

type Words = SmallVec<[u32; MAX_PARAMS_BYTES / 4]>;

fn padded(mut words: Words) -> Words {
    words.resize(words.len().next_multiple_of(4), 0);
    words
}

/// A copy in blocks of 4 × 4. A workgroup copies a tile of blocks. So it uses the cache lines that
/// it loads before other rows evict them: rows a power of two apart share cache sets.
///
/// ```text
///  words   0      1       2      3     4           5               6        7          8 …         then
///          tiles  beside  below  rows  first of x  column to next  columns  all lines  batch dims  batch strides
/// ```
///
/// `beside` and `below` count blocks. `all lines` are the rows of all matrices.
#[derive(Clone, Debug)]
pub(crate) struct Transpose {
    pub(super) form: TransposeForm,
    pub(super) words: Words,
    /// Tiles along the columns, tiles along the rows, and matrices.
    grid: [u32; 3],
}

/// How an invocation moves a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Loads four vec4s of the source and stores four of the output.
    Vec4s,
    /// Copies the same elements word by word, one row of the output after the other. This takes 0.6
    /// of the time on a software rasterizer. It loads the elements of a vec4 one by one anyway, and
    /// lacks registers for 16 of them.
    Words,
    /// Columns of the source or rows of the output do not start at vec4s.
    Ragged,
}

impl Block {
    pub(crate) const ALL: [Block; 3] = [Block::Vec4s, Block::Words, Block::Ragged];
}

/// The parts of a transposing copy that its text depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransposeForm {
    /// The number of batch dimensions.
    pub(crate) rank: usize,
    /// The blocks of a tile beside and below each other, as powers of two.
    pub(crate) width_log2: u32,
    pub(crate) height_log2: u32,
    /// Whether workgroups form a grid. If a grid is too small, they are numbered.
    pub(crate) is_grid: bool,
    pub(crate) block: Block,
}

impl TransposeForm {
    pub(crate) fn pack(self) -> u64 {
        let log2 = self.width_log2 | self.height_log2 << 4;
        let flags = u64::from(self.is_grid) | (self.block as u64) << 1;
        self.rank as u64 | u64::from(log2) << 4 | flags << 12
    }

    pub(crate) fn unpack(code: u64) -> Self {
        TransposeForm {
            rank: (code & 15) as usize,
            width_log2: (code >> 4 & 15) as u32,
            height_log2: (code >> 8 & 15) as u32,
            is_grid: code >> 12 & 1 == 1,
            block: Block::ALL[(code >> 13 & 3).min(2) as usize],
        }
    }
}

impl Transpose {
    /// The word at which the batch dimensions start.
    pub(crate) const MAP: usize = 8;

    pub(super) fn words_of(rank: usize) -> usize {
        Transpose::MAP + 2 * rank
    }

    /// `None` unless the last axis but one has stride 1. `None` also for a few rows or columns off
    /// the vec4s.
    pub(super) fn new(from: &Layout, dtype: DType, caps: &Caps) -> Option<Transpose> {
        let to = Layout::contiguous(&from.shape);
        let map = collapse(&from.shape, &[&to, from]);
        let batch = map.dims.len().checked_sub(2)?;
        let (rows, columns) = (map.dims[batch], map.dims[batch + 1]);
        let strides = &map.strides[1][..batch + 2];
        let step = strides[batch + 1];
        let are_vec4s = columns.is_multiple_of(4)
            && map.offsets[1].is_multiple_of(4)
            && step.is_multiple_of(4)
            && strides[..batch]
                .iter()
                .all(|stride| stride.is_multiple_of(4));
        let is_small = rows.min(columns) < LEAST_RAGGED_EDGE;
        if strides[batch] != 1 || step == 0 || !are_vec4s && is_small {
            return None;
        }
        let (beside, below) = (columns.div_ceil(4), rows.div_ceil(4));
        let batches: u32 = map.dims[..batch].iter().product();
        let [width_log2, height_log2] = tile(beside, below, caps.max_invocations);
        let grid = [
            below.div_ceil(1 << height_log2),
            beside.div_ceil(1 << width_log2),
            batches,
        ];
        let tiles = grid
            .iter()
            .fold(1, |tiles: u64, &n| tiles.saturating_mul(n.into()));
        let mut words = Words::new();
        words.extend([u32::try_from(tiles).ok()?, beside, below, rows]);
        words.extend([map.offsets[1], step, columns, batches * rows]);
        words.extend_from_slice(&map.dims[..batch]);
        words.extend_from_slice(&strides[..batch]);
        Some(Transpose {
            form: TransposeForm {
                rank: batch,
                width_log2,
                height_log2,
                is_grid: grid.iter().all(|&groups| groups <= caps.max_groups),
                block: match are_vec4s {
                    false => Block::Ragged,
                    true if caps.kind == AdapterKind::Cpu && dtype.size_bytes() == 4 => {
                        Block::Words
                    }
                    true => Block::Vec4s,
                },
            },
            words: padded(words),
            grid,
        })
    }

    /// The workgroups of the dispatch.
    pub(super) fn groups(&self, caps: &Caps) -> [u32; 3] {
        match self.form.is_grid {
            true => self.grid,
            false => groups(caps, self.words[0].into(), 1),
        }
    }
}

/// The blocks of a tile beside and below each other, as powers of two. A tile has 256 blocks if the
/// matrix and a workgroup are large enough, else 64. The choice needs the fewest tiles. Among
/// equals it is the nearest to a width of 4 blocks, whose rows are one cache line. On a software
/// rasterizer, tiles of 4 × 64 take 0.9 of the time of 4 × 16, and 0.7 of 16 × 4 and 8 × 8.
pub(super) fn tile(beside: u32, below: u32, max_invocations: u32) -> [u32; 2] {
    const BEST: u32 = 2;
    let is_large = u64::from(beside) * u64::from(below) >= 256 && max_invocations >= 256;
    let blocks_log2 = if is_large { 8 } else { 6 };
    let tiles = |width: u32| {
        let height = blocks_log2 - width;
        u64::from(beside.div_ceil(1 << width)) * u64::from(below.div_ceil(1 << height))
    };
    let best = (0..=blocks_log2).min_by_key(|&width| (tiles(width), width.abs_diff(BEST)));
    let width = best.unwrap_or(BEST);
    [width, blocks_log2 - width]
}

/// A copy through a view with gaps, row by row.
///
/// The axes are sorted by their strides in the destination, and flipped axes are reversed. The
/// outer axes number the rows. The elements of the inner axes lie close together, so the kernel
/// tests each vec4 for them.
///
/// ```text
///  words   0            1          2              3             4           5 …
///          invocations  lowest y   vec4s a row    extent a row  first of x  dims, y, x strides
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    /// The rank, and the number of axes that number the rows.
    pub(super) code: u64,
    pub(super) words: Words,
}

impl Scatter {
    /// The word at which the dimensions start.
    pub(crate) const MAP: usize = 5;

    pub(super) fn words_of(rank: usize) -> usize {
        Scatter::MAP + 3 * rank
    }

    /// The rank and the number of outer axes, from the code.
    pub(crate) fn ranks_of(code: u64) -> (usize, usize) {
        ((code & 15) as usize, (code >> 4 & 15) as usize)
    }

    /// `None` if two indices may name one element of the destination. Both layouts have one shape,
    /// which is not empty.
    pub(super) fn new(to: &Layout, from: &Layout) -> Option<Scatter> {
        let (to, from) = sorted(to, from);
        let map = collapse(&to.shape, &[&to, &from]);
        let (dims, strides) = (&map.dims[..], &map.strides[0]);
        let rank = dims.len();
        let mut best: Option<(u64, usize, [u32; 2])> = None;
        // From one row for the whole view to rows of one element.
        let extents = extents(dims, &strides[..rank])?;
        for outer in 0..=rank {
            let extent = extents[outer];
            let starts_are_vec4_aligned = map.offsets[0].is_multiple_of(4)
                && strides[..outer]
                    .iter()
                    .all(|stride| stride.is_multiple_of(4));
            // Rows that are at least four elements apart share no vec4.
            let are_apart =
                (0..outer).all(|d| u64::from(strides[d]) > extents[d + 1] + 2 || dims[d] == 1);
            if !starts_are_vec4_aligned && !are_apart {
                continue;
            }
            let vec4s = match starts_are_vec4_aligned {
                true => extent.div_ceil(4),
                false => (extent + 2) / 4 + 1,
            };
            let rows: u64 = dims[..outer].iter().map(|&dim| u64::from(dim)).product();
            let cost = rows * vec4s;
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, outer, [vec4s as u32, extent as u32]));
            }
        }
        let (cost, outer, row) = best?;
        let mut words = Words::new();
        words.extend([u32::try_from(cost).ok()?, map.offsets[0]]);
        words.extend(row);
        words.push(map.offsets[1]);
        words.extend_from_slice(dims);
        words.extend_from_slice(&strides[..rank]);
        words.extend_from_slice(&map.strides[1][..rank]);
        Some(Scatter {
            code: rank as u64 | (outer as u64) << 4,
            words: padded(words),
        })
    }
}

/// Both layouts with their axes sorted by the destination's strides, longest first. Axes with
/// negative strides there are reversed.
fn sorted(to: &Layout, from: &Layout) -> (Layout, Layout) {
    let mut axes: Dims = (0..to.rank()).filter(|&axis| to.shape[axis] != 1).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(to.strides[axis].unsigned_abs()));
    let pick = |layout: &Layout| {
        let mut offset = layout.offset as isize;
        let mut strides = Strides::new();
        for &axis in &axes {
            let stride = layout.strides[axis];
            let is_turned = to.strides[axis] < 0;
            let last = stride.wrapping_mul(to.shape[axis] as isize - 1);
            offset = offset.wrapping_add(if is_turned { last } else { 0 });
            strides.push(if is_turned {
                stride.wrapping_neg()
            } else {
                stride
            });
        }
        Layout {
            shape: axes.iter().map(|&axis| to.shape[axis]).collect(),
            strides,
            offset: offset as usize,
        }
    };
    (pick(to), pick(from))
}

/// At `d`, the number of elements that the axes from `d` on span; 1 at the end. `None` if an axis
/// steps within the span of the axes inside it.
fn extents(dims: &[u32], strides: &[u32]) -> Option<SmallVec<[u64; 9]>> {
    let mut extents: SmallVec<[u64; 9]> = SmallVec::from_elem(1, dims.len() + 1);
    for d in (0..dims.len()).rev() {
        let inner = extents[d + 1];
        if dims[d] > 1 && u64::from(strides[d]) < inner {
            return None;
        }
        extents[d] = inner + u64::from(dims[d] - 1) * u64::from(strides[d]);
    }
    Some(extents)
}
