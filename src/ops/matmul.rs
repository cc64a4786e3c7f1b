//! Matrix products. Shapes and types are checked here. `problem` puts the operands into the
//! kernel's terms, `choice` picks the variant, `variants` writes its text.
//!
//! | variant | who computes what | for |
//! | --- | --- | --- |
//! | naive | a thread computes four elements | integers, tiny products |
//! | register | a thread computes a tile in registers; A is broadcast within the subgroup | software adapters |
//! | register, no lanes | a thread computes a tile in registers | no subgroups of known size |
//! | workgroup | 256 threads compute a tile in workgroup memory | GPUs |
//! | cooperative | subgroups multiply squares in workgroup memory | f16 on GPUs with cooperative matrices |
//! | skinny | 256 threads share out k | up to 8 rows on GPUs |
//! | split | the lanes of a subgroup share out k | up to 4 rows on software adapters |
//! | packed | as register, from packed copies of the operands | software adapters, if packing pays |
//!
//! If the result is small and the sums are long, k is cut into parts that run in parallel
//! (`along_k`).
//!
//! Transposed operands are read in place. Each variant exists for operands that are contiguous
//! along k, along their edge of the result, or along neither.

mod along_k;
mod choice;
mod epilogue;
mod form;
mod gradient;
mod long;
mod output;
mod pack;
mod problem;
mod product;
mod right;
#[cfg(test)]
mod tests;
mod variants;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use crate::ops::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, Layout, broadcast_shapes};
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Error, Result, adapter::AdapterKind};

pub(super) use choice::lanes;
pub use epilogue::{Activation, Epilogue};
pub(super) use form::Form;
#[cfg(any(test, feature = "sim"))]
pub(super) use form::{Packing, Tile};
#[cfg(any(test, feature = "sim"))]
pub(super) use problem::Params;
pub(super) use right::{Groups, Right};

const fn kernel(operands: &'static [Operand]) -> BuiltInKernel {
    BuiltInKernel {
        name: "matmul",
        operands,
        text,
        reference: reference!(reference::run),
    }
}

const A: Operand = Operand::read("a");
const B: Operand = Operand::read("b");
const SCALES: Operand = Operand::read("scales");
const BIAS: Operand = Operand::read("bias");
const RESIDUAL: Operand = Operand::read("residual");
const C: Operand = Operand::write("c");

/// The kernel's index: + 1 with scales, + 2 with a bias, + 4 with a residual.
static MATMUL: [BuiltInKernel; 8] = [
    kernel(&[A, B, C]),
    kernel(&[A, B, SCALES, C]),
    kernel(&[A, B, BIAS, C]),
    kernel(&[A, B, SCALES, BIAS, C]),
    kernel(&[A, B, RESIDUAL, C]),
    kernel(&[A, B, SCALES, RESIDUAL, C]),
    kernel(&[A, B, BIAS, RESIDUAL, C]),
    kernel(&[A, B, SCALES, BIAS, RESIDUAL, C]),
];

fn kernel_of(form: Form) -> &'static BuiltInKernel {
    let with = [form.has_scales(), form.end.bias, form.end.residual];
    let index = with.map(usize::from);
    &MATMUL[index[0] + 2 * index[1] + 4 * index[2]]
}

fn text(variant: &Variant) -> Cow<'static, str> {
    variants::text(variant)
}

/// The longest sum on a software adapter. An invocation computes up to four sums in sequence, in
/// loops of at most [`MOST_TESTS`](super::long::MOST_TESTS) together.
const LONGEST_SUM_ON_CPU: usize = 15 << 10;

impl Tensor {
    /// The matrix product, with PyTorch's rules for shapes.
    ///
    /// The last two dimensions are the matrices: `[…, m, k]` times `[…, k, n]` is `[…, m, n]`. The
    /// dimensions before them broadcast. A tensor of one dimension is a row on the left and a
    /// column on the right, and the result lacks that dimension. Two of them give a single number.
    ///
    /// Both operands have one type, any but bool, which is also the result's. Weights may be
    /// narrower than the other operand: f16 or bf16 with f32, i8 with any float. The kernel widens
    /// them as it loads them, and the result has the wider type. For i8 with scales, see
    /// [`matmul_quantized`](Tensor::matmul_quantized).
    ///
    /// Floats are summed in f32. Integers wrap around, u8 and i8 at 8 bits: cast them to i32 first
    /// for the whole sum. With `k = 0` the result is zeros.
    ///
    /// Views are read in place: `x.matmul(&weight.t()?)` copies nothing and is as fast as without
    /// the transposition.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the shapes do not match. [`Error::DType`] for other types or pairs of
    /// types. [`Error::Foreign`] if `other` belongs to another `Gpu`. [`Error::Overflow`] and
    /// [`Error::NeverFits`] if the device cannot hold the result. [`Error::DeviceLost`].
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
        let _method = MadeFor::method("matmul");
        self.matmul_by_right(other.into(), &Epilogue::new())
            .called("matmul")
    }

    /// As [`matmul`](Tensor::matmul), with further steps before the product is stored: see
    /// [`Epilogue`].
    ///
    /// # Errors
    ///
    /// Those of [`matmul`](Tensor::matmul). [`Error::DType`] also for an epilogue on integers, and
    /// for scales, a bias, a residual or a cast of a wrong type. [`Error::Shape`] also for scales
    /// or a bias that are not one number a column, and for a residual that does not broadcast to
    /// the product.
    #[track_caller]
    pub fn matmul_with(&self, other: &Tensor, end: &Epilogue) -> Result<Tensor> {
        let _method = MadeFor::method("matmul_with");
        self.matmul_by_right(other.into(), end)
            .called("matmul_with")
    }

    /// The product, in as few parts as the device can take.
    #[track_caller]
    pub(super) fn matmul_by_right(&self, other: Right<'_>, end: &Epilogue) -> Result<Tensor> {
        if self.records_product(other, end) {
            return self.matmul_recorded(other, end);
        }
        if let Some(sum) = self.matmul_along_k(other, end)? {
            return Ok(sum);
        }
        let longest = self.shape().last().copied().unwrap_or(0);
        if self.engine.caps().kind == AdapterKind::Cpu && longest > LONGEST_SUM_ON_CPU {
            return self.matmul_in_slices(other, end);
        }
        let most_work = self.engine.caps().most_work;
        match self.matmul_in_parts(other, end, most_work)? {
            Some(product) => Ok(product),
            None => self.matmul_by(other, end, None),
        }
    }

    /// A linear layer as in PyTorch: `self` times the transposed weight, plus the bias.
    ///
    /// `self` is `[…, k]`, `weight` `[n, k]`, `bias` `[n]` of the result's type, and the result
    /// `[…, n]`. The weight is read in place. The same kernel adds the bias; for integers a second
    /// one does. With a `self` of f32, weights of f16 or bf16 take half the memory. For weights of
    /// eight bits, see [`matmul_quantized`](Tensor::matmul_quantized).
    ///
    /// # Errors
    ///
    /// Those of [`matmul`](Tensor::matmul). [`Error::Shape`] also for a weight that is not a
    /// matrix, or a bias that is not one number for each row of it. [`Error::DType`] also for a
    /// bias of another type.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor, w: &lapidary::Tensor, b: &lapidary::Tensor)
    /// # -> lapidary::Result<()> {
    /// let hidden = x.linear(w, Some(b))?.relu()?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        const OPERATION: &str = "linear";
        let _method = MadeFor::method(OPERATION);
        let refuse = |reason: String| {
            Err(Error::Shape {
                operation: OPERATION,
                reason,
            })
        };
        let &[n, _] = weight.shape() else {
            return refuse(format!(
                "a weight of {:?}: it is a matrix, [n, k]",
                weight.shape()
            ))
            .located();
        };
        let right = weight.t()?;
        let Some(bias) = bias else {
            return self.matmul(&right).called(OPERATION);
        };
        let dtype = product_dtype(self.dtype, weight.dtype).called(OPERATION)?;
        self.same_engine(OPERATION, bias)?;
        same_dtype(OPERATION, dtype, bias.dtype)?;
        if bias.shape() != [n] {
            return refuse(format!(
                "a bias of {:?} for a weight of {:?}: it is one number a row",
                bias.shape(),
                weight.shape()
            ))
            .located();
        }
        match dtype.is_float() {
            true => (self.matmul_with(&right, &Epilogue::new().bias(bias))).called(OPERATION),
            // Products of integers have no epilogue.
            false => self.matmul(&right).called(OPERATION)?.add(bias),
        }
    }

    /// Cuts the summed axis into slices, and sums their products.
    #[track_caller]
    fn matmul_in_slices(&self, other: Right<'_>, end: &Epilogue) -> Result<Tensor> {
        let b = other.tensor;
        let dtype = product_dtype(self.dtype, b.dtype)?;
        self.same_engine("matmul", b)?;
        let shapes = Shapes::new(&self.layout, &b.layout)?;
        end.check(self, dtype, &shapes.result, b.rank() > 1)?;
        let wide = summed_as(dtype);
        let length = shapes.a.shape[shapes.a.rank() - 1];
        let rows = if b.rank() == 1 { 0 } else { -2 };
        let step = LONGEST_SUM_ON_CPU >> other.group_log2() << other.group_log2();
        let mut sum: Option<Tensor> = None;
        for start in (0..length).step_by(step) {
            let len = step.min(length - start);
            let a = self.narrow(-1, start, len)?.cast(wide)?;
            // `matmul_by` widens it as it is loaded.
            let b = b.narrow(rows, start, len)?;
            let scales = other.scales_of(start, len)?;
            let groups = scales.as_ref().map(|scales| Groups {
                scales,
                log2: other.group_log2(),
            });
            let product = a.matmul_by(Right::grouped(&b, groups), &Epilogue::new(), None)?;
            match &sum {
                Some(sum) => sum.add_(&product)?,
                None => sum = Some(product),
            }
        }
        match sum {
            Some(sum) => end.apply_in(sum)?.cast(end.cast.unwrap_or(dtype)),
            None => self.matmul_by(other, end, None),
        }
    }
}

/// The type of a product's sums and of its epilogue: f32 for floats.
fn summed_as(dtype: DType) -> DType {
    if dtype.is_float() { DType::F32 } else { dtype }
}

/// The type of a product: that of both operands, or the wider one if the other is only stored.
fn product_dtype(a: DType, b: DType) -> Result<DType> {
    let refuse = |expected: String, got, hint| {
        Err(Error::DType {
            operation: "matmul",
            expected,
            got,
            hint,
            at: String::new(),
        })
    };
    let is_taken = |dtype: DType| dtype != DType::Bool;
    match (a, b) {
        _ if a == b && is_taken(a) => Ok(a),
        (DType::I8, dtype) | (dtype, DType::I8) if dtype.is_float() => Ok(dtype),
        (DType::F32, dtype) | (dtype, DType::F32) if dtype.is_float() => Ok(DType::F32),
        (DType::I8, _) => refuse(
            "a float".into(),
            b,
            "An i8 is multiplied by floats: use `cast`",
        ),
        _ if !is_taken(a) => refuse("a type of numbers".into(), a, "Convert it first"),
        _ => refuse(
            a.to_string(),
            b,
            "Both operands are of one type, or one is a narrower float beside f32, or i8 beside floats: \
             convert one",
        ),
    }
}

/// The operands as matrices, the broadcast batch dimensions, and the result's shape.
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
