//! The texts of the tiles, each from its skeleton.

use super::place;
use super::side::{Side, Sides};
use crate::ops::matmul::form::{Spread, Squares};
use crate::ops::skeleton::Skeleton;
use lapidary_core::internal::sections::section_for;

const REGISTER: &str = include_str!("../../../../shaders/matmul/register.wgsl");
const SPLIT: &str = include_str!("../../../../shaders/matmul/split.wgsl");
const WORKGROUP: &str = include_str!("../../../../shaders/matmul/tile.wgsl");
const SKINNY: &str = include_str!("../../../../shaders/matmul/skinny.wgsl");
const PACK: &str = include_str!("../../../../shaders/matmul/pack.wgsl");
const PACKED: &str = include_str!("../../../../shaders/matmul/packed.wgsl");
const BLOCK: &str = include_str!("../../../../shaders/matmul/block.wgsl");
const COOPERATIVE: &str = include_str!("../../../../shaders/matmul/cooperative.wgsl");
const COOPERATIVE_SIDE: &str = include_str!("../../../../shaders/matmul/cooperative_side.wgsl");

/// A tile in registers. Without lanes, each of 8 by 8 invocations of a workgroup owns one.
pub(super) fn register(
    sides: Sides,
    [rows, vec4s, lanes]: [u32; 3],
    spread: Spread,
    store: &str,
) -> String {
    let (across, down) = if lanes > 0 { (lanes, 1) } else { (8, 8) };
    let (tile_m, tile_n) = (rows * down, across * 4 * vec4s);
    let row_vec4s = rows.div_ceil(4);
    let skeleton = Skeleton::new(REGISTER)
        .numbers([
            ("rows", rows),
            ("vec4s", vec4s),
            ("lanes", lanes),
            ("across", across),
            ("threads", across * down),
            ("tile_m", tile_m),
            ("tile_n", tile_n),
            ("row_vec4s", row_vec4s),
            ("rows_of_vec4", rows.min(4)),
            ("shares_of_rows", rows.div_ceil(lanes.max(1))),
            ("shares_of_vec4s", (row_vec4s * 4).div_ceil(lanes.max(1))),
        ])
        .with("place", place(spread, tile_m, tile_n))
        .with(
            "leave_early",
            match lanes {
                0 => "if (row >= p.size.x || column >= p.size.y) { return; }",
                _ => "",
            },
        )
        .with("store", store);
    sides.fill(skeleton)
}

/// A tile whose lanes split k.
pub(super) fn split(
    sides: Sides,
    [rows, columns, lanes]: [u32; 3],
    vec8s: bool,
    spread: Spread,
    store: &str,
) -> String {
    // Eight steps always lie in one group, so they share one factor.
    let depth = if sides.b.along_k { 8 } else { 4 };
    let skeleton = Skeleton::new(SPLIT)
        .numbers([
            ("rows", rows),
            ("columns", columns),
            ("lanes", lanes),
            ("depth", depth),
        ])
        .with("vec8s", vec8s)
        .with("place", place(spread, rows, columns))
        .with("store", store);
    sides.fill(skeleton)
}

/// A tile from packed operands.
pub(super) fn packed(
    sides: Sides,
    [rows, vec4s, lanes]: [u32; 3],
    spread: Spread,
    store: &str,
) -> String {
    let width = lanes * 4;
    let skeleton = Skeleton::new(PACKED)
        .numbers([
            ("rows", rows),
            ("vec4s", vec4s),
            ("lanes", lanes),
            ("width", width),
        ])
        .with("place", place(spread, rows, width * vec4s))
        .with("store", store);
    sides.fill(skeleton)
}

/// The kernel that packs an operand. `is_whole` says that k is a multiple of four.
pub(super) fn pack(side: Side, lanes: u32, is_whole: bool) -> String {
    let rest = if is_whole { Rest::Nothing } else { Rest::Loop };
    let skeleton = Skeleton::new(PACK).numbers([("lanes", lanes), ("width", lanes * 4)]);
    skeleton.fill() + &block(side, rest)
}

/// A tile in workgroup memory.
pub(super) fn workgroup(sides: Sides, rows: u32, store: &str) -> String {
    let depth = if rows == 8 { 16 } else { 32 };
    let edge_vec4s = rows * 4;
    // Neighbouring threads load neighbouring vec4s.
    let place = |side: Side| match (side.along_k, depth / 4) {
        (true, along) => [format!("block / {along}u"), format!("block % {along}u")],
        (false, _) => [
            format!("block % {edge_vec4s}u"),
            format!("block / {edge_vec4s}u"),
        ],
    };
    let ([a_edge, a_deep], [b_edge, b_deep]) = (place(sides.a), place(sides.b));
    let skeleton = Skeleton::new(WORKGROUP)
        .numbers([
            ("tile", rows * 16),
            ("depth", depth),
            ("rows", rows),
            ("edge_vec4s", edge_vec4s),
        ])
        .with("a_edge", a_edge)
        .with("a_deep", a_deep)
        .with("b_edge", b_edge)
        .with("b_deep", b_deep)
        .with("store", store);
    sides.fill(skeleton) + &block(sides.a, Rest::Branches) + &block(sides.b, Rest::Branches)
}

/// Few rows on a GPU. Neighbouring threads lie along k if B is contiguous along k, else along the
/// columns.
pub(super) fn skinny(sides: Sides, rows: u32, store: &str) -> String {
    let (across, part_step) = if sides.b.along_k { (4, 1) } else { (16, 16) };
    let skeleton = Skeleton::new(SKINNY)
        .numbers([("rows", rows), ("across", across), ("part_step", part_step)])
        .with("a_stepped", sides.a.stepped)
        .with("store", store);
    sides.fill(skeleton) + &block(sides.b, Rest::Branches)
}

/// How steps of k past the last whole vec4 are read.
#[derive(Clone, Copy)]
enum Rest {
    /// There are none.
    Nothing,
    /// One by one. The last step is read first and shifted on, because FXC rejects a matrix row
    /// that is written by a running index.
    Loop,
    /// Each in a branch of its own.
    Branches,
}

/// The function that reads four lines and four steps of k of an operand.
fn block(side: Side, rest: Rest) -> String {
    let last = if side.name == 'a' {
        "p.size.x"
    } else {
        "p.size.y"
    };
    let skeleton = Skeleton::new(section_for(BLOCK, "block", ""))
        .numbers([("rest", rest as u32)])
        .with("last", last)
        .with("body", side.whole_block());
    side.fill(skeleton)
}

/// A tile by cooperative matrices.
pub(super) fn cooperative(sides: Sides, squares: Squares, lanes: u32, store: &str) -> String {
    let Squares {
        size,
        down,
        across,
        beside,
        ..
    } = squares;
    let (threads, depth) = (squares.subgroups() * lanes, squares.depth());
    let (tile_m, tile_n) = squares.tile_size();
    // Lines in workgroup memory lie along k where the operand does.
    let tile = |side: Side, edge: u32| match side.along_k {
        true => (edge, depth / 4),
        false => (depth, edge / 4),
    };
    let stride = |line_vec4s: u32| line_vec4s + Squares::SLACK / 4;
    let part = |side: Side, edge: u32, section: &str| {
        let (_, line_vec4s) = tile(side, edge);
        let is_a = side.name == 'a';
        let skeleton = Skeleton::new(section_for(COOPERATIVE_SIDE, section, ""))
            .numbers([
                ("loads", (edge * depth / 4).div_ceil(threads)),
                ("threads", threads),
                ("depth", depth),
                ("line_vec4s", line_vec4s),
                ("stride", stride(line_vec4s)),
            ])
            .with("tile_start", if is_a { "tile_row" } else { "tile_column" })
            .with(
                "last",
                if is_a {
                    "p.size.x - 1u"
                } else {
                    "p.size.y - 1u"
                },
            );
        side.fill(skeleton)
    };
    let both = |section: &str| {
        let (of_a, of_b) = (
            part(sides.a, tile_m, section),
            part(sides.b, tile_n, section),
        );
        format!("{}\n{of_b}", of_a.trim_end())
    };
    let ((a_lines, a_vec4s), (b_lines, b_vec4s)) = (tile(sides.a, tile_m), tile(sides.b, tile_n));
    let skeleton = Skeleton::new(COOPERATIVE)
        .numbers([
            ("tile_m", tile_m),
            ("tile_n", tile_n),
            ("depth", depth),
            ("threads", threads),
            ("size", size),
            ("down", down),
            ("across", across),
            ("beside", beside),
            ("subgroups", squares.subgroups()),
            ("lanes", lanes),
            ("a_stride", stride(a_vec4s)),
            ("b_stride", stride(b_vec4s)),
            ("a_len", a_lines * stride(a_vec4s)),
            ("b_len", b_lines * stride(b_vec4s)),
        ])
        .with("prepare", both("prepare"))
        .with("share", both("share"))
        .with("ahead", both("ahead"))
        .with("store", store);
    sides.fill(skeleton) + &both("halves")
}
