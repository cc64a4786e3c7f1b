//! The tensors of a model's file, each checked before it is used, and read when it is.

use lapidary::{DType, Gpu, ModelFile, Tensor};

use crate::error::{Error, Result};

/// A file of weights, and the device that they are for. Nothing is read before it is computed with; under
/// pressure weights are dropped and read again.
#[derive(Debug)]
pub(crate) struct Weights<'a> {
    pub(crate) gpu: &'a Gpu,
    file: ModelFile,
}

impl<'a> Weights<'a> {
    /// The encoder computes in single precision, whatever the file holds.
    pub(crate) fn new(gpu: &'a Gpu, file: &ModelFile) -> Result<Weights<'a>> {
        let file = file.floats_as(DType::F32)?;
        Ok(Weights { gpu, file })
    }

    /// A tensor, which must have this shape.
    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.file.expect(name, shape)?;
        Ok(self.gpu.load_tensor_backed(&self.file, name)?)
    }

    /// A table of rows, in parts that each take a small share of the budget.
    pub(crate) fn table(&self, name: &str, shape: [usize; 2]) -> Result<Table> {
        self.file.expect(name, &shape)?;
        let [rows, width] = shape;
        let row_bytes = width as u64 * DType::F32.size_bytes();
        let part_rows = match self.gpu.budget().device_bytes {
            Some(bytes) if bytes / 2 < rows as u64 * row_bytes => bytes / 16 / row_bytes,
            _ => rows as u64,
        };
        let part_rows = usize::try_from(part_rows).unwrap_or(rows).clamp(1, rows);
        let mut parts = Vec::new();
        for start in (0..rows).step_by(part_rows) {
            let end = rows.min(start + part_rows);
            let part = self.gpu.load_rows_backed(&self.file, name, start..end)?;
            parts.push((start as u32, part));
        }
        Ok(Table { parts })
    }
}

/// The table of words: by far the largest tensor, of which a batch reads a few rows. Where it is too large
/// for the budget it is several tensors, each with some of the rows.
#[derive(Debug)]
pub(crate) struct Table {
    /// With the number of the first row.
    parts: Vec<(u32, Tensor)>,
}

impl Table {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.size_bytes()).sum()
    }

    /// The rows that `ids` name: `[ids, width]`.
    pub(crate) fn rows(&self, gpu: &Gpu, ids: &[u32]) -> Result<Tensor> {
        if let [(_, whole)] = &self.parts[..] {
            return Ok(whole.embedding(&gpu.tensor(ids, &[ids.len()])?)?);
        }
        // Of each part the rows that are wanted, one part after the other; then these in the order of `ids`.
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
        Ok(found.embedding(&gpu.tensor(&order, &[ids.len()])?)?)
    }
}
