//! Tensors in a file that others read.

use std::path::Path;

use crate::files::{ModelWriter, SavedArray};
use crate::gpu::Gpu;
use crate::gpu::state::{changed, stream};
use crate::tensor::Tensor;
use lapidary_core::internal::printable;
use lapidary_core::{Error, ModelFailure, Result};

impl Gpu {
    /// Saves tensors under names into a file in the format safetensors, with notes in its metadata,
    /// for whoever reads that format.
    ///
    /// As with [`save_state`](Self::save_state) the file replaces the one at `path` only when it is
    /// whole and on the disk, and tensors pass through the host a few MiB at a time; a model that
    /// is backed by the old file goes on reading that one. There are no checksums in this format:
    /// to go on with a job later, `save_state` is the safer one.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let weight = gpu.rand_normal(&[10, 784], 0.0, 0.05, 7, lapidary::DType::F32)?;
    /// let bias = gpu.zeros(&[10], lapidary::DType::F32)?;
    /// let notes = [("format", "pt")];
    /// gpu.save_model("digits.safetensors", &[("weight", &weight), ("bias", &bias)], &notes)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Model`] when a name is given twice, when the file cannot be written, or when a
    /// tensor was written to meanwhile; [`Error::Foreign`] for a tensor of another `Gpu`; what
    /// [`read`](Tensor::read) says.
    pub fn save_model(
        &self,
        path: impl AsRef<Path>,
        tensors: &[(&str, &Tensor)],
        metadata: &[(&str, &str)],
    ) -> Result<()> {
        let path = path.as_ref();
        let given: Vec<&Tensor> = tensors.iter().map(|&(_, tensor)| tensor).collect();
        let versions = self.versions(&given, "save_model")?;
        let arrays: Vec<_> = (tensors.iter())
            .map(|(name, tensor)| SavedArray {
                name,
                dtype: tensor.dtype(),
                shape: tensor.shape(),
            })
            .collect();
        let options = self.file_options();
        let (mut writer, order) = ModelWriter::create(path, &arrays, metadata, &options)?;
        let ordered: Vec<&Tensor> = order.iter().map(|&at| given[at]).collect();
        stream("Gpu::save_model", &ordered, |part| writer.append(part))?;
        if let Some(changed) = changed(&given, &versions) {
            let name = printable(tensors[changed].0, 100);
            return Err(Error::Model {
                path: path.display().to_string(),
                failure: ModelFailure::Changed,
                reason: format!("{name} was written to while it was saved"),
            });
        }
        writer.finish()
    }
}
