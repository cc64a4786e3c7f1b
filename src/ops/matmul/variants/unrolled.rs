//! The text of the tile in registers: everything is unrolled, and each accumulator has a name.

use std::fmt::Write;

use super::{LANES, Side, fill, place};
use crate::ops::matmul::form::Spread;

const REGISTER: &str = include_str!("../../../../shaders/matmul/register.wgsl");

/// The variant whose tile lies in registers; `lanes` is 0 where nothing is broadcast.
pub(super) struct Unrolled {
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) rows: u32,
    pub(super) vec4s: u32,
    pub(super) lanes: u32,
    pub(super) spread: Spread,
}

impl Unrolled {
    pub(super) fn text(&self, store: &str) -> String {
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
            false => self.step_by_row_vec4s(&mut step),
        }
        self.tail(&mut tail);
        for r in 0..self.rows {
            push!(finish, "  let c_{r} = c_start + (row + {r}u) * p.rest.y;");
            for q in 0..self.vec4s {
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
                ("vec4s", &self.vec4s.to_string()),
                ("threads", &if broadcast { across } else { 64 }.to_string()),
                (
                    "lane_builtin",
                    match broadcast {
                        true => "subgroup_invocation_id",
                        false => "local_invocation_index",
                    },
                ),
                ("lanes", &across.to_string()),
                (
                    "place",
                    &place(self.spread, tile_m, across * 4 * self.vec4s),
                ),
                ("tile_n", &(across * 4 * self.vec4s).to_string()),
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
            false => self.row_vec4s() * 4,
        };
        (items.div_ceil(lanes), self.rows.div_ceil(lanes))
    }

    fn row_vec4s(&self) -> u32 {
        self.rows.div_ceil(4)
    }

    /// Where each load starts, at k = 0.
    fn prepare(&self, out: &mut String, across: u32) {
        for q in 0..self.vec4s {
            push!(out, "  let column_{q} = column + {}u;", q * across * 4);
            if self.b.along_k {
                for j in 0..4 {
                    push!(
                        out,
                        "  let b_{q}_{j} = b_start + min(column_{q} + {j}u, last_column) * b_line;"
                    );
                    if self.b.group_log2 > 0 {
                        push!(out, "  let of_{q}_{j} = scale_line(column_{q} + {j}u);");
                    }
                }
            } else {
                push!(
                    out,
                    "  let b_{q} = b_start + min(column_{q}, last_column & ~3u);"
                );
                let first = format!("column_{q}");
                self.b
                    .push_over(out, &format!("b_{q}"), &first, "last_column");
            }
        }
        let (loads, tail_rows) = self.shares();
        if self.lanes == 0 {
            for t in 0..self.rows {
                let line = if self.a.along_k { " * a_line" } else { "" };
                push!(
                    out,
                    "  let s_{t} = a_start + min(row + {t}u, last_row){line};"
                );
            }
            for t in 0..self.row_vec4s() {
                push!(
                    out,
                    "  let a_{t} = a_start + min(row + {}u, last_row & ~3u);",
                    t * 4
                );
                let first = format!("row + {}u", t * 4);
                self.a.push_over(out, &format!("a_{t}"), &first, "last_row");
            }
        } else {
            let (lanes, rows) = (self.lanes, self.rows);
            let line = if self.a.along_k { " * a_line" } else { "" };
            for t in 0..tail_rows {
                push!(
                    out,
                    "  let s_{t} = a_start + min(row + (lane + {}u) % {rows}u, last_row){line};",
                    t * lanes
                );
            }
            let vec4s = self.row_vec4s();
            for t in 0..if self.a.along_k { 0 } else { loads } {
                push!(
                    out,
                    "  let i_{t} = (lane + {}u) % {}u;",
                    t * lanes,
                    vec4s * 4
                );
                push!(
                    out,
                    "  let a_{t} = a_start + min(row + i_{t} % {vec4s}u * 4u, last_row & ~3u) \
                     + i_{t} / {vec4s}u * a_line;"
                );
                let first = format!("row + i_{t} % {vec4s}u * 4u");
                self.a.push_over(out, &format!("a_{t}"), &first, "last_row");
            }
        }
        for r in 0..self.rows {
            for q in 0..self.vec4s {
                push!(out, "  var acc_{r}_{q} = vec4<f32>();");
            }
        }
    }

    /// `y_q_kk`: the vec4 of columns `q` at step `kk`.
    fn load_b(&self, out: &mut String) {
        for q in 0..self.vec4s {
            if self.b.along_k {
                for j in 0..4 {
                    let vec4 = self.b.vec4(&format!("b_{q}_{j} + {}", self.b.along("k")));
                    let vec4 = self.b.scaled(vec4, &format!("of_{q}_{j}"), "k");
                    push!(out, "    let w_{q}_{j} = {vec4};");
                }
                for (kk, lane) in LANES.iter().enumerate() {
                    push!(
                        out,
                        "    let y_{q}_{kk} = vec4(w_{q}_0.{lane}, w_{q}_1.{lane}, w_{q}_2.{lane}, \
                         w_{q}_3.{lane});"
                    );
                }
            } else {
                for kk in 0..4 {
                    let at = format!("b_{q} + (k + {kk}u) * b_line");
                    let vec4 = self.b.vec4_within(&at, &format!("b_{q}_over"));
                    push!(out, "    let y_{q}_{kk} = {vec4};");
                }
            }
        }
    }

    /// A contiguous along k: a vec4 is a row's four steps.
    fn step_by_rows(&self, out: &mut String) {
        if self.lanes > 0 {
            for t in 0..self.shares().0 {
                let vec4 = self.a.vec4(&format!("s_{t} + {}", self.a.along("k")));
                push!(out, "    let g_{t} = {vec4};");
            }
        }
        for r in 0..self.rows {
            let value = match self.lanes {
                0 => self.a.vec4(&format!("s_{r} + {}", self.a.along("k"))),
                lanes => format!("subgroupBroadcast(g_{}, {}u)", r / lanes, r % lanes),
            };
            push!(out, "    let x_{r} = {value};");
            let values = LANES.map(|lane| format!("x_{r}.{lane}"));
            self.four_steps(out, r, &values);
        }
    }

    /// A contiguous along its rows: a vec4 is four rows at one step.
    fn step_by_row_vec4s(&self, out: &mut String) {
        let vec4s = self.row_vec4s();
        if self.lanes > 0 {
            for t in 0..self.shares().0 {
                let at = format!("a_{t} + k * a_line");
                let vec4 = self.a.vec4_within(&at, &format!("a_{t}_over"));
                push!(out, "    let g_{t} = {vec4};");
            }
        }
        for vec4 in 0..vec4s {
            for kk in 0..4 {
                let item = kk * vec4s + vec4;
                let value = match self.lanes {
                    0 => {
                        let at = format!("a_{vec4} + (k + {kk}u) * a_line");
                        self.a.vec4_within(&at, &format!("a_{vec4}_over"))
                    }
                    lanes => format!("subgroupBroadcast(g_{}, {}u)", item / lanes, item % lanes),
                };
                push!(out, "    let x_{vec4}_{kk} = {value};");
            }
            for (i, lane) in (0..self.rows.min(4)).zip(LANES) {
                let r = vec4 * 4 + i;
                let values = [0, 1, 2, 3].map(|kk| format!("x_{vec4}_{kk}.{lane}"));
                self.four_steps(out, r, &values);
            }
        }
    }

    /// Four steps of k of a row, whose values of A are given. Software adapters have no fused
    /// multiplication and addition, and add up four products in half the steps as a tree.
    fn four_steps(&self, out: &mut String, r: u32, x: &[String; 4]) {
        for q in 0..self.vec4s {
            if self.lanes > 0 {
                push!(
                    out,
                    "    acc_{r}_{q} += ({} * y_{q}_0 + {} * y_{q}_1) + ({} * y_{q}_2 + {} * y_{q}_3);",
                    x[0],
                    x[1],
                    x[2],
                    x[3]
                );
                continue;
            }
            for (kk, value) in x.iter().enumerate() {
                push!(
                    out,
                    "    acc_{r}_{q} = fma(vec4({value}), y_{q}_{kk}, acc_{r}_{q});"
                );
            }
        }
    }

    /// One step of k at a time, by single elements of A.
    fn tail(&self, out: &mut String) {
        for q in 0..self.vec4s {
            let value = match self.b.along_k {
                true => {
                    let k = self.b.along("k");
                    let get = |j| {
                        let element = format!("b_get(b_{q}_{j} + {k})");
                        self.b.scaled(element, &format!("of_{q}_{j}"), "k")
                    };
                    format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
                }
                false => {
                    let at = format!("b_{q} + k * b_line");
                    self.b.vec4_within(&at, &format!("b_{q}_over"))
                }
            };
            push!(out, "    let y_{q} = {value};");
        }
        let k = match self.a.along_k {
            true => self.a.along("k"),
            false => "k * a_line".to_string(),
        };
        if self.lanes > 0 {
            for t in 0..self.shares().1 {
                push!(out, "    let g_{t} = a_get(s_{t} + {k});");
            }
        }
        for r in 0..self.rows {
            let value = match self.lanes {
                0 => format!("a_get(s_{r} + {k})"),
                lanes => format!("subgroupBroadcast(g_{}, {}u)", r / lanes, r % lanes),
            };
            push!(out, "    let x_{r} = vec4({value});");
            for q in 0..self.vec4s {
                push!(out, "    acc_{r}_{q} = fma(x_{r}, y_{q}, acc_{r}_{q});");
            }
        }
    }
}
