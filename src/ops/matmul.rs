//! Matrix products: shapes and types are checked here; `problem` puts the operands into the
//! kernel's terms, `choice` picks the variant, `text` writes it.
//!
//! | variant | who computes what | for |
//! | --- | --- | --- |
//! | naive | a thread four elements | integers, tiny products |
//! | register | a thread a tile in registers, A broadcast within the subgroup | software adapters |
//! | register, no lanes | the same, every thread for itself | no subgroups of known size |
//! | workgroup | 256 threads a tile in workgroup memory | GPUs |
//! | skinny | 256 threads share out k | up to 8 rows on GPUs |
//! | packed | as register, from copies that it reads in one go | software adapters, where that pays |
//!
//! Transposed operands are read in place: each variant exists for operands that are contiguous
//! along k, along their edge of the result, or along neither.

mod choice;
mod form;
mod pack;
mod problem;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;
use std::sync::Arc;

use crate::driver::AdapterKind;
use crate::dtype::DType;
use crate::engine::{Arg, Kernel, Launch, Operand, Variant};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, Layout, broadcast_shapes};
#[cfg(not(any(test, feature = "sim")))]
use form::{Form, Tile};
use problem::Problem;

#[cfg(any(test, feature = "sim"))]
pub(super) use form::{Form, Packing, Tile};
#[cfg(any(test, feature = "sim"))]
pub(super) use problem::Params;

static MATMUL: Kernel = Kernel {
    name: "matmul",
    operands: &[Operand::read("a"), Operand::read("b"), Operand::write("c")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::matmul::run,
};

fn text(variant: &Variant) -> Cow<'static, str> {
    text::text(variant)
}

/// The longest sum on a software adapter: llvmpipe leaves the loops of an invocation once it has
/// gone round 65,535 times in all of them, without a word, and an invocation makes up to four sums
/// one after the other.
const LONGEST_SUM_ON_CPU: usize = 15 << 10;

impl Tensor {
    /// The matrix product, as PyTorch has it.
    ///
    /// The last two dimensions are the matrices: `[…, m, k]` times `[…, k, n]` is `[…, m, n]`, and
    /// the dimensions before them broadcast. A tensor of one dimension is a row on the left and a
    /// column on the right, and the result lacks that dimension: two of them give a single number.
    /// Both are of one type, f32, f16, i32 or u32, which is that of the result. Floats are added
    /// up in f32; integers wrap around. With `k = 0` the result is zeros.
    ///
    /// Views are read in place: `x.matmul(&weight.t()?)` copies nothing and is as fast as without
    /// the transposition.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the shapes do not go together, [`Error::DType`] for types that differ
    /// or are not among the four, [`Error::Foreign`] when `other` belongs to another `Gpu`,
    /// [`Error::Overflow`] and [`Error::NeverFits`] for a result beyond the device,
    /// [`Error::DeviceLost`].
    ///
    /// ```no_run
    /// use lapidary::{Gpu, Options};
    ///
    /// let gpu = Gpu::open(Options::default())?;
    /// let a = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let x = gpu.tensor(&[1.0_f32, -1.0], &[2])?;
    /// assert_eq!(a.matmul(&x)?.to_vec::<f32>()?, [-1.0, -1.0]);
    /// assert_eq!(a.matmul(&a.t()?)?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok::<(), lapidary::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let longest = self.shape().last().copied().unwrap_or(0);
        if self.engine.caps().kind == AdapterKind::Cpu && longest > LONGEST_SUM_ON_CPU {
            return self.matmul_in_slices(other);
        }
        self.matmul_by(other, None)
    }

    /// The sum of the products of slices along the summed axis.
    #[track_caller]
    fn matmul_in_slices(&self, other: &Tensor) -> Result<Tensor> {
        check_dtypes(self.dtype, other.dtype)?;
        let shapes = Shapes::new(&self.layout, &other.layout)?;
        // Halves are summed as they are within one product: in single precision.
        let wide = if self.dtype == DType::F16 {
            DType::F32
        } else {
            self.dtype
        };
        let length = shapes.a.shape[shapes.a.rank() - 1];
        let rows = if other.rank() == 1 { 0 } else { -2 };
        let mut sum: Option<Tensor> = None;
        for start in (0..length).step_by(LONGEST_SUM_ON_CPU) {
            let len = LONGEST_SUM_ON_CPU.min(length - start);
            let a = self.narrow(-1, start, len)?.cast(wide)?;
            let product = a.matmul_by(&other.narrow(rows, start, len)?.cast(wide)?, None)?;
            match &sum {
                Some(sum) => sum.add_(&product)?,
                None => sum = Some(product),
            }
        }
        match sum {
            Some(sum) => sum.cast(self.dtype),
            None => self.matmul_by(other, None),
        }
    }

    /// The product by a tile of the caller's choice.
    #[track_caller]
    fn matmul_by(&self, other: &Tensor, tile: Option<Tile>) -> Result<Tensor> {
        check_dtypes(self.dtype, other.dtype)?;
        self.same_engine("matmul", other)?;
        let shapes = Shapes::new(&self.layout, &other.layout)?;
        let c = Tensor::output(&self.engine, &shapes.result, self.dtype)?;
        if c.is_empty() {
            return Ok(c);
        }
        if shapes.a.shape.last() == Some(&0) {
            self.engine.clear(&c.storage)?;
            return Ok(c);
        }
        let problem = Problem::new(&shapes.batch, &shapes.a, &shapes.b);
        let tile = tile.unwrap_or_else(|| {
            let caps = self.engine.caps();
            let tile = choice::choose(caps, self.dtype, &problem);
            let has_windows = [self, other, &c]
                .iter()
                .any(|tensor| tensor.storage.size_bytes() > caps.max_binding_bytes);
            match has_windows && caps.kind == AdapterKind::Cpu {
                true => tile.through_windows(),
                false => tile,
            }
        });
        // Rows of halves that are no whole quads would share words between two threads: then the
        // rows are padded, and a copy takes the padding out.
        let n = problem.n;
        if tile == Tile::Naive || n.is_multiple_of(4) || self.dtype.size_bytes() == 4 {
            launch(self, other, &c, &problem, tile, n)?;
            return Ok(c);
        }
        let padded_n = n.next_multiple_of(4);
        let rows = problem.rows();
        let shape = [rows as usize, padded_n as usize];
        let padded = Tensor::output(&self.engine, &shape, self.dtype)?;
        launch(self, other, &padded, &problem, tile, padded_n)?;
        let whole = padded.narrow(1, 0, n as usize)?.contiguous()?;
        Ok(whole.view(Layout::contiguous(&shapes.result)))
    }
}

/// Appends the kernel; rows of `c` are `c_row` elements apart.
fn launch(
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    problem: &Problem,
    tile: Tile,
    c_row: u32,
) -> Result<()> {
    let form = Form {
        tile,
        a: problem.a.order(),
        b: problem.b.order(),
    };
    let arg = |tensor: &Tensor, quads: bool| Arg {
        storage: Arc::clone(&tensor.storage),
        dtype: tensor.dtype,
        quads,
    };
    let (first, second) = if problem.swapped { (b, a) } else { (a, b) };
    if matches!(tile, Tile::Packed { .. }) {
        return pack::launch([first, second], c, problem, tile, c_row);
    }
    let naive = tile == Tile::Naive;
    let args = [
        arg(first, !naive && problem.a.is_quads()),
        arg(second, !naive && problem.b.is_quads()),
        arg(c, naive || c_row.is_multiple_of(4)),
    ];
    let groups = choice::groups(a.engine.caps(), form, problem);
    let params = problem.params(c_row);
    a.engine
        .launch(Launch::new(&MATMUL, form.pack(), args, &params, groups))
}

fn check_dtypes(a: DType, b: DType) -> Result<()> {
    let refuse = |expected: String, got, hint| {
        Err(Error::DType {
            operation: "matmul",
            expected,
            got,
            hint,
        })
    };
    if !matches!(a, DType::F32 | DType::F16 | DType::I32 | DType::U32) {
        let expected = "f32, f16, i32 or u32".to_string();
        return refuse(expected, a, "Convert it first");
    }
    if a != b {
        return refuse(
            a.to_string(),
            b,
            "Both operands are of one type: convert one",
        );
    }
    Ok(())
}

/// The operands as matrices, the batch dimensions that they broadcast to, and the result's shape.
struct Shapes {
    a: Layout,
    b: Layout,
    batch: Dims,
    result: Dims,
}

impl Shapes {
    fn new(a: &Layout, b: &Layout) -> Result<Self> {
        let refuse = |what: &str| Error::Shape {
            operation: "matmul",
            reason: format!("{:?} times {:?}: {what}", &a.shape[..], &b.shape[..]),
        };
        if a.rank() == 0 || b.rank() == 0 {
            return Err(refuse("a single number is no matrix; multiply by `*`"));
        }
        let (is_row, is_column) = (a.rank() == 1, b.rank() == 1);
        let a = if is_row { a.unsqueeze(0)? } else { a.clone() };
        let b = if is_column {
            b.unsqueeze(-1)?
        } else {
            b.clone()
        };
        let (batch_a, [m, k]) = split(&a);
        let (batch_b, [also_k, n]) = split(&b);
        if k != also_k {
            return Err(refuse(&format!(
                "the first has {k} columns and the second {also_k} rows"
            )));
        }
        let batch = broadcast_shapes("matmul", batch_a, batch_b)?;
        let mut result = batch.clone();
        result.extend((!is_row).then_some(m));
        result.extend((!is_column).then_some(n));
        Ok(Shapes {
            a,
            b,
            batch,
            result,
        })
    }
}

/// The batch dimensions, and the matrix's rows and columns.
fn split(layout: &Layout) -> (&[usize], [usize; 2]) {
    let (batch, matrix) = layout.shape.split_at(layout.rank() - 2);
    (batch, [matrix[0], matrix[1]])
}
