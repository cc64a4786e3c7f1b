//! The text of each variant of matmul, from the skeletons in `shaders/matmul/`.
//!
//! The skeletons hold what a reader wants to see: tiles, loops, barriers. What is written here is
//! what differs by the operands' orientation and what must be unrolled, since an accumulator that
//! is an indexed array would live in memory.
//!
//! An operand's *edge* is its dimension along C (rows of A, columns of B), its *line* the stride of
//! whichever dimension is not contiguous. Names in the text: `x` values of A, `y` values of B,
//! `acc` the accumulators.

use std::borrow::Cow;
use std::fmt::Write;

use super::form::{Form, Order, Tile};
use crate::engine::Variant;

const SHARED: &str = include_str!("../../../shaders/matmul/shared.wgsl");
const NAIVE: &str = include_str!("../../../shaders/matmul/naive.wgsl");
const REGISTER: &str = include_str!("../../../shaders/matmul/register.wgsl");
const TILE: &str = include_str!("../../../shaders/matmul/tile.wgsl");
const SKINNY: &str = include_str!("../../../shaders/matmul/skinny.wgsl");

/// One of the two operands, as the text sees it.
#[derive(Clone, Copy)]
struct Side {
    /// `a` or `b`.
    name: char,
    /// Contiguous along k; else along its edge.
    along_k: bool,
    /// Its quads are aligned.
    quads: bool,
    /// Contiguous along nothing: it is walked along k all the same, in steps.
    stepped: bool,
}

impl Side {
    /// The four elements from `at` on, along the dimension that is contiguous (or stepped).
    fn quad(self, at: &str) -> String {
        if self.quads {
            return format!("{}_get4({at})", self.name);
        }
        let get = |i| format!("{}_get({at} + {})", self.name, self.along(&format!("{i}u")));
        format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
    }

    /// How far `steps` lie along that dimension.
    fn along(self, steps: &str) -> String {
        match (self.stepped, self.name) {
            (false, _) => steps.to_string(),
            (true, 'a') => format!("{steps} * p.strides.y"),
            (true, _) => format!("{steps} * p.strides.z"),
        }
    }

    /// The stride between the lines.
    fn line(self) -> &'static str {
        match (self.name, self.along_k) {
            ('a', true) => "p.strides.x",
            ('a', false) => "p.strides.y",
            (_, true) => "p.strides.w",
            (_, false) => "p.strides.z",
        }
    }
}

/// The text of a variant.
pub(super) fn text(variant: &Variant) -> Cow<'static, str> {
    let form = Form::unpack(variant.code);
    let a = Side {
        name: 'a',
        along_k: form.a != Order::AlongEdge,
        quads: variant.quads & 1 == 1,
        stepped: form.a == Order::Stepped,
    };
    let b = Side {
        name: 'b',
        along_k: form.b != Order::AlongEdge,
        quads: variant.quads >> 1 & 1 == 1,
        stepped: form.b == Order::Stepped,
    };
    let store = store(variant.quads >> 2 & 1 == 1);
    let text = match form.tile {
        Tile::Naive => fill(NAIVE, &[("kind", variant.dtypes[0].wgsl())]),
        Tile::Register { rows, quads, lanes } => Unrolled {
            a,
            b,
            rows: u32::from(rows),
            quads: u32::from(quads),
            lanes: u32::from(lanes),
        }
        .text(store),
        Tile::Workgroup { rows } => workgroup(a, b, u32::from(rows), store),
        Tile::Skinny { rows } => skinny(a, b, u32::from(rows), store),
    };
    Cow::Owned(format!("{SHARED}\n{text}"))
}

/// Puts values in the place of `${name}`.
fn fill(skeleton: &str, values: &[(&str, &str)]) -> String {
    let mut text = skeleton.to_string();
    for (name, value) in values {
        text = text.replace(&format!("${{{name}}}"), value.trim_end());
    }
    debug_assert!(!text.contains("${"), "a placeholder is left:\n{text}");
    text
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

macro_rules! push {
    ($out:expr, $($text:tt)*) => { line(&mut $out, format_args!($($text)*)) };
}

/// Stores a quad of C, whole if rows of C are made of quads.
fn store(quads: bool) -> &'static str {
    match quads {
        true => "c_put4(at + column, v);",
        false => {
            "let i = at + column; c_put(i, v.x); \
             if (column + 1u < p.size.y) { c_put(i + 1u, v.y); } \
             if (column + 2u < p.size.y) { c_put(i + 2u, v.z); } \
             if (column + 3u < p.size.y) { c_put(i + 3u, v.w); }"
        }
    }
}

/// The components of a quad.
const LANES: [char; 4] = ['x', 'y', 'z', 'w'];

/// The variant whose tile lies in registers; `lanes` is 0 where nothing is broadcast.
struct Unrolled {
    a: Side,
    b: Side,
    rows: u32,
    quads: u32,
    lanes: u32,
}

impl Unrolled {
    fn text(&self, store: &str) -> String {
        let broadcast = self.lanes > 0;
        let across = if broadcast { self.lanes } else { 8 };
        let tile_m = if broadcast { self.rows } else { self.rows * 8 };
        let row = format!("(local / 8u) * {}u", self.rows);
        let mut prepare = String::new();
        self.prepare(&mut prepare, across);
        let (mut step, mut tail, mut finish) = (String::new(), String::new(), String::new());
        self.load_b(&mut step);
        match self.a.along_k {
            true => self.step_by_rows(&mut step),
            false => self.step_by_row_quads(&mut step),
        }
        self.tail(&mut tail);
        for r in 0..self.rows {
            push!(finish, "  let c_{r} = c_start + (row + {r}u) * p.rest.y;");
            for q in 0..self.quads {
                push!(
                    finish,
                    "  store(c_{r}, row + {r}u, column_{q}, acc_{r}_{q});"
                );
            }
        }
        fill(
            REGISTER,
            &[
                ("rows", &self.rows.to_string()),
                ("quads", &self.quads.to_string()),
                ("threads", &if broadcast { across } else { 64 }.to_string()),
                (
                    "lane_builtin",
                    match broadcast {
                        true => "subgroup_invocation_id",
                        false => "local_invocation_index",
                    },
                ),
                ("lanes", &across.to_string()),
                ("tile_n", &(across * 4 * self.quads).to_string()),
                ("tile_m", &tile_m.to_string()),
                ("row_of_thread", if broadcast { "0u" } else { &row }),
                (
                    "leave_early",
                    match broadcast {
                        true => "",
                        false => "if (row >= p.size.x || column >= p.size.y) { return; }",
                    },
                ),
                ("a_line", self.a.line()),
                ("b_line", self.b.line()),
                ("prepare", &prepare),
                ("step", &step),
                ("tail", &tail),
                ("finish", &finish),
                ("store", store),
            ],
        )
    }

    /// Loads of A by one lane in a step of four k, and rows of A that one lane loads in the tail.
    fn shares(&self) -> (u32, u32) {
        let lanes = self.lanes.max(1);
        let items = match self.a.along_k {
            true => self.rows,
            false => self.row_quads() * 4,
        };
        (items.div_ceil(lanes), self.rows.div_ceil(lanes))
    }

    fn row_quads(&self) -> u32 {
        self.rows.div_ceil(4)
    }

    /// Where each load starts, at k = 0.
    fn prepare(&self, out: &mut String, across: u32) {
        for q in 0..self.quads {
            push!(*out, "  let column_{q} = column + {}u;", q * across * 4);
            if self.b.along_k {
                for j in 0..4 {
                    push!(
                        *out,
                        "  let b_{q}_{j} = b_start + min(column_{q} + {j}u, last_column) * b_line;"
                    );
                }
            } else {
                push!(
                    *out,
                    "  let b_{q} = b_start + min(column_{q}, last_column & ~3u);"
                );
            }
        }
        let (loads, tail_rows) = self.shares();
        if self.lanes == 0 {
            for t in 0..self.rows {
                let line = if self.a.along_k { " * a_line" } else { "" };
                push!(
                    *out,
                    "  let s_{t} = a_start + min(row + {t}u, last_row){line};"
                );
            }
            for t in 0..self.row_quads() {
                push!(
                    *out,
                    "  let a_{t} = a_start + min(row + {}u, last_row & ~3u);",
                    t * 4
                );
            }
        } else {
            let (lanes, rows) = (self.lanes, self.rows);
            let line = if self.a.along_k { " * a_line" } else { "" };
            for t in 0..tail_rows {
                push!(
                    *out,
                    "  let s_{t} = a_start + min(row + (lane + {}u) % {rows}u, last_row){line};",
                    t * lanes
                );
            }
            let quads = self.row_quads();
            for t in 0..if self.a.along_k { 0 } else { loads } {
                push!(
                    *out,
                    "  let i_{t} = (lane + {}u) % {}u;",
                    t * lanes,
                    quads * 4
                );
                push!(
                    *out,
                    "  let a_{t} = a_start + min(row + i_{t} % {quads}u * 4u, last_row & ~3u) \
                     + i_{t} / {quads}u * a_line;"
                );
            }
        }
        for r in 0..self.rows {
            for q in 0..self.quads {
                push!(*out, "  var acc_{r}_{q} = vec4<f32>();");
            }
        }
    }

    /// `y_q_kk`: the quad of columns `q` at step `kk`.
    fn load_b(&self, out: &mut String) {
        for q in 0..self.quads {
            if self.b.along_k {
                for j in 0..4 {
                    let quad = self.b.quad(&format!("b_{q}_{j} + {}", self.b.along("k")));
                    push!(*out, "    let w_{q}_{j} = {quad};");
                }
                for (kk, lane) in LANES.iter().enumerate() {
                    push!(
                        *out,
                        "    let y_{q}_{kk} = vec4(w_{q}_0.{lane}, w_{q}_1.{lane}, w_{q}_2.{lane}, \
                         w_{q}_3.{lane});"
                    );
                }
            } else {
                for kk in 0..4 {
                    let quad = self.b.quad(&format!("b_{q} + (k + {kk}u) * b_line"));
                    push!(*out, "    let y_{q}_{kk} = {quad};");
                }
            }
        }
    }

    /// A contiguous along k: a quad is a row's four steps.
    fn step_by_rows(&self, out: &mut String) {
        if self.lanes > 0 {
            for t in 0..self.shares().0 {
                let quad = self.a.quad(&format!("s_{t} + {}", self.a.along("k")));
                push!(*out, "    let g_{t} = {quad};");
            }
        }
        for r in 0..self.rows {
            let value = match self.lanes {
                0 => self.a.quad(&format!("s_{r} + {}", self.a.along("k"))),
                lanes => format!("subgroupBroadcast(g_{}, {}u)", r / lanes, r % lanes),
            };
            push!(*out, "    let x_{r} = {value};");
            for q in 0..self.quads {
                for (kk, lane) in LANES.iter().enumerate() {
                    push!(
                        *out,
                        "    acc_{r}_{q} = fma(vec4(x_{r}.{lane}), y_{q}_{kk}, acc_{r}_{q});"
                    );
                }
            }
        }
    }

    /// A contiguous along its rows: a quad is four rows at one step.
    fn step_by_row_quads(&self, out: &mut String) {
        let quads = self.row_quads();
        if self.lanes > 0 {
            for t in 0..self.shares().0 {
                let quad = self.a.quad(&format!("a_{t} + k * a_line"));
                push!(*out, "    let g_{t} = {quad};");
            }
        }
        for quad in 0..quads {
            for kk in 0..4 {
                let item = kk * quads + quad;
                let value = match self.lanes {
                    0 => self.a.quad(&format!("a_{quad} + (k + {kk}u) * a_line")),
                    lanes => format!("subgroupBroadcast(g_{}, {}u)", item / lanes, item % lanes),
                };
                push!(*out, "    let x_{quad}_{kk} = {value};");
            }
            for (i, lane) in (0..self.rows.min(4)).zip(LANES) {
                let r = quad * 4 + i;
                for q in 0..self.quads {
                    for kk in 0..4 {
                        push!(
                            *out,
                            "    acc_{r}_{q} = fma(vec4(x_{quad}_{kk}.{lane}), y_{q}_{kk}, \
                             acc_{r}_{q});"
                        );
                    }
                }
            }
        }
    }

    /// One step of k at a time, by single elements of A.
    fn tail(&self, out: &mut String) {
        for q in 0..self.quads {
            let value = match self.b.along_k {
                true => {
                    let k = self.b.along("k");
                    let get = |j| format!("b_get(b_{q}_{j} + {k})");
                    format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
                }
                false => self.b.quad(&format!("b_{q} + k * b_line")),
            };
            push!(*out, "    let y_{q} = {value};");
        }
        let k = match self.a.along_k {
            true => self.a.along("k"),
            false => "k * a_line".to_string(),
        };
        if self.lanes > 0 {
            for t in 0..self.shares().1 {
                push!(*out, "    let g_{t} = a_get(s_{t} + {k});");
            }
        }
        for r in 0..self.rows {
            let value = match self.lanes {
                0 => format!("a_get(s_{r} + {k})"),
                lanes => format!("subgroupBroadcast(g_{}, {}u)", r / lanes, r % lanes),
            };
            push!(*out, "    let x_{r} = vec4({value});");
            for q in 0..self.quads {
                push!(*out, "    acc_{r}_{q} = fma(x_{r}, y_{q}, acc_{r}_{q});");
            }
        }
    }
}

/// `x_block(base, edge, k)`: a quad of the edge for each of four steps of k, zero past the end.
fn block(side: Side) -> String {
    let (name, line) = (side.name, side.line());
    let last = if name == 'a' { "p.size.x" } else { "p.size.y" };
    let (k, i) = (side.along("k"), side.along("i"));
    let mut out = format!(
        "\nfn {name}_block(base: u32, edge: u32, k: u32) -> mat4x4<f32> {{\n  let line = {line};\n"
    );
    let lines: Vec<String> = (0..4).map(|i| side.quad(&format!("at_{i}"))).collect();
    let whole = format!(
        "mat4x4<f32>(\n      {},\n      {},\n      {},\n      {}\n    )",
        lines[0], lines[1], lines[2], lines[3]
    );
    let (body, rest) = if side.along_k {
        for j in 0..4 {
            push!(
                out,
                "  let at_{j} = base + min(edge + {j}u, {last} - 1u) * line + {k};"
            );
        }
        let get: Vec<String> = (0..4)
            .map(|j| format!("{name}_get(at_{j} + {i})"))
            .collect();
        (
            format!("transpose({whole})"),
            format!("vec4({})", get.join(", ")),
        )
    } else {
        push!(
            out,
            "  let at_0 = base + min(edge, ({last} - 1u) & ~3u) + k * line;"
        );
        for i in 1..4 {
            push!(out, "  let at_{i} = at_{} + line;", i - 1);
        }
        (whole, side.quad("(at_0 + i * line)"))
    };
    push!(
        out,
        "  if (k + 4u <= p.size.z) {{\n    return {body};\n  }}"
    );
    push!(out, "  var v = mat4x4<f32>();");
    push!(
        out,
        "  for (var i = 0u; k + i < p.size.z; i++) {{ v[i] = {rest}; }}"
    );
    out.push_str("  return v;\n}\n");
    out
}

/// The variant whose tile lies in workgroup memory, with `rows` by `rows` elements of C a thread.
fn workgroup(a: Side, b: Side, rows: u32, store: &str) -> String {
    let (tile, depth) = (rows * 16, if rows == 8 { 16 } else { 32 });
    let (edge_quads, halves) = (tile / 4, rows / 4);
    let (mut prepare, mut step, mut finish) = (String::new(), String::new(), String::new());
    for h in 0..halves {
        let at = h * 16;
        push!(
            step,
            "      let x_{h} = a_tile[line + ((x_quad + {at}u) ^ swap)];"
        );
        push!(
            step,
            "      let y_{h} = b_tile[line + ((y_quad + {at}u) ^ swap)];"
        );
    }
    for r in 0..rows {
        let (h, lane) = (r / 4, LANES[r as usize % 4]);
        push!(
            finish,
            "  let row_{r} = tile_row + x_quad * 4u + {}u;",
            h * 64 + r % 4
        );
        push!(finish, "  let c_{r} = c_start + row_{r} * p.rest.y;");
        for q in 0..halves {
            push!(prepare, "  var acc_{r}_{q} = vec4<f32>();");
            push!(
                step,
                "      acc_{r}_{q} = fma(vec4(x_{h}.{lane}), y_{q}, acc_{r}_{q});"
            );
            push!(
                finish,
                "  store(c_{r}, row_{r}, tile_column + y_quad * 4u + {}u, acc_{r}_{q});",
                q * 64
            );
        }
    }
    let place = |side: Side| match side.along_k {
        true => (
            format!("block / {}u", depth / 4),
            format!("block % {}u", depth / 4),
        ),
        false => (
            format!("block % {edge_quads}u"),
            format!("block / {edge_quads}u"),
        ),
    };
    let ((a_edge, a_deep), (b_edge, b_deep)) = (place(a), place(b));
    let text = fill(
        TILE,
        &[
            ("tile", &tile.to_string()),
            ("depth", &depth.to_string()),
            ("rows", &rows.to_string()),
            ("tile_quads", &(edge_quads * depth).to_string()),
            ("edge_quads", &edge_quads.to_string()),
            ("a_edge", &a_edge),
            ("a_deep", &a_deep),
            ("b_edge", &b_edge),
            ("b_deep", &b_deep),
            ("prepare", &prepare),
            ("step", &step),
            ("finish", &finish),
            ("store", store),
        ],
    );
    text + &block(a) + &block(b)
}

/// The variant for few rows on a GPU.
fn skinny(a: Side, b: Side, rows: u32, store: &str) -> String {
    // Neighbours along k where B is contiguous along k, else along the columns.
    let (across, part, place, part_step) = match b.along_k {
        true => (4, "local % 64u", "local / 64u", 1),
        false => (16, "local / 16u", "local % 16u", 16),
    };
    let (mut prepare, mut step, mut finish) = (String::new(), String::new(), String::new());
    for r in 0..rows {
        push!(prepare, "  var acc_{r} = vec4<f32>();");
        push!(step, "    acc_{r} += y * a_run(a_start, row + {r}u, k);");
        push!(finish, "  let sum_{r} = total(acc_{r}, local, part);");
        push!(
            finish,
            "  if (part == 0u) {{ store(c_start + (row + {r}u) * p.rest.y, row + {r}u, column, \
             sum_{r}); }}"
        );
    }
    let run = match a.along_k && !a.stepped {
        true => a.quad("at"),
        false => "vec4(a_get(at), a_get(at + p.strides.y), a_get(at + 2u * p.strides.y), \
                  a_get(at + 3u * p.strides.y))"
            .to_string(),
    };
    let text = fill(
        SKINNY,
        &[
            ("rows", &rows.to_string()),
            ("across", &across.to_string()),
            ("part", part),
            ("place", place),
            ("parts", &(256 / across).to_string()),
            ("part_step", &part_step.to_string()),
            ("prepare", &prepare),
            ("step", &step),
            ("finish", &finish),
            ("a_run", &run),
            ("store", store),
        ],
    );
    text + &block(b)
}
