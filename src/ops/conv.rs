//! Convolutions in one and two dimensions: the kernel, which is an implicit matrix product, and the
//! choice between it and matmul. `geometry` has the shapes, `columns` the way by matmul, `backward`
//! the gradients.

mod backward;
mod columns;
mod geometry;
mod gradient;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::long::{assemble, part};
use super::normalize::check_float;
use super::operation::same_dtype;
use super::rows::count_out;
use super::skeleton::Skeleton;
use crate::tensor::Tensor;
use lapidary_core::internal::{Kernel, Launch, Operand, Variant};
use lapidary_core::{Caps, Error, Result, adapter::AdapterKind};

pub use geometry::Conv;
use geometry::Geometry;
pub(in crate::ops) use geometry::{padded, windows};

const WGSL: &str = include_str!("../../shaders/conv.wgsl");

/// Without a bias, `w` is bound in its place and not read.
static CONV: Kernel = Kernel {
    name: "conv",
    operands: &[
        Operand::read("x"),
        Operand::read("w"),
        Operand::read("b"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// Bit of a variant's code, after rows and lanes.
const HAS_BIAS: u64 = 1 << 16;

/// Most output channels of an invocation, with broadcasts and without.
const MOST_ROWS: usize = 32;
const MOST_ALONE: usize = 8;

/// llvmpipe leaves the loops of an invocation after 65,535 iterations in all.
const MOST_ROUNDS: u64 = 60_000;

/// How the work is divided: output channels of an invocation, and lanes that broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: u8,
    lanes: u8,
}

/// `struct Params` of `shaders/conv.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    /// Samples, input channels of a group, output channels of a group, groups.
    pub(super) size: [u32; 4],
    /// Height and width of x, of y.
    pub(super) planes: [u32; 4],
    /// Height, width, stride down, stride across.
    pub(super) kernel: [u32; 4],
    /// Padding above, to the left; dilation down, across.
    pub(super) margin: [u32; 4],
    /// Strides of x.
    pub(super) x: [u32; 4],
    /// The starts of x, the weights and the bias; elements of a channel of y.
    pub(super) starts: [u32; 4],
}

impl Tensor {
    /// The convolution (cross-correlation) of `[samples, channels, length]` with `weight`, of
    /// `[out, channels / groups, kernel]`, and `bias`, of `[out]`, as in PyTorch. See
    /// [`conv2d`](Tensor::conv2d).
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Conv};
    /// # fn demo(x: &Tensor, weight: &Tensor) -> lapidary::Result<()> {
    /// let y = x.conv1d(weight, None, &Conv { padding: [1], ..Conv::default() })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`conv2d`](Tensor::conv2d).
    #[track_caller]
    pub fn conv1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv<1>,
    ) -> Result<Tensor> {
        geometry::check_rank("conv1d", "weight", weight, 3)?;
        let (x, is_batch) = geometry::as_batch(self, 3)?;
        geometry::check_rank("conv1d", "lines", &x, 3)?;
        let (x, weight) = (x.unsqueeze(-2)?, weight.unsqueeze(-2)?);
        let y = conv("conv1d", &x, &weight, bias, &options.over_rows())?.squeeze_axis(-2)?;
        match is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }

    /// The convolution (cross-correlation) of `[samples, channels, height, width]` with `weight`,
    /// of `[out, channels / groups, kernel height, kernel width]`, and `bias`, of `[out]`, as in
    /// PyTorch. The result is
    /// `[samples, out, (height + 2 · padding − dilation · (kernel − 1) − 1) / stride + 1, …]`. The
    /// input may lack the axis of samples; then the result lacks it too.
    ///
    /// All operands have one float type; sums are in f32. The input may be any view. The matrix of
    /// all patches is never stored. Convolutions that use [`matmul`](Tensor::matmul) take slabs of
    /// at most 16 MiB; all others read the input in place.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Conv};
    /// # fn demo(x: &Tensor, weight: &Tensor, bias: &Tensor) -> lapidary::Result<()> {
    /// let options = Conv { stride: [2, 2], padding: [1, 1], ..Conv::default() };
    /// let y = x.conv2d(weight, Some(bias), &options)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the shapes do not match, or if a stride, a dilation or the number of
    /// groups is 0. Also if the kernel is larger than the padded input. [`Error::DType`] for
    /// integers, bools and types that differ. [`Error::Foreign`] for tensors of another `Gpu`.
    #[track_caller]
    pub fn conv2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv<2>,
    ) -> Result<Tensor> {
        let (x, is_batch) = geometry::as_batch(self, 4)?;
        let y = conv("conv2d", &x, weight, bias, options)?;
        match is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }
}

#[track_caller]
fn conv(
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
        return gradient::conv_recorded(operation, x, weight, bias, geometry);
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
    let rounds = geometry.channels() as u64 * (1 + height as u64 * (1 + width as u64));
    // From about 64 channels on, the time for patches is less than what a taller tile saves. A
    // kernel of one pixel needs no patches.
    let by_matmul = channels >= 64 || geometry.kernel == [1, 1] && channels >= 8;
    if by_matmul || is_cpu && rounds > MOST_ROUNDS {
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

/// Runs the kernel on the whole input.
#[track_caller]
fn direct(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: &Geometry,
    tile: Tile,
) -> Result<Tensor> {
    let engine = &x.engine;
    let [height, width] = geometry.output;
    let pixels = height * width;
    let shape = geometry.result();
    let padded_pixels = pixels.next_multiple_of(4);
    let y = Tensor::output(engine, &[shape[0], shape[1], padded_pixels], x.dtype)?;
    if y.is_empty() {
        return y.reshape(&shape);
    }
    engine.pads(&y.storage, pixels, padded_pixels);
    let weight = weight.contiguous()?;
    let bias = match bias {
        Some(bias) => Some(bias.contiguous()?),
        None => None,
    };
    let second = bias.as_ref().unwrap_or(&weight);
    let starts = [x, &weight, second].map(|tensor| tensor.layout.offset as u32);
    let params = Params {
        x: geometry::strides(x),
        starts: [starts[0], starts[1], starts[2], padded_pixels as u32],
        ..geometry.params()
    };
    let has_bias = if bias.is_some() { HAS_BIAS } else { 0 };
    let code = u64::from(tile.rows) | u64::from(tile.lanes) << 8 | has_bias;
    let (threads, rows) = (tile.threads(), u64::from(tile.rows));
    let row_tiles = (geometry.out_channels / geometry.groups) as u64;
    let count = (pixels as u64).div_ceil(4 * threads)
        * row_tiles.div_ceil(rows)
        * (geometry.groups * geometry.samples) as u64;
    let groups = count_out(count, engine.caps());
    let args = [
        arg(x, false),
        arg(&weight, false),
        arg(second, false),
        arg(&y, true),
    ];
    let launch = Launch::new(&CONV, code, args, &params, groups);
    engine.launch(launch.with_work(geometry.work()))?;
    match pixels == padded_pixels {
        true => y.reshape(&shape),
        false => y.narrow(-1, 0, pixels)?.contiguous()?.reshape(&shape),
    }
}

impl Tile {
    /// Invocations of a workgroup.
    fn threads(self) -> u64 {
        match self.lanes {
            0 => 64,
            lanes => lanes.into(),
        }
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let [rows, lanes, ..] = variant.code.to_le_bytes();
    let threads = Tile { rows, lanes }.threads() as u32;
    let (rows, lanes) = (u32::from(rows), u32::from(lanes));
    let skeleton = Skeleton::new(WGSL)
        .numbers([
            ("rows", rows),
            ("lanes", lanes),
            ("threads", threads),
            ("loads", rows.div_ceil(lanes.max(1))),
        ])
        .with("has_bias", is_biased(variant.code));
    Cow::Owned(skeleton.fill())
}

/// Whether the variant adds a bias.
pub(super) fn is_biased(code: u64) -> bool {
    code & HAS_BIAS != 0
}
