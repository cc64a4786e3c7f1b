//! The kernel of convolutions, an implicit matrix product.

use std::borrow::Cow;

use super::geometry::{Geometry, Params, strides};
#[cfg(any(test, feature = "sim"))]
use super::reference;
use crate::ops::elementwise::arg;
use crate::ops::rows::count_out;
use crate::ops::skeleton::Skeleton;
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::{BuiltInKernel, Launch, Operand, Variant};

const WGSL: &str = include_str!("../../../shaders/conv.wgsl");

/// Without a bias, `w` is bound in its place and not read.
pub(super) static CONV: BuiltInKernel = BuiltInKernel {
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
pub(super) const HAS_BIAS: u64 = 1 << 16;

/// Most output channels of an invocation, with broadcasts and without.
pub(super) const MOST_ROWS: usize = 32;
pub(super) const MOST_ALONE: usize = 8;

/// How the work is divided: output channels of an invocation, and lanes that broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: u8,
    pub(super) lanes: u8,
}

/// Runs the kernel on the whole input.
#[track_caller]
pub(super) fn direct(
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
    engine.here().pads(&y.storage.here(), pixels, padded_pixels);
    let weight = weight.contiguous()?;
    let bias = match bias {
        Some(bias) => Some(bias.contiguous()?),
        None => None,
    };
    let second = bias.as_ref().unwrap_or(&weight);
    let starts = [x, &weight, second].map(|tensor| tensor.layout.offset as u32);
    let params = Params {
        x: strides(x),
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
