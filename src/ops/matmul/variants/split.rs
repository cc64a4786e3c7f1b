//! The text of the variant whose lanes split k: everything is unrolled, and each accumulator has a
//! name.

use std::fmt::Write;

use super::{LANES, Side, fill, place};
use crate::ops::matmul::form::Spread;

const SPLIT: &str = include_str!("../../../../shaders/matmul/split.wgsl");

/// The variant for few rows of C.
pub(super) struct Split {
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) rows: u32,
    /// A multiple of four.
    pub(super) columns: u32,
    pub(super) lanes: u32,
    /// B is read eight elements at a time; `columns` is a multiple of
    /// eight, or B contiguous along k.
    pub(super) vec8s: bool,
    pub(super) spread: Spread,
}

impl Split {
    pub(super) fn text(&self, store: &str) -> String {
        let depth = self.depth();
        let (mut prepare, mut step) = (String::new(), String::new());
        self.prepare(&mut prepare);
        self.load_a(&mut step);
        match self.b.along_k {
            true => self.step_by_columns(&mut step),
            false => self.step_by_column_vec4s(&mut step),
        }
        let (mut sums, mut finish) = (String::new(), String::new());
        for (r, q) in self.vec4s() {
            push!(sums, "  let sum_{r}_{q} = subgroupAdd({});", self.sum(r, q));
            push!(
                finish,
                "    store(c_start + (row + {r}u) * p.rest.y, row + {r}u, column + {}u, sum_{r}_{q});",
                q * 4
            );
        }
        fill(
            SPLIT,
            &[
                ("rows", &self.rows.to_string()),
                ("columns", &self.columns.to_string()),
                ("lanes", &self.lanes.to_string()),
                ("place", &place(self.spread, self.rows, self.columns)),
                ("a_line", self.a.line()),
                ("b_line", self.b.line()),
                ("depth", &depth.to_string()),
                ("stride", &(depth * self.lanes).to_string()),
                ("prepare", &prepare),
                ("step", &step),
                ("tail", &self.tail()),
                ("sums", &sums),
                ("finish", &finish),
                ("store", store),
            ],
        )
    }

    /// Steps of k that a lane takes at a time.
    fn depth(&self) -> u32 {
        if self.b.along_k { 8 } else { 4 }
    }

    /// Every vec4 of the tile: its row, and its place among those of the row.
    fn vec4s(&self) -> impl Iterator<Item = (u32, u32)> {
        let across = self.columns / 4;
        (0..self.rows).flat_map(move |r| (0..across).map(move |q| (r, q)))
    }

    /// Where each load starts, at k = 0, and the accumulators: of vec4s of columns, or of a column
    /// each, whose lanes are then steps of k.
    fn prepare(&self, out: &mut String) {
        for r in 0..self.rows {
            let line = if self.a.along_k { " * a_line" } else { "" };
            push!(
                out,
                "  let a_{r} = a_start + min(row + {r}u, last_row){line};"
            );
        }
        let accumulators = if self.b.along_k {
            for j in 0..self.columns {
                push!(
                    out,
                    "  let b_{j} = b_start + min(column + {j}u, last_column) * b_line;"
                );
                if self.b.group_log2 > 0 {
                    push!(out, "  let of_{j} = scale_line(column + {j}u);");
                }
            }
            self.columns
        } else {
            for q in 0..self.columns / 4 {
                let end = if self.vec8s && q % 2 == 0 { 7 } else { 3 };
                push!(
                    out,
                    "  let b_{q} = b_start + min(column + {}u, last_column & ~{end}u);",
                    q * 4
                );
                let first = format!("column + {}u", q * 4);
                self.b
                    .push_over(out, &format!("b_{q}"), &first, "last_column");
            }
            self.columns / 4
        };
        for r in 0..self.rows {
            for i in 0..accumulators {
                push!(out, "  var acc_{r}_{i} = vec4<f32>();");
            }
        }
    }

    /// `x_r_h`: four steps of k of a row of A, the first or the second half of a lane's.
    fn load_a(&self, out: &mut String) {
        for r in 0..self.rows {
            for h in 0..self.depth() / 4 {
                let k = format!("(k + {}u)", h * 4);
                let value = if self.a.along_k {
                    self.a.vec4(&format!("a_{r} + {}", self.a.along(&k)))
                } else {
                    let get = |i| format!("a_get(a_{r} + (k + {}u) * a_line)", h * 4 + i);
                    format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
                };
                push!(out, "    let x_{r}_{h} = {value};");
            }
        }
    }

    /// B contiguous along k: a vec4 is a column's four steps.
    fn step_by_columns(&self, out: &mut String) {
        for j in 0..self.columns {
            let at = |h| format!("b_{j} + {}", self.b.along(&format!("(k + {}u)", h * 4)));
            self.load_b(
                out,
                None,
                [0, 1].map(|h| format!("y_{j}_{h}")),
                [0, 1].map(at),
            );
            for r in 0..self.rows {
                let product = format!("(x_{r}_0 * y_{j}_0 + x_{r}_1 * y_{j}_1)");
                // Eight steps lie in one group.
                let product = self.b.scaled(product, &format!("of_{j}"), "k");
                push!(out, "    acc_{r}_{j} += {product};");
            }
        }
    }

    /// B contiguous along its columns: a vec4 is four columns at one step.
    fn step_by_column_vec4s(&self, out: &mut String) {
        let across = self.columns / 4;
        for kk in 0..4 {
            let at = |q| format!("b_{q} + (k + {kk}u) * b_line");
            for q in (0..across).step_by(2) {
                let (names, places) = (
                    [q, q + 1].map(|q| format!("y_{q}_{kk}")),
                    [q, q + 1].map(at),
                );
                if q + 1 < across {
                    self.load_b(out, Some(q), names, places);
                } else {
                    let vec4 = self.b.vec4_within(&places[0], &format!("b_{q}_over"));
                    push!(out, "    let {} = {vec4};", names[0]);
                }
            }
        }
        for (r, q) in self.vec4s() {
            push!(
                out,
                "    acc_{r}_{q} += (x_{r}_0.x * y_{q}_0 + x_{r}_0.y * y_{q}_1) \
                 + (x_{r}_0.z * y_{q}_2 + x_{r}_0.w * y_{q}_3);"
            );
        }
    }

    /// Two vec4s of B, in one go if they are a vec8: of columns from vec4 `q` on, or of steps.
    fn load_b(&self, out: &mut String, q: Option<u32>, names: [String; 2], places: [String; 2]) {
        let [first, second] = names;
        if self.vec8s {
            push!(out, "    let both_{first} = b_get8({});", places[0]);
            push!(out, "    let {first} = both_{first}[0];");
            push!(out, "    let {second} = both_{first}[1];");
            return;
        }
        let vec4 = |at: &str, beside: u32| match q {
            Some(q) => self.b.vec4_within(at, &format!("b_{}_over", q + beside)),
            None => self.b.vec4(at),
        };
        let [first_vec4, second_vec4] = [vec4(&places[0], 0), vec4(&places[1], 1)];
        push!(out, "    let {first} = {first_vec4};");
        push!(out, "    let {second} = {second_vec4};");
    }

    /// One step of k at a time.
    fn tail(&self) -> String {
        let mut out = String::new();
        for r in 0..self.rows {
            let k = match self.a.along_k {
                true => self.a.along("k"),
                false => "k * a_line".to_string(),
            };
            push!(out, "    let x_{r} = a_get(a_{r} + {k});");
        }
        if self.b.along_k {
            for j in 0..self.columns {
                let k = self.b.along("k");
                let element = format!("b_get(b_{j} + {k})");
                let element = self.b.scaled(element, &format!("of_{j}"), "k");
                push!(out, "    let y_{j} = {element};");
                for r in 0..self.rows {
                    push!(out, "    acc_{r}_{j}.x += x_{r} * y_{j};");
                }
            }
            return out;
        }
        for q in 0..self.columns / 4 {
            let at = format!("b_{q} + k * b_line");
            let vec4 = self.b.vec4_within(&at, &format!("b_{q}_over"));
            push!(out, "    let y_{q} = {vec4};");
            for r in 0..self.rows {
                push!(out, "    acc_{r}_{q} += x_{r} * y_{q};");
            }
        }
        out
    }

    /// What a lane has of a vec4 of C.
    fn sum(&self, r: u32, q: u32) -> String {
        if !self.b.along_k {
            return format!("acc_{r}_{q}");
        }
        let column = |j: u32| {
            let [x, y, z, w] = LANES.map(|lane| format!("acc_{r}_{}.{lane}", q * 4 + j));
            format!("({x} + {y}) + ({z} + {w})")
        };
        let columns = [0, 1, 2, 3].map(column);
        format!("vec4({})", columns.join(", "))
    }
}
