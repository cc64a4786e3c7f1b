//! The text of the variant by cooperative matrices.

use std::fmt::Write;

use super::{Side, fill};
use crate::ops::matmul::form::Squares;

const COOPERATIVE: &str = include_str!("../../../../shaders/matmul/cooperative.wgsl");

/// The slack of a line in workgroup memory, in vec4s.
const SLACK_VEC4S: u32 = Squares::SLACK / 4;

/// How an operand's tile lies in workgroup memory: as in the operand, so that each vec4 is stored
/// as it is read.
struct Tile {
    side: Side,
    /// Rows of A, or columns of B, that the tile has.
    edge: u32,
    depth: u32,
    threads: u32,
}

impl Tile {
    fn line_vec4s(&self) -> u32 {
        let len = if self.side.along_k {
            self.depth
        } else {
            self.edge
        };
        len / 4 + SLACK_VEC4S
    }

    fn lines(&self) -> u32 {
        if self.side.along_k {
            self.edge
        } else {
            self.depth
        }
    }

    fn len(&self) -> u32 {
        self.lines() * self.line_vec4s()
    }

    /// Vec4s that a thread loads.
    fn loads(&self) -> u32 {
        (self.edge * self.depth / 4).div_ceil(self.threads)
    }

    /// Where each vec4 of a thread lies, in the operand and in the tile, and the first of them.
    fn prepare(&self, out: &mut String) {
        let name = self.side.name;
        let vec4s = self.line_vec4s() - SLACK_VEC4S;
        let first = if name == 'a' {
            "tile_row"
        } else {
            "tile_column"
        };
        for t in 0..self.loads() {
            let vec4 = format!("(local + {}u)", t * self.threads);
            let (line, in_line) = (format!("{vec4} / {vec4s}u"), format!("{vec4} % {vec4s}u"));
            let (edge, deep) = match self.side.along_k {
                true => (line.clone(), format!("{in_line} * 4u")),
                false => (format!("{in_line} * 4u"), line.clone()),
            };
            push!(out, "  let {name}_edge_{t} = {first} + {edge};");
            push!(out, "  let {name}_deep_{t} = {deep};");
            push!(
                out,
                "  let {name}_at_{t} = {line} * {}u + {in_line};",
                self.line_vec4s()
            );
            push!(
                out,
                "  var {name}_vec4_{t} = {name}_halves({name}_start, {name}_edge_{t}, {name}_deep_{t});"
            );
        }
    }

    fn share(&self, out: &mut String) {
        let name = self.side.name;
        for t in 0..self.loads() {
            push!(out, "    {name}_tile[{name}_at_{t}] = {name}_vec4_{t};");
        }
    }

    fn ahead(&self, out: &mut String) {
        let (name, depth) = (self.side.name, self.depth);
        for t in 0..self.loads() {
            push!(
                out,
                "      {name}_vec4_{t} = {name}_halves({name}_start, {name}_edge_{t}, k + {depth}u + {name}_deep_{t});"
            );
        }
    }

    /// The square `of` of those a subgroup reads at step `deep`, whose type is `matrix`.
    fn square(&self, of: u32, deep: u32, size: u32, matrix: &str) -> String {
        let (name, stride) = (self.side.name, self.line_vec4s());
        let own = if name == 'a' { "own_row" } else { "own_column" };
        let at = match self.side.along_k {
            true => format!("({own} + {}u) * {stride}u + {}u", of * size, deep / 4),
            false => format!("{own} / 4u + {}u", deep * stride + of * size / 4),
        };
        // A is by rows where it is contiguous along k, B where it is not.
        let by_rows = if self.side.along_k == (name == 'a') {
            "T"
        } else {
            ""
        };
        format!("coopLoad{by_rows}<{matrix}>(&{name}_tile[{at}], {stride}u)")
    }
}

/// `a_halves(base, edge, k)`: a vec4 along the dimension that is contiguous, zero past the end of
/// k. Past the edge it is the last one's, which nobody stores.
fn halves(side: Side) -> String {
    let (name, line) = (side.name, side.line());
    let last = if name == 'a' {
        "p.size.x - 1u"
    } else {
        "p.size.y - 1u"
    };
    let mut out = format!("\nfn {name}_halves(base: u32, edge: u32, k: u32) -> vec4<f16> {{\n");
    if side.along_k {
        let k = side.along("k");
        push!(out, "  let at = base + min(edge, {last}) * {line} + {k};");
        push!(
            out,
            "  if (k + 4u <= p.size.z) {{ return vec4<f16>({}); }}",
            side.vec4("at")
        );
        push!(out, "  var v = vec4<f16>();");
        let i = side.along("i");
        push!(
            out,
            "  for (var i = 0u; k + i < p.size.z; i++) {{ v[i] = f16({name}_get(at + {i})); }}"
        );
        push!(out, "  return v;");
    } else {
        push!(out, "  if (k >= p.size.z) {{ return vec4<f16>(); }}");
        push!(
            out,
            "  let at = base + min(edge, ({last}) & ~3u) + k * {line};"
        );
        side.push_over(&mut out, "at", "edge", &format!("({last})"));
        push!(
            out,
            "  return vec4<f16>({});",
            side.vec4_within("at", "at_over")
        );
    }
    out.push_str("}\n");
    out
}

/// A square's type in the text.
fn matrix(size: u32, kind: &str, role: char) -> String {
    format!("coop_mat{size}x{size}<{kind}, {role}>")
}

/// The steps of k that lie in workgroup memory: each square of A by each of B.
fn step(a_tile: &Tile, b_tile: &Tile, squares: Squares) -> String {
    let Squares {
        size, down, across, ..
    } = squares;
    let mut out = String::new();
    for deep in (0..squares.depth()).step_by(size as usize) {
        for r in 0..down {
            let square = a_tile.square(r, deep, size, &matrix(size, "f16", 'A'));
            push!(out, "    let x_{deep}_{r} = {square};");
        }
        for c in 0..across {
            let square = b_tile.square(c, deep, size, &matrix(size, "f16", 'B'));
            push!(out, "    let y_{deep}_{c} = {square};");
        }
        for (r, c) in squares.of_subgroup() {
            push!(
                out,
                "    acc_{r}_{c} = coopMultiplyAdd(x_{deep}_{r}, y_{deep}_{c}, acc_{r}_{c});"
            );
        }
    }
    out
}

/// What becomes of the sums: square after square through workgroup memory.
fn finish(squares: Squares) -> String {
    let size = squares.size;
    let mut out = String::new();
    for (r, c) in squares.of_subgroup() {
        push!(out, "  coopStoreT(acc_{r}_{c}, &squares[square], {size}u);");
        push!(out, "  workgroupBarrier();");
        push!(
            out,
            "  put(c_start, square, lane, tile_row + own_row + {}u, tile_column + own_column + {}u);",
            r * size,
            c * size
        );
        push!(out, "  workgroupBarrier();");
    }
    out
}

/// The variant whose subgroups of so many lanes multiply squares.
pub(super) fn cooperative(a: Side, b: Side, squares: Squares, lanes: u32, store: &str) -> String {
    let Squares {
        size,
        down,
        across,
        beside,
        ..
    } = squares;
    let (threads, depth) = (squares.subgroups() * lanes, squares.depth());
    let (tile_m, tile_n) = squares.tile_size();
    let tile = |side, edge| Tile {
        side,
        edge,
        depth,
        threads,
    };
    let (a_tile, b_tile) = (tile(a, tile_m), tile(b, tile_n));
    let (mut prepare, mut share, mut ahead) = (String::new(), String::new(), String::new());
    for tile in [&a_tile, &b_tile] {
        tile.prepare(&mut prepare);
        tile.share(&mut share);
        tile.ahead(&mut ahead);
    }
    for (r, c) in squares.of_subgroup() {
        push!(
            prepare,
            "  var acc_{r}_{c} = {}();",
            matrix(size, "f32", 'C')
        );
    }
    let numbers = [
        ("tile_m", tile_m),
        ("tile_n", tile_n),
        ("depth", depth),
        ("threads", threads),
        ("size", size),
        ("down", down),
        ("across", across),
        ("a_len", a_tile.len()),
        ("b_len", b_tile.len()),
        ("squares_len", squares.subgroups() * size * size),
        ("beside", beside),
        ("own_rows", down * size),
        ("own_columns", across * size),
        ("square_len", size * size),
        ("square_vec4s", size * size / 4),
        ("size_vec4s", size / 4),
        ("lanes", lanes),
    ]
    .map(|(name, number)| (name, number.to_string()));
    let (step, finish) = (step(&a_tile, &b_tile, squares), finish(squares));
    let texts = [
        ("prepare", &prepare[..]),
        ("share", &share),
        ("ahead", &ahead),
        ("step", &step),
        ("finish", &finish),
        ("store", store),
    ];
    let numbers = numbers.iter().map(|(name, number)| (*name, &number[..]));
    let all: Vec<(&str, &str)> = numbers.chain(texts).collect();
    fill(COOPERATIVE, &all) + &halves(a) + &halves(b)
}
