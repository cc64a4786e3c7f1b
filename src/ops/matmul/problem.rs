//! A product in the kernel's terms: sizes, strides, and as few batch dimensions as possible.

use bytemuck::{Pod, Zeroable};

use super::form::{Order, Spread};
use crate::tensor::layout::{Layout, Strides, collapse};

/// Batch dimensions of the kernel: as many as a tensor of the highest rank has.
const MOST_BATCH_DIMS: usize = 6;

/// `Params` of the kernel's text. All are in elements; batch dimensions count from the innermost.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Params {
    /// m, n, k, matrices.
    pub(crate) size: [u32; 4],
    /// Batch dimensions 0 to 3.
    pub(crate) dims: [u32; 4],
    /// Strides of A over them.
    pub(crate) a: [u32; 4],
    /// Strides of B over them.
    pub(crate) b: [u32; 4],
    /// Strides of A over batch dimensions 4 and 5, and of B.
    pub(crate) outer: [u32; 4],
    /// A by row, A by column, B by row, B by column.
    pub(crate) strides: [u32; 4],
    /// Batch dimension 4, C's row stride, start of A, start of B.
    pub(crate) rest: [u32; 4],
    /// Bits of the scale; starts of the bias, the residual and the scales (of columns or of B's
    /// groups).
    pub(crate) more: [u32; 4],
}

/// One operand. Strides wrap: a negative stride is its two's complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    start: u32,
    /// Stride along the operand's edge of C; 0 if that edge is 1 long.
    edge: u32,
    /// Stride along k; 0 if k is 1.
    along_k: u32,
    batch: [u32; MOST_BATCH_DIMS],
}

impl Side {
    pub(super) fn order(&self) -> Order {
        match (self.along_k, self.edge) {
            (1, _) => Order::AlongK,
            (_, 1) => Order::AlongEdge,
            _ => Order::Stepped,
        }
    }

    /// Whether every line starts at a vec4.
    pub(super) fn is_vec4_aligned(&self) -> bool {
        let line = match self.order() {
            Order::AlongK => self.edge,
            Order::AlongEdge => self.along_k,
            Order::Stepped => return false,
        };
        let mut all = self.batch.iter().chain([&self.start, &line]);
        all.all(|stride| stride.is_multiple_of(4))
    }
}

/// A product of at least one element, with k at least 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    /// How many matrices the batch has.
    pub(super) matrices: u32,
    dims: [u32; MOST_BATCH_DIMS],
    pub(super) a: Side,
    pub(super) b: Side,
    /// A is the second tensor and B the first: a C of one column is computed as one row.
    pub(super) swapped: bool,
}

impl Problem {
    /// The last two dimensions of the operands are their matrices. The dimensions before them
    /// broadcast to `batch`. The result is row-major. `may_swap` says that either operand may be A.
    pub(super) fn new(batch: &[usize], a: &Layout, b: &Layout, may_swap: bool) -> Self {
        let [m, k] = last_two(&a.shape).map(|dim| dim as u32);
        let n = last_two(&b.shape)[1] as u32;
        let [a_row, a_column] = last_two(&a.strides).map(|stride| stride as u32);
        let [b_row, b_column] = last_two(&b.strides).map(|stride| stride as u32);
        let (of_a, of_b) = (over_batch(batch, a), over_batch(batch, b));
        let collapsed = collapse(batch, &[&of_a, &of_b]);
        let mut problem = Problem {
            m,
            n,
            k,
            matrices: collapsed.dims.iter().product(),
            dims: from_innermost(&collapsed.dims, collapsed.dims.len(), 1),
            a: Side {
                start: collapsed.offsets[0],
                edge: a_row,
                along_k: a_column,
                batch: from_innermost(&collapsed.strides[0], collapsed.dims.len(), 0),
            },
            b: Side {
                start: collapsed.offsets[1],
                edge: b_column,
                along_k: b_row,
                batch: from_innermost(&collapsed.strides[1], collapsed.dims.len(), 0),
            },
            swapped: false,
        };
        problem.fold_batch();
        if may_swap && problem.n == 1 && problem.m > 1 {
            std::mem::swap(&mut problem.a, &mut problem.b);
            std::mem::swap(&mut problem.m, &mut problem.n);
            problem.swapped = true;
        }
        problem.forget_idle_strides();
        problem
    }

    /// If the whole batch shares one matrix B, as in a linear layer, it becomes more rows of A. The
    /// rows must follow one another.
    fn fold_batch(&mut self) {
        while self.matrices > 1 && self.b.batch[0] == 0 {
            let stride = self.a.batch[0];
            if self.m == 1 {
                self.a.edge = stride;
            } else if stride != self.a.edge.wrapping_mul(self.m) {
                return;
            }
            self.m *= self.dims[0];
            self.matrices /= self.dims[0];
            let shift = |list: &mut [u32; MOST_BATCH_DIMS], last| {
                list.rotate_left(1);
                list[MOST_BATCH_DIMS - 1] = last;
            };
            shift(&mut self.dims, 1);
            shift(&mut self.a.batch, 0);
            shift(&mut self.b.batch, 0);
        }
    }

    /// The stride of a dimension of 1 has no meaning, and must not look like a misalignment.
    fn forget_idle_strides(&mut self) {
        if self.m == 1 {
            self.a.edge = 0;
        }
        if self.n == 1 {
            self.b.edge = 0;
        }
        if self.k == 1 {
            self.a.along_k = 0;
            self.b.along_k = 0;
        }
    }

    /// Whether B consists of runs of eight elements that start at multiples of eight.
    pub(super) fn b_is_vec8s(&self) -> bool {
        let b = &self.b;
        let (line, run) = match b.order() {
            Order::AlongK => (b.edge, self.k),
            Order::AlongEdge => (b.along_k, self.n),
            Order::Stepped => return false,
        };
        let mut all = b.batch.iter().chain([&b.start, &line, &run]);
        all.all(|count| count.is_multiple_of(8))
    }

    /// Rows of C in all matrices.
    pub(super) fn rows(&self) -> u32 {
        self.m * self.matrices
    }

    /// Multiplications.
    pub(super) fn work(&self) -> u64 {
        u64::from(self.m) * u64::from(self.matrices) * u64::from(self.n) * u64::from(self.k)
    }

    /// How the matrices of the batch are numbered.
    pub(super) fn spread(&self) -> Spread {
        match self.matrices {
            1 => Spread::Single,
            all if all == self.dims[0] => Spread::Flat,
            _ => Spread::Linear,
        }
    }

    /// The number of distinct matrices of a side: one, if the whole batch shares it.
    pub(super) fn matrices_of(&self, side: &Side) -> u32 {
        match side.batch {
            [0, 0, 0, 0, 0, 0] => 1,
            _ => self.matrices,
        }
    }

    /// The parameters that pack a side whose edge is `edge` long.
    pub(super) fn packing(&self, side: &Side, edge: u32) -> Params {
        let [one, two, three, four, five, six] = side.batch;
        Params {
            size: [edge, 1, self.k, self.matrices_of(side)],
            dims: [self.dims[0], self.dims[1], self.dims[2], self.dims[3]],
            a: [one, two, three, four],
            b: [0; 4],
            outer: [five, six, 0, 0],
            strides: [side.edge, side.along_k, 0, 0],
            rest: [self.dims[4], 0, side.start, 0],
            more: [0; 4],
        }
    }

    /// The parameters of the product of packed operands. `a_steps` and `b_steps` are the lengths of
    /// their matrices, in steps of panels.
    pub(super) fn packed(&self, c_row: u32, [a_steps, b_steps]: [u32; 2]) -> Params {
        let step = |side, steps| {
            if self.matrices_of(side) == 1 {
                0
            } else {
                steps
            }
        };
        Params {
            size: [self.m, self.n, self.k, self.matrices],
            dims: [1; 4],
            a: [step(&self.a, a_steps), 0, 0, 0],
            b: [step(&self.b, b_steps), 0, 0, 0],
            outer: [0; 4],
            strides: [0; 4],
            rest: [1, c_row, 0, 0],
            more: [0; 4],
        }
    }

    pub(super) fn params(&self, c_row: u32) -> Params {
        let low = |list: &[u32; MOST_BATCH_DIMS]| [list[0], list[1], list[2], list[3]];
        Params {
            size: [self.m, self.n, self.k, self.matrices],
            dims: low(&self.dims),
            a: low(&self.a.batch),
            b: low(&self.b.batch),
            outer: [
                self.a.batch[4],
                self.a.batch[5],
                self.b.batch[4],
                self.b.batch[5],
            ],
            strides: [self.a.edge, self.a.along_k, self.b.along_k, self.b.edge],
            rest: [self.dims[4], c_row, self.a.start, self.b.start],
            more: [0; 4],
        }
    }
}

fn last_two<T: Copy>(list: &[T]) -> [T; 2] {
    [list[list.len() - 2], list[list.len() - 1]]
}

/// The layout of an operand's first elements over the broadcast batch. It may be larger than a view
/// may be, because its elements are never enumerated.
fn over_batch(batch: &[usize], operand: &Layout) -> Layout {
    let own = operand.rank() - 2;
    let missing = batch.len() - own;
    let mut strides = Strides::from_elem(0, missing);
    strides.extend((0..own).map(|axis| match operand.shape[axis] {
        1 => 0,
        _ => operand.strides[axis],
    }));
    Layout {
        shape: batch.into(),
        strides,
        offset: operand.offset,
    }
}

/// The first `count` of a list in reverse; `filler` follows.
fn from_innermost(list: &[u32], count: usize, filler: u32) -> [u32; MOST_BATCH_DIMS] {
    let mut reversed = [filler; MOST_BATCH_DIMS];
    for (to, from) in reversed.iter_mut().zip(list[..count].iter().rev()) {
        *to = *from;
    }
    reversed
}
