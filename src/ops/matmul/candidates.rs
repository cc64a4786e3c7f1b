//! Which tiles tuning tries for a product, beside the rule's.

use std::fmt;

use super::choice::{self, DTypes, SKINNY_ROWS};
use super::epilogue::Epilogue;
use super::form::{Order, Tile};
use super::pack::packed_len;
use super::problem::{Problem, Side};
use super::right::Right;
use crate::ops::trial::{Call, bucket};
use crate::tensor::Tensor;
use lapidary_core::{Caps, DType, adapter::AdapterKind};

/// Least multiplications for which a better variant saves more than a launch costs.
const LEAST_WORK: u64 = 64 * 64 * 64;

/// Most multiplications of a trial on a software adapter: they take a good part of a second.
const MOST_WORK_ON_CPU: u64 = 2048 * 2048 * 2048;

/// Most multiplications of a trial on a GPU.
const MOST_WORK: u64 = MOST_WORK_ON_CPU * 256;

/// What decides which tile is fastest.
#[derive(Hash)]
struct Key {
    dtypes: [DType; 2],
    sizes: [u64; 4],
    orders: [Order; 2],
    vec4s: [bool; 2],
    /// Elements that share a scale; 1 without scales.
    group: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n, k, matrices] = self.sizes;
        let [a, b] = self.dtypes;
        write!(f, "{a} by {b}, {m} x {n} x {k} of {matrices}")?;
        for ((name, order), vec4s) in ["a", "b"].into_iter().zip(self.orders).zip(self.vec4s) {
            let order = match order {
                Order::AlongK => "along k",
                Order::AlongEdge => "along the edge",
                Order::Stepped => "stepped",
            };
            let ragged = if vec4s { "" } else { " off the vec4s" };
            write!(f, ", {name} {order}{ragged}")?;
        }
        if self.group > 1 {
            write!(f, ", a scale for {}", self.group)?;
        }
        Ok(())
    }
}

/// The tile for a product of two tensors into a third. `rule` is the rule's choice.
pub(super) fn tuned(
    a: &Tensor,
    right: Right<'_>,
    c: &Tensor,
    problem: &Problem,
    rule: Tile,
) -> Tile {
    let b = right.tensor;
    let engine = &a.engine;
    let caps = engine.caps();
    let most_work = match caps.kind {
        AdapterKind::Cpu => MOST_WORK_ON_CPU,
        _ => MOST_WORK,
    };
    let is_worth_it = (LEAST_WORK..=most_work).contains(&problem.work());
    if engine.here().tuning().is_none() || rule == Tile::Naive || !is_worth_it {
        return rule;
    }
    let room_bytes = engine.here().slab_limit_bytes();
    let mut tiles = vec![rule];
    let dtypes = right.dtypes(a.dtype, c.dtype);
    for tile in others(caps, dtypes, problem, rule, room_bytes) {
        if !tiles.contains(&tile) {
            tiles.push(tile);
        }
    }
    let sizes = [problem.m, problem.n, problem.k, problem.matrices];
    let scales = right.groups.map(|groups| groups.scales);
    let operands: Vec<&Tensor> = [a, b].into_iter().chain(scales).collect();
    let call = Call {
        family: "matmul",
        problem: Key {
            dtypes: [a.dtype, b.dtype],
            sizes: sizes.map(|size| bucket(size.into())),
            orders: [problem.a.order(), problem.b.order()],
            vec4s: [problem.a.is_vec4_aligned(), problem.b.is_vec4_aligned()],
            group: 1 << right.group_log2(),
        },
        operands: &operands,
        scratch_bytes: scratch_bytes(caps, problem, c),
    };
    let tile_of = |tile| a.matmul_by(right, &Epilogue::new(), Some(tile));
    call.choose(&tiles, tile_of)
}

/// The tiles that may be tried on this adapter beside the rule's.
fn others(
    caps: &Caps,
    dtypes: DTypes,
    problem: &Problem,
    rule: Tile,
    room_bytes: u64,
) -> Vec<Tile> {
    let lanes = choice::lanes(caps);
    let register = |rows: u8, vec4s: u8, lanes: u8| Tile::Register { rows, vec4s, lanes };
    // A tile less than half full is not worth its compilation.
    let fits = |rows: u32| problem.m == 1 && rows == 1 || problem.m > 1 && rows < 2 * problem.m;
    let is_wide = problem.n > u32::from(lanes.unwrap_or(8)) * 4;
    let vec4s: &[u8] = if is_wide { &[1, 2] } else { &[1] };
    let mut tiles = Vec::new();
    if caps.kind == AdapterKind::Cpu {
        // A software adapter compiles slowly, so only tiles near the rule's are tried.
        let (near, most) = match (rule, lanes) {
            (Tile::Register { rows, .. }, None) => (rows, 16),
            (Tile::Register { rows, .. }, _) => (rows, 32),
            (Tile::Split { rows, .. }, _) => (rows, 8),
            _ => (32, 32),
        };
        let near = near / 2..=most.min(near.saturating_mul(2));
        let rows = [32, 16, 8, 4, 1].into_iter();
        for rows in rows.filter(|rows| near.contains(rows) && fits((*rows).into())) {
            let tile = |&vec4s: &u8| register(rows, vec4s, lanes.unwrap_or(0));
            tiles.extend(vec4s.iter().map(tile));
        }
        tiles.extend(choice::split(caps, problem));
        let packed = choice::packed(caps, problem, room_bytes);
        tiles.extend(packed.filter(|_| problem.m.min(problem.n) >= 16));
        tiles.retain(|&tile| choice::compiles_soon(caps, tile));
        return tiles;
    }
    let one = register(if problem.m == 1 { 1 } else { 4 }, 1, 0);
    tiles.push(one);
    if fits(8) {
        tiles.push(register(8, 1, 0));
        let lanes = lanes.into_iter();
        tiles.extend(lanes.map(|lanes| register(8, 1, lanes)));
    }
    if choice::has_workgroup_tiles(caps) {
        if problem.m <= SKINNY_ROWS {
            tiles.push(choice::skinny(caps, problem.m));
        } else {
            tiles.extend([4, 8].map(|rows| Tile::Workgroup { rows }));
        }
    }
    let cooperative = |large| choice::cooperative(caps, dtypes, problem, large);
    tiles.extend([false, true].into_iter().filter_map(cooperative));
    tiles.retain(|&tile| choice::compiles_soon(caps, tile));
    tiles
}

/// Scratch memory of a product: a result in f32 that may be padded, and packed operands.
fn scratch_bytes(caps: &Caps, problem: &Problem, c: &Tensor) -> u64 {
    let lanes = choice::lanes(caps).unwrap_or(0);
    let packed = |side: &Side, edge| packed_len(problem, side, edge, lanes).saturating_mul(4);
    let packed = match caps.kind == AdapterKind::Cpu && lanes > 0 {
        true => packed(&problem.a, problem.m).saturating_add(packed(&problem.b, problem.n)),
        false => 0,
    };
    let c_bytes = u64::from(problem.rows()) * u64::from(problem.n.next_multiple_of(4)) * 4;
    c_bytes
        .saturating_add(c.storage.size_bytes())
        .saturating_add(packed)
}
