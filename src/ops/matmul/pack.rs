//! Products of packed operands. In the copies, a subgroup's loads are contiguous, start at vec4s
//! and cover whole steps of k.

use super::form::{End, Form, Order, Packing, Spread, Tile};
use super::output::Output;
use super::problem::{Problem, Side};
use super::{choice, variants};
use crate::ops::elementwise::arg;
use crate::tensor::Tensor;
use lapidary_core::internal::{BuiltInKernel, Launch, Operand};
use lapidary_core::{DType, Result};

pub(super) static PACK: BuiltInKernel = BuiltInKernel {
    name: "matmul_pack",
    operands: &[Operand::read("a"), Operand::write("c")],
    text: variants::pack,
    reference: reference!(crate::ops::matmul::reference::pack),
};

/// Elements of a packed operand with an edge of `edge`, for subgroups of `lanes`.
pub(super) fn packed_len(problem: &Problem, side: &Side, edge: u32, lanes: u8) -> u64 {
    u64::from(steps(problem, edge, lanes))
        * u64::from(lanes)
        * 16
        * u64::from(problem.matrices_of(side))
}

/// The number of four-step units of k in all panels of a matrix.
fn steps(problem: &Problem, edge: u32, lanes: u8) -> u32 {
    edge.div_ceil(u32::from(lanes) * 4) * problem.k.div_ceil(4)
}

/// Appends the commands that pack both operands, and their product.
#[track_caller]
pub(super) fn launch(
    [a, b]: [&Tensor; 2],
    problem: &Problem,
    tile: Tile,
    output: &Output<'_>,
) -> Result<()> {
    let Tile::Packed { lanes, .. } = tile else {
        unreachable!("{tile:?} is not for packed operands");
    };
    let a = pack(a, problem, &problem.a, (problem.m, DType::F32), lanes)?;
    // A packed copy of weights keeps their type.
    let b = pack(b, problem, &problem.b, (problem.n, b.dtype), lanes)?;
    let caps = a.engine.caps();
    let form = Form {
        tile,
        a: Order::AlongK,
        b: Order::AlongK,
        group_log2: 0,
        spread: choice::spread_of(caps, tile, problem),
        end: End::default(),
    };
    let sizes = [problem.m, problem.n].map(|edge| steps(problem, edge, lanes));
    let params = problem.packed(output.c_row, sizes);
    let groups = choice::groups(caps, form, problem);
    output.command([arg(&a, true), arg(&b, true)], form, params, groups)
}

/// The workgroups that pack a side: a grid of steps, panels and matrices.
pub(super) fn grid(problem: &Problem, side: &Side, edge: u32, lanes: u8) -> [u32; 3] {
    let lanes = u32::from(lanes);
    [
        problem.k.div_ceil(4).div_ceil(64 / lanes),
        edge.div_ceil(lanes * 4),
        problem.matrices_of(side),
    ]
}

/// The packed copy of an operand, as elements of another type.
#[track_caller]
fn pack(
    operand: &Tensor,
    problem: &Problem,
    side: &Side,
    (edge, dtype): (u32, DType),
    lanes: u8,
) -> Result<Tensor> {
    let len = packed_len(problem, side, edge, lanes);
    let packed = Tensor::output(&operand.engine, &[len as usize], dtype)?;
    let args = [arg(operand, side.is_vec4_aligned()), arg(&packed, true)];
    let packing = Packing {
        order: side.order(),
        lanes,
        spread: match problem.matrices_of(side) {
            1 => Spread::Single,
            _ => problem.spread(),
        },
        whole_k: problem.k.is_multiple_of(4),
    };
    let groups = grid(problem, side, edge, lanes);
    let params = problem.packing(side, edge);
    operand
        .engine
        .launch(Launch::new(&PACK, packing.pack(), args, &params, groups))?;
    Ok(packed)
}
