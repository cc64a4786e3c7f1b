//! The text of each variant of attention, from the skeletons in `shaders/attention/`.
//!
//! What is written here is what must be unrolled, since an accumulator that is an indexed array
//! would live in memory. Names in the text: `q` and `x` queries by rows and by elements, `s` scores
//! of a key, `w` weights, `o` columns of the result, `g` a lane's share of what it broadcasts.

use std::borrow::Cow;
use std::fmt::Write;

use super::form::{Form, Mask, Tile, VEC4S_OF_A_LOOP};
use crate::ops::functions::push_functions;
use lapidary_core::internal::Variant;
use lapidary_core::internal::sections::fill;

const SHARED: &str = include_str!("../../../shaders/attention/shared.wgsl");
const REGISTER: &str = include_str!("../../../shaders/attention/register.wgsl");
const WORKGROUP: &str = include_str!("../../../shaders/attention/workgroup.wgsl");

/// The components of a vec4.
const LANES: [char; 4] = ['x', 'y', 'z', 'w'];

/// Adds a line to a text; writing to a `String` cannot fail.
macro_rules! push {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

/// The text of a variant.
pub(super) fn text(variant: &Variant) -> Cow<'static, str> {
    let form = Form::unpack(variant.code);
    let body = match form.tile {
        Tile::Register { lanes, width } => Register {
            form,
            lanes: lanes.into(),
            width: width.into(),
        }
        .text(),
        Tile::Workgroup => workgroup(form),
    };
    let mut out = format!("{SHARED}\n{body}");
    push_functions(&mut out);
    Cow::Owned(out)
}

/// The keys that a tile of rows sees.
fn seen(form: Form) -> String {
    match form.is_causal {
        true => format!("min(p.size.y, p.rest.z + first_row + {}u)", form.rows()),
        false => "p.size.y".into(),
    }
}

/// The scores `s_0…` of `keys` keys from `key` on, by rows `row…`: scaled, masked, and −∞ for keys
/// that are not there or come later than the row.
fn mask(out: &mut String, form: Form, width: u32, keys: u32) {
    let vector = vector(width);
    for t in 0..keys {
        push!(out, "    s_{t} *= scale;");
    }
    if form.mask.is_given {
        for vec4 in 0..keys / 4 {
            mask_vec4(out, form.mask, width, vec4);
        }
    }
    push!(out, "    if (key + {keys}u > p.size.y) {{");
    for t in 0..keys {
        push!(
            out,
            "      s_{t} = select({vector}(below), s_{t}, key + {t}u <= last_key);"
        );
    }
    push!(out, "    }}");
    if form.is_causal {
        let own = match width {
            1 => "row".to_string(),
            2 => "vec2(row, row + 1u)".into(),
            _ => "vec4(row, row + 1u, row + 2u, row + 3u)".into(),
        };
        let bits = bits(width);
        push!(
            out,
            "    if (key + {}u > p.rest.z + first_row) {{",
            keys - 1
        );
        push!(out, "      let own = p.rest.z + {own};");
        for t in 0..keys {
            push!(
                out,
                "      s_{t} = select({vector}(below), s_{t}, {bits}(key + {t}u) <= own);"
            );
        }
        push!(out, "    }}");
    }
}

/// Masks four keys.
fn mask_vec4(out: &mut String, mask: Mask, width: u32, vec4: u32) {
    let vector = vector(width);
    let rows = if mask.one_row { 1 } else { width };
    push!(out, "    {{");
    for r in 0..rows {
        let start = match mask.one_row {
            true => "m_start".to_string(),
            false => format!("m_start + min(row + {r}u, last_row) * p.m.w"),
        };
        let first = vec4 * 4;
        if mask.vec4s {
            push!(
                out,
                "      let m_{r} = m_get4({start} + min(key + {first}u, last_key & ~3u));"
            );
        } else {
            let get = |t| {
                format!(
                    "m_get(at_{r} + min(key + {}u, last_key) * p.rest.x)",
                    first + t
                )
            };
            push!(out, "      let at_{r} = {start};");
            push!(
                out,
                "      let m_{r} = vec4({}, {}, {}, {});",
                get(0),
                get(1),
                get(2),
                get(3)
            );
        }
    }
    for (i, lane) in LANES.iter().enumerate() {
        let t = vec4 as usize * 4 + i;
        let of_rows: Vec<String> = (0..rows).map(|r| format!("m_{r}.{lane}")).collect();
        let value = match (width, mask.one_row) {
            (1, _) => of_rows[0].clone(),
            (width, true) => format!("vec{width}({})", of_rows[0]),
            (width, false) => format!("vec{width}({})", of_rows.join(", ")),
        };
        match mask.is_bool {
            true => {
                let zero = format!("{}()", bits(width));
                push!(
                    out,
                    "      s_{t} = select({vector}(below), s_{t}, {value} != {zero});"
                );
            }
            false => {
                push!(out, "      s_{t} += {value};");
            }
        }
    }
    push!(out, "    }}");
}

fn vector(width: u32) -> &'static str {
    match width {
        1 => "f32",
        2 => "vec2<f32>",
        _ => "vec4<f32>",
    }
}

fn bits(width: u32) -> &'static str {
    match width {
        1 => "u32",
        2 => "vec2<u32>",
        _ => "vec4<u32>",
    }
}

/// The variant in registers.
struct Register {
    form: Form,
    /// 0 where nothing is broadcast.
    lanes: u32,
    /// Rows of queries an invocation.
    width: u32,
}

impl Register {
    fn text(&self) -> String {
        let (form, vector) = (self.form, vector(self.width));
        let mut masked = String::new();
        mask(&mut masked, form, self.width, form.keys());
        let lane_builtin = match self.lanes {
            0 => "local_invocation_index",
            _ => "subgroup_invocation_id",
        };
        fill(
            REGISTER,
            &[
                ("keys", &form.keys().to_string()),
                ("width", &self.width.to_string()),
                ("threads", &form.threads().to_string()),
                ("lane_builtin", lane_builtin),
                ("places", &(form.keys() * form.threads()).to_string()),
                ("rows", &form.rows().to_string()),
                ("columns", &form.columns().to_string()),
                ("seen", &seen(form)),
                ("vector", vector),
                ("bits", bits(self.width)),
                ("prepare", &self.prepare()),
                ("tile_starts", &self.tile_starts()),
                ("scores", &self.scores()),
                ("mask", &masked),
                ("softmax", &self.softmax()),
                ("values", &self.values()),
                ("finish", &self.finish()),
            ],
        )
    }

    fn vec4s(&self) -> u32 {
        self.form.vec4s.into()
    }

    /// The vec4s of a row of the result, as many at a time as one loop takes.
    fn loops(&self) -> impl Iterator<Item = (u32, u32)> {
        let vec4s = self.vec4s();
        (0..vec4s)
            .step_by(VEC4S_OF_A_LOOP as usize)
            .map(move |first| (first, VEC4S_OF_A_LOOP.min(vec4s - first)))
    }

    fn prepare(&self) -> String {
        let mut out = String::new();
        for r in 0..self.width {
            push!(
                out,
                "  let q_at_{r} = q_start + min(row + {r}u, last_row) * p.q.w;"
            );
        }
        for e in 0..4 * self.vec4s() {
            push!(out, "  var o_{e} = {}();", vector(self.width));
        }
        out
    }

    /// Where a tile's keys start, and its scores.
    fn tile_starts(&self) -> String {
        let mut out = String::new();
        for i in 0..self.key_loads() {
            let own = match self.lanes {
                0 => format!("{i}u"),
                lanes => format!("{}u + lane", i * lanes),
            };
            push!(
                out,
                "    let k_at_{i} = k_start + min(key + {own}, last_key) * p.k.w;"
            );
        }
        for t in 0..self.form.keys() {
            push!(out, "    var s_{t} = {}();", vector(self.width));
        }
        out
    }

    /// Keys that an invocation loads.
    fn key_loads(&self) -> u32 {
        self.form.keys() / self.lanes.max(1)
    }

    /// Four elements of the head: each score is touched four times in a row.
    fn scores(&self) -> String {
        let mut out = String::new();
        for r in 0..self.width {
            push!(out, "      let q_{r} = q_get4(q_at_{r} + d);");
        }
        for lane in LANES {
            let rows: Vec<String> = (0..self.width).map(|r| format!("q_{r}.{lane}")).collect();
            let rows = rows.join(", ");
            push!(out, "      let x_{lane} = {}({rows});", vector(self.width));
        }
        for i in 0..self.key_loads() {
            push!(out, "      let g_{i} = k_get4(k_at_{i} + d);");
        }
        for t in 0..self.form.keys() {
            let value = match self.lanes {
                0 => format!("g_{t}"),
                lanes => format!("subgroupBroadcast(g_{}, {}u)", t / lanes, t % lanes),
            };
            push!(out, "      let b_{t} = {value};");
            for lane in LANES {
                let splat = self.splat(&format!("b_{t}.{lane}"));
                push!(out, "      s_{t} = fma(x_{lane}, {splat}, s_{t});");
            }
        }
        out
    }

    fn splat(&self, value: &str) -> String {
        match self.width {
            1 => value.to_string(),
            width => format!("vec{width}({value})"),
        }
    }

    fn softmax(&self) -> String {
        let mut out = String::new();
        push!(out, "    var peak = highest;");
        for t in 0..self.form.keys() {
            push!(out, "    peak = max(peak, s_{t});");
        }
        push!(out, "    let shrink = exp_kept(highest - peak);");
        push!(out, "    highest = peak;\n    sum *= shrink;");
        for e in 0..4 * self.vec4s() {
            push!(out, "    o_{e} *= shrink;");
        }
        for t in 0..self.form.keys() {
            push!(out, "    s_{t} = exp_kept(s_{t} - peak);");
            let at = self.weight(&t.to_string());
            push!(out, "    sum += s_{t};\n    weights[{at}] = s_{t};");
        }
        out
    }

    /// The weighted sum of the values, four keys at a time: each column of the result is touched
    /// four times in a row.
    fn values(&self) -> String {
        let mut out = String::new();
        for (first, vec4s) in self.loops() {
            push!(out, "    {{");
            let last = 4 * vec4s - 1;
            let shares = match self.lanes {
                0 => 0,
                lanes => (4 * vec4s).div_ceil(lanes),
            };
            for i in 0..shares {
                push!(
                    out,
                    "    let item_{i} = min(lane + {}u, {last}u);",
                    i * self.lanes
                );
                let vec4 = format!("{first}u + item_{i} % {vec4s}u");
                push!(
                    out,
                    "    let v_at_{i} = v_start + min(column + ({vec4}) * 4u, p.rest.y - 4u);"
                );
            }
            push!(
                out,
                "    for (var t = 0u; t < {}u; t += 4u) {{",
                self.form.keys()
            );
            for j in 0..4 {
                let at = self.weight(&format!("(t + {j}u)"));
                push!(out, "      let w_{j} = weights[{at}];");
            }
            let row = |key: &str| format!("min(key + t + {key}, last_key) * p.v.w");
            for i in 0..shares {
                let row = row(&format!("item_{i} / {vec4s}u"));
                push!(out, "      let g_{i} = v_get4(v_at_{i} + {row});");
            }
            for j in 0..if self.lanes == 0 { 4 } else { 0 } {
                let row = row(&format!("{j}u"));
                push!(out, "      let row_{j} = v_start + {row};");
            }
            for c in 0..vec4s {
                self.add_vec4(&mut out, first + c, |j| j * vec4s + c);
            }
            push!(out, "    }}\n    }}");
        }
        out
    }

    /// Adds four keys to a vec4 of the result; `item` says which of the values a key's vec4 is.
    fn add_vec4(&self, out: &mut String, c: u32, item: impl Fn(u32) -> u32) {
        for j in 0..4 {
            let value = match self.lanes {
                0 => format!("v_get4(row_{j} + min(column + {}u, p.rest.y - 4u))", 4 * c),
                lanes => {
                    let item = item(j);
                    format!("subgroupBroadcast(g_{}, {}u)", item / lanes, item % lanes)
                }
            };
            push!(out, "      let b_{c}_{j} = {value};");
        }
        for (i, lane) in LANES.iter().enumerate() {
            let e = 4 * c as usize + i;
            for j in 0..4 {
                let splat = self.splat(&format!("b_{c}_{j}.{lane}"));
                push!(out, "      o_{e} = fma(w_{j}, {splat}, o_{e});");
            }
        }
    }

    /// The rows of the result, by way of the memory that held the weights, as many vec4s at a time
    /// as fit: a store in a loop is compiled once.
    fn finish(&self) -> String {
        let mut out = String::new();
        let (vec4s, at_once) = (self.vec4s(), self.form.keys() / 4);
        for first in (0..vec4s).step_by(at_once as usize) {
            let some = at_once.min(vec4s - first);
            for e in 0..4 * some {
                push!(
                    out,
                    "  weights[{}] = o_{} * share;",
                    self.weight(&e.to_string()),
                    4 * first + e
                );
            }
            let (start, end) = (4 * first, 4 * (first + some));
            push!(out, "  for (var c = {start}u; c < {end}u; c += 4u) {{");
            for e in 0..4 {
                let at = self.weight(&format!("(c - {start}u + {e}u)"));
                push!(out, "    let c_{e} = weights[{at}];");
            }
            for (r, lane) in (0..self.width).zip(LANES) {
                let own = match self.width {
                    1 => String::new(),
                    _ => format!(".{lane}"),
                };
                push!(
                    out,
                    "    store(y_start + {r}u * p.rest.y + c, row + {r}u, column + c, \
                     vec4(c_0{own}, c_1{own}, c_2{own}, c_3{own}));"
                );
            }
            push!(out, "  }}");
        }
        out
    }

    /// Where an invocation keeps weight `t`.
    fn weight(&self, t: &str) -> String {
        format!("{t} * {} + lane", self.form.threads())
    }
}

/// The variant in workgroup memory.
fn workgroup(form: Form) -> String {
    let vec4s = u32::from(form.vec4s);
    let [mut prepare, mut shrink, mut values, mut finish] = [const { String::new() }; 4];
    for n in 0..vec4s {
        push!(
            prepare,
            "  let column_{n} = column + {}u + across * 4u;",
            n * 64
        );
        push!(
            prepare,
            "  let v_at_{n} = v_start + min(column_{n}, p.rest.y - 4u);"
        );
        push!(values, "      let v_{n} = v_get4(v_at_{n} + at);");
        for (r, lane) in LANES.iter().enumerate() {
            push!(prepare, "  var o_{r}_{n} = vec4<f32>();");
            push!(shrink, "    o_{r}_{n} *= shrink.{lane};");
            push!(
                values,
                "      o_{r}_{n} = fma(vec4(w.{lane}), v_{n}, o_{r}_{n});"
            );
            push!(
                finish,
                "  store(y_start + {r}u * p.rest.y + column_{n}, row + {r}u, column_{n}, \
                 o_{r}_{n} * share.{lane});"
            );
        }
    }
    let mut masked = String::new();
    mask(&mut masked, form, 4, 4);
    fill(
        WORKGROUP,
        &[
            ("vec4s", &vec4s.to_string()),
            ("columns", &form.columns().to_string()),
            ("seen", &seen(form)),
            ("prepare", &prepare),
            ("mask", &masked),
            ("shrink", &shrink),
            ("values", &values),
            ("finish", &finish),
        ],
    )
}
