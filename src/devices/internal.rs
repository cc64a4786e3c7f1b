//! What lapidary's other crates use of this one beside its public interface. It may change in any
//! release: nobody else should name it.

#[cfg(doc)]
use lapidary_core::Error;

use lapidary_core::internal::{Filling, MaybeShared};
use lapidary_core::{Buffer, DType, Result};

pub use super::accumulator::Accumulator;
pub use super::buckets::Buckets;
pub use super::split::even_sizes;

use crate::grad::Gradients;
use crate::tensor::Tensor;
use crate::tensor::history::Paused;
use crate::tensor::layout::Layout;

/// A new buffer on a tensor's device, in its share, to be filled.
///
/// # Errors
/// Those of [`Gpu::buffer`](lapidary_core::Gpu::buffer).
#[track_caller]
pub fn room(like: &Tensor, size_bytes: u64) -> Result<Filling> {
    Buffer::new(&like.engine, size_bytes).map(Filling::new)
}

/// Checks whether the tensor's elements can be read, as far as one knows without waiting.
///
/// # Errors
/// [`Error::DryRunRead`] with the caller's line, and [`Error::DeviceLost`].
#[track_caller]
pub fn check_reads(tensor: &Tensor) -> Result<()> {
    tensor.engine.here().check_has_values()?;
    tensor.engine.here().check_lost()
}

/// The tensor of a buffer that has its bytes, in row-major order: as many as the shape needs.
pub fn tensor(filled: Filling, shape: &[usize], dtype: DType) -> Tensor {
    Tensor::of_buffer(&filled.end(), Layout::contiguous(shape), dtype)
}

/// As [`Tensor::on_gradient`], for a function that may take the gradient and return `None`. Then
/// the parameter gets none, and later functions are not called.
///
/// # Errors
/// Those of [`Tensor::on_gradient`].
#[track_caller]
pub fn take_gradient(
    parameter: &Tensor,
    hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + MaybeShared + 'static,
) -> Result<()> {
    parameter.take_gradient(hook)
}

/// Takes a gradient for a parameter, in the place of one that it may have.
pub fn set_gradient(gradients: &mut Gradients, parameter: &Tensor, gradient: Tensor) {
    gradients.set(parameter, gradient);
}

/// Copies values to a parameter, in place and without a record.
///
/// # Errors
/// Those of [`Tensor::copy_`].
pub fn overwrite(parameter: &Tensor, values: &Tensor) -> Result<()> {
    let _paused = Paused::new();
    parameter.copy_(values)
}
