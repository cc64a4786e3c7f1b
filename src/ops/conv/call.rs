//! A convolution: its checks, and the choice between the kernel and matmul.

use super::columns;
use super::geometry::{Conv, Geometry, longer};
use super::gradient::conv_recorded;
use super::kernel::{MOST_ALONE, MOST_ROWS, Tile, direct};
use crate::ops::long::{assemble, finishes, loop_tests, part};
use crate::ops::normalize::check_float;
use crate::ops::operation::same_dtype;
use crate::tensor::Tensor;
use lapidary_core::{Caps, Error, Result, adapter::AdapterKind};

/// The convolution of planes.
#[track_caller]
pub(super) fn conv(
    operation: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &Conv<2>,
) -> Result<Tensor> {
    check_float(operation, x)?;
    for other in [Some(weight), bias].into_iter().flatten() {
        x.same_engine(operation, other)?;
        same_dtype(operation, x.dtype, other.dtype)?;
    }
    let (options, more) = &options.with_numbers(operation, weight.shape())?;
    let x = &longer(x, *more)?;
    let geometry = Geometry::new(operation, &x.layout.shape, &weight.layout.shape, options)?;
    if let Some(bias) = bias.filter(|bias| bias.layout.shape[..] != [geometry.out_channels]) {
        return Err(Error::Shape {
            operation,
            reason: format!(
                "the bias has shape {:?}, not [{}]",
                &bias.layout.shape[..],
                geometry.out_channels
            ),
        });
    }
    let operands = [Some(x), Some(weight), bias];
    if operands.into_iter().flatten().any(Tensor::is_tracked) {
        return conv_recorded(operation, x, weight, bias, geometry);
    }
    match choose(x.engine.caps(), &geometry) {
        Some(tile) => in_parts(operation, x, weight, bias, options, &geometry, tile),
        None => columns::conv(x, weight, bias, &geometry),
    }
}

/// Runs the kernel. If that takes too long for one submission, takes some samples or output
/// channels at a time.
#[track_caller]
fn in_parts(
    operation: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &Conv<2>,
    geometry: &Geometry,
    tile: Tile,
) -> Result<Tensor> {
    let shape = geometry.result();
    let most_work = x.engine.caps().most_work;
    let axis = usize::from(shape[0] < 2 && geometry.groups == 1);
    let Some(step) = part(geometry.work(), most_work, shape[axis], 1) else {
        return direct(x, weight, bias, geometry, tile);
    };
    assemble(x, &shape, x.dtype, (axis, step), |start, len| match axis {
        0 => conv(operation, &x.narrow(0, start, len)?, weight, bias, options),
        _ => {
            let bias = bias.map(|bias| bias.narrow(0, start, len)).transpose()?;
            let weight = weight.narrow(0, start, len)?;
            conv(operation, x, &weight, bias.as_ref(), options)
        }
    })
}

/// The tile for this adapter. `None` if matmul is faster.
fn choose(caps: &Caps, geometry: &Geometry) -> Option<Tile> {
    let channels = geometry.out_channels / geometry.groups;
    let is_cpu = caps.kind == AdapterKind::Cpu;
    let [height, width] = geometry.kernel;
    let tests = loop_tests(&[geometry.channels(), height, width].map(|size| size as u64));
    // From about 64 channels on, the time for patches is less than what a taller tile saves. A
    // kernel of one pixel needs no patches.
    let by_matmul = channels >= 64 || geometry.kernel == [1, 1] && channels >= 8;
    if by_matmul || !finishes(caps, tests) {
        return None;
    }
    let lanes = match caps.subgroup_lanes {
        Some((least, most)) if is_cpu && least == most && matches!(least, 4 | 8 | 16 | 32) => least,
        _ => 0,
    };
    let most = if lanes == 0 { MOST_ALONE } else { MOST_ROWS };
    Some(Tile {
        rows: channels.next_power_of_two().min(most) as u8,
        lanes: lanes as u8,
    })
}
