//! Saves tensors in a file that other programs read.

use std::path::Path;

use crate::file_formats::{ModelWriter, SavedArray};
use crate::files::Files;
use crate::files::stream::{changed, stream, versions};
use crate::tensor::Tensor;
use lapidary_core::internal::printable;
use lapidary_core::{Error, Result, failure::ModelFailure};

impl Files<'_> {
    /// Saves named tensors into a file in the format safetensors, with notes in its metadata.
    ///
    /// As with [`save_state`](Self::save_state) the file replaces the one at `path` only when it is
    /// whole and on the disk. Tensors pass through the host a few MiB at a time. A model that is
    /// backed by the old file still reads the old file. The format has no checksums: to continue a
    /// job later, `save_state` is safer.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let weight = gpu.rand_normal(&[10, 784], 0.0, 0.05, 7, lapidary::DType::F32)?;
    /// let bias = gpu.zeros(&[10], lapidary::DType::F32)?;
    /// let notes = [("format", "pt")];
    /// let tensors = [("weight", &weight), ("bias", &bias)];
    /// gpu.files().save_model("digits.safetensors", &tensors, &notes)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Model`] when two tensors have one name, when the file cannot be written, or when a
    /// tensor was written to meanwhile. [`Error::Foreign`] for a tensor of another `Gpu`. The
    /// errors of [`to_vec_async`](Tensor::to_vec_async).
    #[track_caller]
    pub fn save_model(
        self,
        path: impl AsRef<Path>,
        tensors: &[(&str, &Tensor)],
        metadata: &[(&str, &str)],
    ) -> Result<()> {
        let path = path.as_ref();
        let given: Vec<&Tensor> = tensors.iter().map(|&(_, tensor)| tensor).collect();
        let versions = versions(self.gpu, &given, "save_model")?;
        let arrays: Vec<_> = (tensors.iter())
            .map(|(name, tensor)| SavedArray {
                name,
                dtype: tensor.dtype(),
                shape: tensor.shape(),
            })
            .collect();
        let options = self.gpu.file_options();
        let (mut writer, order) = ModelWriter::create(path, &arrays, metadata, &options)?;
        let ordered: Vec<&Tensor> = order.iter().map(|&at| given[at]).collect();
        stream("Files::save_model", &ordered, |part| writer.append(part))?;
        if let Some(changed) = changed(&given, &versions) {
            let name = printable(tensors[changed].0, 100);
            return Err(Error::Model {
                path: path.display().to_string(),
                failure: ModelFailure::Changed,
                reason: format!("{name} was written to while it was being saved"),
            });
        }
        writer.finish()
    }
}
