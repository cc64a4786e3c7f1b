//! Files that outlive the process: states of programs, and weights of models: see [`Files`].
//!
//! A state file lets a job go on later: it is atomic, and every byte is checked. A model file, with
//! the feature `model-files`, has weights of other programs, in the formats safetensors and GGUF:
//! see [`model_files`](crate::guides::model_files).

#[cfg(feature = "model-files")]
mod model;
mod state;
mod stream;

use crate::file_formats::FileOptions;
use crate::gpu::Gpu;
use crate::tensor::Tensor;

#[cfg(feature = "model-files")]
pub use crate::file_formats::MetaValue;
#[cfg(feature = "model-files")]
pub use model::{LoadProgress, Model, ModelFile, ModelTensor, WeightForm};
pub use state::State;

/// Saves tensors to state files and model files, and loads them: see [`Gpu::files`].
///
/// ```no_run
/// # fn main() -> lapidary::Result<()> {
/// # let gpu = lapidary::Gpu::open(Default::default())?;
/// # let weights = gpu.zeros(&[1000, 1000], lapidary::DType::F32)?;
/// let files = gpu.files();
/// files.save_state("job.state", &[("weights", &weights)])?;
/// let weights = files.load_state("job.state")?.get("weights")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Files<'gpu> {
    gpu: &'gpu Gpu,
}

/// Borrows named tensors as [`save_state`](Files::save_state) and `save_model` take them.
///
/// ```no_run
/// # use lapidary::{Gpu, files::by_name, optim::{AdamW, Parameters}};
/// # fn demo(gpu: &Gpu, model: &Parameters, adam: &AdamW) -> lapidary::Result<()> {
/// let state = [model.state("model"), adam.state("adam")].concat();
/// gpu.files().save_state("training.state", &by_name(&state))?;
/// # Ok(()) }
/// ```
pub fn by_name(tensors: &[(String, Tensor)]) -> Vec<(&str, &Tensor)> {
    let tensors = tensors.iter();
    tensors
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect()
}

impl Gpu {
    /// Saves tensors to files, and loads them: state files, and model files with the feature
    /// `model-files`.
    pub fn files(&self) -> Files<'_> {
        Files { gpu: self }
    }

    /// How state files and model files are read and written.
    fn file_options(&self) -> FileOptions {
        FileOptions {
            #[cfg(any(test, feature = "sim"))]
            faults: self.engine().here().file_faults(),
        }
    }
}
