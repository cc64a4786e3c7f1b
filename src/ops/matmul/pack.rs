//! Products of operands that are packed first: copies in which a subgroup's loads lie side by side,
//! start at quads and have whole steps of k, whatever the operands look like.

use std::sync::Arc;

use super::form::{Form, Order, Packing, Tile};
use super::problem::{Problem, Side};
use super::{MATMUL, choice, text};
use crate::dtype::DType;
use crate::engine::{Arg, Kernel, Launch, Operand};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static PACK: Kernel = Kernel {
    name: "matmul_pack",
    operands: &[Operand::read("a"), Operand::write("c")],
    text: text::pack,
    #[cfg(any(test, feature = "sim"))]
    twin: crate::ops::twin::matmul::pack,
};

/// Elements of a packed operand with an edge of `edge`, for subgroups of `lanes`.
pub(super) fn packed_len(problem: &Problem, side: &Side, edge: u32, lanes: u8) -> u64 {
    u64::from(steps(problem, edge, lanes))
        * u64::from(lanes)
        * 16
        * u64::from(problem.matrices_of(side))
}

/// Steps of four k of all panels of a matrix.
fn steps(problem: &Problem, edge: u32, lanes: u8) -> u32 {
    edge.div_ceil(u32::from(lanes) * 4) * problem.k.div_ceil(4)
}

/// Appends what packs both operands, and their product; rows of `c` are `c_row` elements apart.
pub(super) fn launch(
    [a, b]: [&Tensor; 2],
    c: &Tensor,
    problem: &Problem,
    tile: Tile,
    c_row: u32,
) -> Result<()> {
    let Tile::Packed { lanes, .. } = tile else {
        unreachable!("{tile:?} is not for packed operands");
    };
    let a = pack(a, problem, &problem.a, problem.m, lanes)?;
    let b = pack(b, problem, &problem.b, problem.n, lanes)?;
    let form = Form {
        tile,
        a: Order::AlongK,
        b: Order::AlongK,
    };
    let args = [
        arg(&a, true),
        arg(&b, true),
        arg(c, c_row.is_multiple_of(4)),
    ];
    let sizes = [problem.m, problem.n].map(|edge| steps(problem, edge, lanes));
    let groups = choice::groups(c.engine.caps(), form, problem);
    let params = problem.packed(c_row, sizes);
    c.engine
        .launch(Launch::new(&MATMUL, form.pack(), args, &params, groups))
}

/// The packed copy of an operand, in single precision.
fn pack(operand: &Tensor, problem: &Problem, side: &Side, edge: u32, lanes: u8) -> Result<Tensor> {
    let len = packed_len(problem, side, edge, lanes);
    let packed = Tensor::output(&operand.engine, &[len as usize], DType::F32)?;
    let args = [arg(operand, side.is_quads()), arg(&packed, true)];
    let code = Packing::pack(side.order(), lanes);
    let groups = choice::spread((len / 16).div_ceil(64), operand.engine.caps());
    let params = problem.packing(side, edge);
    operand
        .engine
        .launch(Launch::new(&PACK, code, args, &params, groups))?;
    Ok(packed)
}

fn arg(tensor: &Tensor, quads: bool) -> Arg {
    Arg {
        storage: Arc::clone(&tensor.storage),
        dtype: tensor.dtype,
        quads,
    }
}
