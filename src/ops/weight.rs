//! A matrix of weights in any stored form: floats, eight bits with scales, or blocks.

use super::blocks::Blocks;
use super::matmul::Epilogue;
use super::quantized::{Quantized, check_matrix};
use crate::file_formats::BlockFormat;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

/// A matrix of weights, `[n, k]`, in the form in which it is stored: a row for each output of a
/// linear layer, or for each token of an embedding. A model computes with it in one way, whatever
/// its file has.
///
/// | stored as | made by | bytes of an element |
/// | --- | --- | --- |
/// | f32, f16, bf16 | [`Weight::new`] | 4, 2, 2 |
/// | eight bits, with a scale a row or a group | `Weight::from` a [`Quantized`] | 1 to 1.13 |
/// | blocks of 4 to 8 bits, as GGUF has them | [`Weight::from_blocks`] | 0.56 to 1.06 |
///
/// With the feature `model-files`, `files().load_weight_backed` makes it of what a file has.
///
/// Kernels widen the elements as they load them. For up to eight rows of input, blocks are read as
/// they are, and nothing is stored in a wider type. For more rows the matrix is widened to f32, up
/// to 64 MiB of it at a time.
///
/// ```no_run
/// use lapidary::operations::{BlockFormat, Weight};
/// use lapidary::{DType, Gpu, Options};
///
/// let gpu = Gpu::open(Options::default())?;
/// let bytes = gpu.zeros(&[2, 34], DType::U8)?; // Two rows of one block each.
/// let weight = Weight::from_blocks(BlockFormat::Q8_0, bytes)?;
/// let x = gpu.ones(&[1, 32], DType::F32)?;
/// assert_eq!(weight.linear(&x, None)?.to_vec::<f32>()?, [0.0, 0.0]);
/// # Ok::<(), lapidary::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Weight(Form);

#[derive(Clone, Debug)]
enum Form {
    Plain(Tensor),
    Scaled(Quantized),
    Blocks(Blocks),
}

impl From<Quantized> for Weight {
    fn from(weights: Quantized) -> Self {
        Weight(Form::Scaled(weights))
    }
}

impl Weight {
    /// A matrix of floats.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless it is a matrix. [`Error::DType`] for integers and bools.
    #[track_caller]
    pub fn new(matrix: Tensor) -> Result<Weight> {
        check_matrix("Weight::new", &matrix).located()?;
        Ok(Weight(Form::Plain(matrix)))
    }

    /// A matrix of blocks: `bytes` is `[n, bytes of a row]` of u8, and each row consists of whole
    /// blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless it is a matrix whose rows are whole blocks. [`Error::DType`] for
    /// another type.
    #[track_caller]
    pub fn from_blocks(format: BlockFormat, bytes: Tensor) -> Result<Weight> {
        const OPERATION: &str = "Weight::from_blocks";
        let _method = MadeFor::method(OPERATION);
        if bytes.dtype != DType::U8 {
            return Err(Error::DType {
                operation: OPERATION,
                expected: DType::U8.to_string(),
                got: bytes.dtype,
                hint: "The bytes of the blocks",
                at: String::new(),
            })
            .located();
        }
        match bytes.shape() {
            [_, row] if row.is_multiple_of(format.block_bytes()) => {}
            other => {
                return Err(Error::Shape {
                    operation: OPERATION,
                    reason: format!(
                        "bytes of {other:?}: they are [n, bytes of a row], in whole blocks of {}",
                        format.block_bytes()
                    ),
                })
                .located();
            }
        }
        // Kernels read pairs of words.
        let bytes = match bytes.layout.offset % 8 {
            0 => bytes.at_a_vec4()?,
            _ => bytes.copy()?,
        };
        Ok(Weight(Form::Blocks(Blocks::new(format, bytes))))
    }

    /// `[n, k]`.
    pub fn shape(&self) -> [usize; 2] {
        let of = |tensor: &Tensor| [tensor.shape()[0], tensor.shape()[1]];
        match &self.0 {
            Form::Plain(matrix) => of(matrix),
            Form::Scaled(weights) => match weights.values.shape() {
                &[n, k] => [n, k],
                // It is refused where it is used.
                _ => [0, 0],
            },
            Form::Blocks(blocks) => blocks.shape(),
        }
    }

    /// The format of its blocks, if it consists of blocks.
    pub fn blocks(&self) -> Option<BlockFormat> {
        match &self.0 {
            Form::Blocks(blocks) => Some(blocks.format()),
            _ => None,
        }
    }

    /// The tensors that have its bytes: the matrix, the values and their scales, or the bytes of
    /// the blocks.
    pub fn tensors(&self) -> Vec<&Tensor> {
        match &self.0 {
            Form::Plain(matrix) => vec![matrix],
            Form::Scaled(weights) => vec![&weights.values, &weights.scales],
            Form::Blocks(blocks) => vec![blocks.bytes()],
        }
    }

    /// A linear layer: `x`, `[…, k]` of floats, times the transposed matrix, plus the bias, `[n]`.
    /// The result is `[…, n]`, of the type of `x`; of f32 if `x` is narrower than a matrix of f32.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::linear`] and [`Tensor::matmul_quantized`].
    #[track_caller]
    pub fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let _method = MadeFor::method("linear");
        let end = Epilogue::new();
        let end = match bias {
            Some(bias) => end.bias(bias),
            None => end,
        };
        self.product(x, &end).called("linear")
    }

    /// [`linear`](Self::linear) with an epilogue instead of a bias.
    ///
    /// # Errors
    ///
    /// Those of [`linear`](Self::linear) and of [`Tensor::matmul_with`].
    #[track_caller]
    pub fn linear_with(&self, x: &Tensor, end: &Epilogue) -> Result<Tensor> {
        let _method = MadeFor::method("linear_with");
        self.product(x, end).called("linear_with")
    }

    #[track_caller]
    fn product(&self, x: &Tensor, end: &Epilogue) -> Result<Tensor> {
        let blocks = match &self.0 {
            Form::Plain(matrix) => return x.matmul_with(&matrix.t()?, end),
            Form::Scaled(weights) => return x.matmul_quantized_with(weights, end),
            Form::Blocks(blocks) => blocks,
        };
        blocks.check(x)?;
        if x.is_tracked() || end.is_tracked() {
            let matrix = blocks.dequantize()?.cast(x.dtype)?;
            return x.matmul_with(&matrix.t()?, end);
        }
        blocks.linear(x, end)
    }

    /// The rows that `indices` names, as [`Tensor::embedding`] gives them: the shape of `indices`,
    /// followed by `k`. A matrix of floats keeps its type, others give f32. Rows of a matrix that
    /// is evicted or still in its file are read there.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::embedding`].
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "embedding";
        let _method = MadeFor::method(OPERATION);
        let rows = self.rows(&indices.flatten()?).called(OPERATION)?;
        let mut shape = indices.layout.shape.clone();
        shape.push(self.shape()[1]);
        let rows = rows.dequantize().called(OPERATION)?;
        rows.reshape(&shape).called(OPERATION)
    }

    /// The rows that `indices`, of one dimension, names.
    #[track_caller]
    fn rows(&self, indices: &Tensor) -> Result<Weight> {
        Ok(Weight(match &self.0 {
            Form::Plain(matrix) => Form::Plain(matrix.index_select(0, indices)?),
            Form::Scaled(weights) => Form::Scaled(Quantized {
                values: weights.values.index_select(0, indices)?,
                scales: weights.scales.index_select(0, indices)?,
            }),
            Form::Blocks(blocks) => Form::Blocks(blocks.rows(indices)?),
        }))
    }

    /// The matrix in floats: of its own type if it has one, otherwise of f32.
    ///
    /// # Errors
    ///
    /// Those of [`Quantized::dequantize`], and of creating a tensor.
    #[track_caller]
    pub fn dequantize(&self) -> Result<Tensor> {
        let _method = MadeFor::method("dequantize");
        match &self.0 {
            Form::Plain(matrix) => Ok(matrix.clone()),
            Form::Scaled(weights) => weights.dequantize(),
            Form::Blocks(blocks) => blocks.dequantize().called("dequantize"),
        }
    }
}
