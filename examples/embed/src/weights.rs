//! The tensors of a model's file, each checked when it is found, and read at its first use.

use lapidary::{
    DType, Gpu, Tensor,
    files::ModelFile,
    operations::{Epilogue, Quantized},
};

use crate::error::{Error, Result};
use crate::precision::Precision;

/// A file of weights, and their device. A weight is read at its first use; under pressure it is
/// dropped and read again.
#[derive(Debug)]
pub(crate) struct Weights<'a> {
    pub(crate) gpu: &'a Gpu,
    file: ModelFile,
    precision: Precision,
}

/// A matrix `[to, from]` for products; the product widens it.
#[derive(Debug)]
pub(crate) enum Matrix {
    Floats(Tensor),
    Bytes(Quantized),
}

impl Matrix {
    /// The tensors of the matrix.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let (first, second) = match self {
            Matrix::Floats(matrix) => (matrix, None),
            Matrix::Bytes(matrix) => (&matrix.values, Some(&matrix.scales)),
        };
        [first].into_iter().chain(second)
    }

    /// A linear layer with its epilogue.
    pub(crate) fn layer(&self, x: &Tensor, end: &Epilogue) -> Result<Tensor> {
        Ok(match self {
            Matrix::Floats(matrix) => x.matmul_with(&matrix.t()?, end)?,
            Matrix::Bytes(matrix) => x.matmul_quantized_with(matrix, end)?,
        })
    }
}

impl<'a> Weights<'a> {
    /// The encoder computes in single precision, whatever the precision of the file and the
    /// weights.
    pub(crate) fn new(gpu: &'a Gpu, file: &ModelFile, precision: Precision) -> Result<Weights<'a>> {
        Ok(Weights {
            gpu,
            file: file.floats_as(DType::F32)?,
            precision,
        })
    }

    /// A matrix in the chosen precision, which must have this shape.
    pub(crate) fn matrix(&self, name: &str, shape: &[usize]) -> Result<Matrix> {
        self.file.expect(name, shape)?;
        let floats = |file| -> Result<Matrix> {
            Ok(Matrix::Floats(
                self.gpu.files().load_tensor_backed(file, name)?,
            ))
        };
        match self.precision {
            Precision::F32 => floats(&self.file),
            Precision::F16 => floats(&self.file.floats_as(DType::F16)?),
            Precision::Int8(group) => {
                let matrix = self
                    .gpu
                    .files()
                    .load_quantized_backed(&self.file, name, group)?;
                Ok(Matrix::Bytes(matrix))
            }
        }
    }

    /// A tensor, which must have this shape.
    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.file.expect(name, shape)?;
        Ok(self.gpu.files().load_tensor_backed(&self.file, name)?)
    }

    /// A table of rows, in parts that each take a small share of the budget.
    pub(crate) fn table(&self, name: &str, shape: [usize; 2]) -> Result<Table> {
        self.file.expect(name, &shape)?;
        let [rows, width] = shape;
        let dtype = match self.precision {
            Precision::F32 => DType::F32,
            Precision::F16 | Precision::Int8(_) => DType::F16,
        };
        let file = self.file.floats_as(dtype)?;
        let row_bytes = width as u64 * dtype.size_bytes();
        let part_rows = match self.gpu.memory().budget().device_bytes {
            Some(bytes) if bytes / 2 < rows as u64 * row_bytes => bytes / 16 / row_bytes,
            _ => rows as u64,
        };
        let part_rows = usize::try_from(part_rows).unwrap_or(rows).clamp(1, rows);
        let mut parts = Vec::new();
        for start in (0..rows).step_by(part_rows) {
            let end = rows.min(start + part_rows);
            let part = self.gpu.files().load_rows_backed(&file, name, start..end)?;
            parts.push((start as u32, part));
        }
        Ok(Table { parts })
    }
}

/// The word table: by far the largest tensor, of which a batch reads a few rows. If it is too large
/// for the budget, it is split into several tensors with some of the rows each.
#[derive(Debug)]
pub(crate) struct Table {
    /// Each part with the number of its first row.
    parts: Vec<(u32, Tensor)>,
}

impl Table {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.size_bytes()).sum()
    }

    /// The rows of these ids: `[ids, width]`.
    pub(crate) fn rows(&self, gpu: &Gpu, ids: &[u32]) -> Result<Tensor> {
        if let [(_, whole)] = &self.parts[..] {
            let rows = whole.embedding(&gpu.tensor(ids, &[ids.len()])?)?;
            return Ok(rows.cast(DType::F32)?);
        }
        // Take the needed rows of each part, one part after the other, then put them in the order
        // of `ids`.
        let mut found = Vec::new();
        let mut order = vec![0_u32; ids.len()];
        let mut count = 0;
        for (first, part) in &self.parts {
            let rows = *first as usize..*first as usize + part.shape()[0];
            let mut local = Vec::new();
            for (id, at) in ids.iter().zip(&mut order) {
                if rows.contains(&(*id as usize)) {
                    *at = count;
                    count += 1;
                    local.push(id - first);
                }
            }
            if !local.is_empty() {
                found.push(part.embedding(&gpu.tensor(&local, &[local.len()])?)?);
            }
        }
        if count as usize != ids.len() {
            return Err(Error::Input(
                "a token has no row in the table of words".into(),
            ));
        }
        let found = Tensor::concat(&found.iter().collect::<Vec<_>>(), 0)?;
        let rows = found.embedding(&gpu.tensor(&order, &[ids.len()])?)?;
        Ok(rows.cast(DType::F32)?)
    }
}
