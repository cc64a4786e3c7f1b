//! Some rows of a model's tensor, for tables too large to be had whole.

use std::ops::Range;

use super::{ModelFile, find};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::memory::Source;
use crate::tensor::Tensor;

impl Gpu {
    /// Some of the rows of a tensor of a file, read when somebody uses them, as
    /// [`load_tensor_backed`](Self::load_tensor_backed) does with the whole: so a table that is larger than
    /// the budget, such as that of a language model's words, is several tensors of which each fits. A row is
    /// all that one index of the first dimension names.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let file = lapidary::ModelFile::open("model.safetensors")?;
    /// let first = gpu.load_rows_backed(&file, "embeddings.word_embeddings.weight", 0..1000)?;
    /// assert_eq!(first.shape(), [1000, 384]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`load_tensor_backed`](Self::load_tensor_backed); [`Error::Shape`] for rows that the tensor does
    /// not have.
    #[track_caller]
    pub fn load_rows_backed(
        &self,
        file: &ModelFile,
        name: &str,
        rows: Range<usize>,
    ) -> Result<Tensor> {
        let index = find(file.directory(), name)?;
        let entry = &file.directory().entries()[index];
        let count = entry.shape.first().copied().unwrap_or(0);
        if rows.start > rows.end || rows.end > count {
            return Err(Error::Shape {
                operation: "load_rows_backed",
                reason: format!(
                    "rows {} to {} of {:?}, which has {count}",
                    rows.start,
                    rows.end,
                    &entry.shape[..]
                ),
            });
        }
        let mut part = entry.clone();
        part.shape[0] = rows.len();
        let tensor = file.tensor_for(self, &part)?;
        if tensor.size_bytes() > 0 {
            let row_bytes = tensor.size_bytes() / rows.len() as u64;
            let whole = file.source(index, tensor.dtype());
            let source = after(whole, rows.start as u64 * row_bytes);
            self.engine.back_new(&tensor.storage, source);
        }
        Ok(tensor)
    }
}

/// What a source has from an offset on.
fn after(source: Source, start_bytes: u64) -> Source {
    Source::reader(move |offset_bytes, bytes| source.read(start_bytes + offset_bytes, bytes))
}
