//! A tensor over several devices, and together again.

use std::sync::Arc;

use lapidary_core::{Error, Result};

use crate::gpu::Gpu;
use crate::tensor::Tensor;
use crate::tensor::layout::axis;

/// Parts of a tensor along `axis`, one on each device, in their order. The sizes differ by at most
/// one; the first are the larger ones. There may be parts of size 0.
///
/// A part on the tensor's own device is a view. Others are copied through the host.
///
/// ```no_run
/// # fn demo(batch: &lapidary::Tensor, gpus: &[lapidary::Gpu]) -> lapidary::Result<()> {
/// let parts = lapidary::devices::split(batch, 0, gpus)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Axis`] if there is no such axis. [`Error::Option`] for no devices. [`Error::Device`]
/// names the device where something failed; else as [`Tensor::to`].
#[track_caller]
pub fn split(tensor: &Tensor, axis: isize, gpus: &[Gpu]) -> Result<Vec<Tensor>> {
    check_any(gpus)?;
    let at = self::axis("split", axis, tensor.rank())?;
    let sizes = even_sizes(tensor.shape()[at], gpus.len());
    split_sizes(tensor, axis, gpus, &sizes)
}

/// As [`split`], with the size of each part: see [`rows_by_speed`](super::rows_by_speed).
///
/// ```no_run
/// # fn demo(batch: &lapidary::Tensor, gpus: &[lapidary::Gpu]) -> lapidary::Result<()> {
/// // The first of two devices is three times as fast.
/// let rows = lapidary::devices::rows_by_speed(64, &[3.0, 1.0])?;
/// assert_eq!(rows, [48, 16]);
/// let parts = lapidary::devices::split_sizes(batch, 0, gpus, &rows)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`split`], and [`Error::Shape`] unless there is a size for each device and the sizes add up.
#[track_caller]
pub fn split_sizes(
    tensor: &Tensor,
    axis: isize,
    gpus: &[Gpu],
    sizes: &[usize],
) -> Result<Vec<Tensor>> {
    check_any(gpus)?;
    if sizes.len() != gpus.len() {
        return Err(Error::Shape {
            operation: "split_sizes",
            reason: format!("{} sizes for {} devices", sizes.len(), gpus.len()),
        });
    }
    let parts = tensor.split_sizes(sizes, axis)?;
    let mut there = Vec::with_capacity(gpus.len());
    for (index, (part, gpu)) in parts.iter().zip(gpus).enumerate() {
        match part.to(gpu) {
            Ok(part) => there.push(part),
            Err(error) => return Err(named(index, gpus.len(), gpu, error)),
        }
    }
    Ok(there)
}

/// Tensors of any devices, put together along `axis` on one device.
///
/// ```no_run
/// # fn demo(parts: &[lapidary::Tensor], gpu: &lapidary::Gpu) -> lapidary::Result<()> {
/// let whole = lapidary::devices::gather(parts, 0, gpu)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Device`] names the tensor's device if a copy failed; else as [`Tensor::concat`].
#[track_caller]
pub fn gather(tensors: &[Tensor], axis: isize, gpu: &Gpu) -> Result<Tensor> {
    let mut here = Vec::with_capacity(tensors.len());
    for (index, tensor) in tensors.iter().enumerate() {
        match tensor.to(gpu) {
            Ok(tensor) => here.push(tensor),
            Err(error) => {
                return Err(Error::Device {
                    index,
                    count: tensors.len(),
                    name: tensor.engine.caps().name.clone(),
                    cause: Arc::new(error),
                });
            }
        }
    }
    Tensor::concat(&here.iter().collect::<Vec<_>>(), axis)
}

/// `len` as a sum of `count` sizes that differ by at most one.
pub fn even_sizes(len: usize, count: usize) -> Vec<usize> {
    let (least, more) = (len / count, len % count);
    (0..count)
        .map(|index| least + usize::from(index < more))
        .collect()
}

fn check_any(gpus: &[Gpu]) -> Result<()> {
    match gpus {
        [_, ..] => Ok(()),
        [] => Err(Error::Option {
            option: "gpus",
            reason: "the list is empty, and a tensor needs a device".into(),
        }),
    }
}

fn named(index: usize, count: usize, gpu: &Gpu, cause: Error) -> Error {
    Error::Device {
        index,
        count,
        name: gpu.caps().name.clone(),
        cause: Arc::new(cause),
    }
}
