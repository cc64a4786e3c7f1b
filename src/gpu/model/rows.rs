//! Some rows of a model's tensor, for tables too large to load whole.

use std::ops::Range;

use super::{ModelFile, find};
use crate::files::{ModelFault, ShownShape};
use crate::gpu::Gpu;
use crate::tensor::Tensor;
use lapidary_core::internal::printable;
use lapidary_core::{Result, failure::ModelFailure};

impl Gpu {
    /// Some rows of a tensor of a file, read at their first use, as with
    /// [`load_tensor_backed`](Self::load_tensor_backed). So a table larger than the budget, such as
    /// a language model's word embeddings, becomes several tensors that each fit. A row is one
    /// index of the first dimension.
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
    /// As [`load_tensor_backed`](Self::load_tensor_backed), and [`ModelFailure::Shape`] for rows
    /// that the tensor does not have.
    #[track_caller]
    pub fn load_rows_backed(
        &self,
        file: &ModelFile,
        name: &str,
        rows: Range<usize>,
    ) -> Result<Tensor> {
        let index = find(file.directory(), name)?;
        let mut entry = file.directory().entries()[index].clone();
        match entry.shape.first_mut() {
            Some(count) if rows.start <= rows.end && rows.end <= *count => *count = rows.len(),
            _ => {
                let name = printable(name, 100);
                let reason = format!(
                    "{name} of shape {:?} has no rows {rows:?}",
                    ShownShape(&entry.shape)
                );
                return Err(file
                    .directory()
                    .error(ModelFault(ModelFailure::Shape, reason)));
            }
        }
        let tensor = file.tensor_for(self, &entry)?;
        let row_bytes = tensor
            .size_bytes()
            .checked_div(rows.len() as u64)
            .unwrap_or(0);
        self.back_entry(file, index, &tensor, rows.start as u64 * row_bytes);
        Ok(tensor)
    }
}
