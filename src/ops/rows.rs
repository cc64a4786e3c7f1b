//! A view seen as rows, for reductions, softmax and layer normalization.
//!
//! The kept axes name a row, the folded axes a position in it. Both sides are collapsed to as few
//! dimensions as possible, and `shaders/rows.wgsl` computes addresses from them. A view with more
//! than four dimensions on a side is copied first.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use bytemuck::{Pod, Zeroable};
use smallvec::SmallVec;

use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, Layout, MAX_RANK, Strides, axis_or_number, collapse};
use lapidary_core::{Caps, Error, Result, adapter::AdapterKind};

/// The WGSL of this module.
pub(super) const WGSL: &str = include_str!("../../shaders/rows.wgsl");

/// Most dimensions of one side in the kernels.
const SIDE_RANK: usize = 4;

/// A set of axes, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axes(u8);

impl Axes {
    /// Every axis of a tensor.
    pub(super) fn all(rank: usize) -> Self {
        debug_assert!(rank <= MAX_RANK);
        Axes(((1_u16 << rank) - 1) as u8)
    }

    /// The axes from `first` on.
    pub(super) fn from(first: usize, rank: usize) -> Self {
        Axes(Axes::all(rank).0 & !Axes::all(first).0)
    }

    /// Counts axes from the front. Returns an error for one that does not exist or is named twice.
    /// Folding axis 0 of a 0-d tensor folds nothing.
    #[track_caller]
    pub(super) fn named(operation: &'static str, axes: &[isize], rank: usize) -> Result<Self> {
        let mut set = 0;
        for &given in axes {
            let bit = 1 << axis_or_number(operation, given, rank)?;
            if set & bit != 0 {
                return Err(Error::Shape {
                    operation,
                    reason: format!("{axes:?} names axis {given} twice"),
                })
                .located();
            }
            set |= bit;
        }
        Ok(Axes(set & Axes::all(rank).0))
    }

    /// Whether `axis` is in the set.
    pub(super) fn contains(self, axis: usize) -> bool {
        self.0 >> axis & 1 == 1
    }

    /// The number of elements that are folded into one.
    pub(super) fn length(self, shape: &[usize]) -> usize {
        let folded = (0..shape.len()).filter(|&axis| self.contains(axis));
        folded.map(|axis| shape[axis]).product()
    }

    /// The shape after these axes are folded. With `keep` they stay as dimensions of 1.
    pub(super) fn fold_shape(self, shape: &[usize], keep: bool) -> Dims {
        (0..shape.len())
            .filter_map(|axis| match (self.contains(axis), keep) {
                (false, _) => Some(shape[axis]),
                (true, true) => Some(1),
                (true, false) => None,
            })
            .collect()
    }
}

/// The dimensions of one side, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) rank: usize,
    pub(super) dims: [u32; SIDE_RANK],
    pub(super) strides: [u32; SIDE_RANK],
}

impl Side {
    /// `None` if more than four dimensions remain.
    pub(super) fn new(dims: Dims, strides: Strides) -> Option<Self> {
        let layout = Layout {
            shape: dims,
            strides,
            offset: 0,
        };
        let collapsed = collapse(&layout.shape, &[&layout]);
        let rank = collapsed.dims.len();
        let mut side = Side {
            rank,
            dims: [1; SIDE_RANK],
            strides: [0; SIDE_RANK],
        };
        for (at, from) in (0..rank).rev().enumerate() {
            *side.dims.get_mut(at)? = collapsed.dims[from];
            side.strides[at] = collapsed.strides[0][from];
        }
        Some(side)
    }

    fn len(&self) -> u32 {
        self.dims.iter().product()
    }

    /// Whether every stride except those of the innermost `skip` is a whole number of vec4s.
    fn steps_are_vec4_aligned(&self, skip: usize) -> bool {
        self.strides[skip..].iter().all(|stride| stride % 4 == 0)
    }
}

/// A view as rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// The first element of each row.
    pub(super) outer: Side,
    /// The elements of a row.
    pub(super) inner: Side,
    pub(super) offset: u32,
    /// The number of rows.
    pub(super) rows: u32,
    /// Elements of a row.
    pub(super) length: u32,
}

impl Rows {
    /// The rows along one axis or adjacent ones. Also returns their tensor: `x`, or a copy if `x`
    /// is too irregular for the kernels.
    #[track_caller]
    pub(super) fn along(x: &Tensor, folded: Axes) -> Result<(Tensor, Self)> {
        if let Some(rows) = Self::new(&x.layout, folded, false) {
            return Ok((x.clone(), rows));
        }
        let copy = x.contiguous()?;
        let rows = Self::new(&copy.layout, folded, false)
            .expect("the axes of a contiguous tensor around one collapse to two");
        Ok((copy, rows))
    }

    /// `None` if the view is too irregular for the kernels and must be copied. With `any_order`,
    /// the elements of a row may be reordered for speed.
    pub(super) fn new(layout: &Layout, folded: Axes, any_order: bool) -> Option<Self> {
        let mut outer = (Dims::new(), Strides::new());
        let mut inner: SmallVec<[(usize, isize); MAX_RANK]> = SmallVec::new();
        let mut offset = layout.offset;
        for (axis, (&dim, &stride)) in layout.shape.iter().zip(&layout.strides).enumerate() {
            if !folded.contains(axis) {
                outer.0.push(dim);
                outer.1.push(stride);
            } else if any_order && stride < 0 && dim > 0 {
                let last = stride.wrapping_mul(dim as isize - 1);
                offset = offset.wrapping_add_signed(last);
                inner.push((dim, stride.wrapping_neg()));
            } else {
                inner.push((dim, stride));
            }
        }
        if any_order {
            // The longest stride is outermost; stride 0, a repetition, comes before all others.
            inner.sort_by_key(|&(_, stride)| stride.unsigned_abs().wrapping_sub(1));
            inner.reverse();
        }
        let (dims, strides) = inner.into_iter().unzip::<_, _, Dims, Strides>();
        let (outer, inner) = (Side::new(outer.0, outer.1)?, Side::new(dims, strides)?);
        Some(Rows {
            outer,
            inner,
            offset: offset as u32,
            rows: outer.len(),
            length: inner.len(),
        })
    }

    /// Whether the elements of every row are contiguous.
    pub(super) fn lie_whole(&self) -> bool {
        self.inner.rank == 1 && self.inner.strides[0] == 1
    }

    /// Whether all rows start at vec4s, have no gaps and consist of whole vec4s.
    pub(super) fn are_vec4s(&self) -> bool {
        self.lie_whole()
            && self.offset.is_multiple_of(4)
            && self.length.is_multiple_of(4)
            && self.outer.steps_are_vec4_aligned(0)
    }

    /// Whether rows `4n..4n + 4` are neighbours that start at a vec4, at every position.
    pub(super) fn neighbours_are_vec4s(&self) -> bool {
        self.outer.strides[0] == 1
            && self.outer.dims[0].is_multiple_of(4)
            && self.offset.is_multiple_of(4)
            && self.outer.steps_are_vec4_aligned(1)
            && self.inner.steps_are_vec4_aligned(0)
    }

    /// The parameters for rows in one part.
    pub(super) fn params(&self) -> RowParams {
        RowParams {
            outer_dims: self.outer.dims,
            outer_strides: self.outer.strides,
            inner_dims: self.inner.dims,
            inner_strides: self.inner.strides,
            offset: self.offset,
            rows: self.rows,
            length: self.length,
            parts: 1,
            chunk: self.length,
            scalar: 0.0,
            second: 0,
            third: 0,
        }
    }
}

/// `struct Params` of `shaders/rows.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct RowParams {
    pub(super) outer_dims: [u32; 4],
    pub(super) outer_strides: [u32; 4],
    pub(super) inner_dims: [u32; 4],
    pub(super) inner_strides: [u32; 4],
    pub(super) offset: u32,
    pub(super) rows: u32,
    pub(super) length: u32,
    pub(super) parts: u32,
    pub(super) chunk: u32,
    pub(super) scalar: f32,
    pub(super) second: u32,
    pub(super) third: u32,
}

/// The bits of a variant's code for addressing: two ranks.
pub(super) fn rank_bits(rows: &Rows) -> u64 {
    (rows.outer.rank | rows.inner.rank << 4) as u64
}

/// The constants that `shaders/rows.wgsl` needs, from [`rank_bits`].
pub(super) fn rank_constants(bits: u64) -> Text {
    let (outer, inner) = (bits & 15, bits >> 4 & 15);
    Text::new().line(format_args!(
        "const OUTER: u32 = {outer}u;\nconst INNER: u32 = {inner}u;"
    ))
}

/// Whether it is a GPU. There, neighbouring invocations should read neighbouring words, and
/// workgroup memory is fast. Neither holds for a software rasterizer.
pub(super) fn is_gpu(caps: &Caps) -> bool {
    !matches!(caps.kind, AdapterKind::Cpu)
}

/// At least `count` groups, and hardly more, in as few dimensions as possible.
pub(super) fn count_out(count: u64, caps: &Caps) -> [u32; 3] {
    let limit = u64::from(caps.max_groups.max(1));
    let z = count.div_ceil(limit * limit).max(1);
    let y = count.div_ceil(z).div_ceil(limit).max(1);
    let x = count.div_ceil(z * y).max(1);
    [x as u32, y as u32, z as u32]
}

/// The number of workgroups for `invocations` of `per_group` each, over x and y.
pub(super) fn groups(caps: &Caps, invocations: u64, per_group: u64) -> [u32; 3] {
    let groups = invocations.div_ceil(per_group).max(1);
    let y = groups.div_ceil(u64::from(caps.max_groups.max(1)));
    let x = groups.div_ceil(y);
    [x as u32, y as u32, 1]
}
