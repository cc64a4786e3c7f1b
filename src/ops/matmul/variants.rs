//! The text of each variant of matmul, from the skeletons in `shaders/matmul/`.
//!
//! The skeletons hold what a reader wants to see: tiles, loops, barriers. What is written here is
//! what differs by the operands' orientation and what must be unrolled, since an accumulator that
//! is an indexed array would live in memory.
//!
//! An operand's *edge* is its dimension along C (rows of A, columns of B), its *line* the stride of
//! whichever dimension is not contiguous. Names in the text: `x` values of A, `y` values of B,
//! `acc` the accumulators.

/// Adds a line to a text; writing to a `String` cannot fail.
macro_rules! push {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

mod cooperative;
mod end;
mod grouped;
mod packed;
mod split;
mod unrolled;

use std::borrow::Cow;
use std::fmt::Write;

use super::form::{End, Form, Order, Packing, Spread, Squares, Tile};
use grouped::{skinny, workgroup};
use lapidary_core::DType;
use lapidary_core::internal::Variant;
use lapidary_core::internal::sections::fill;
use split::Split;
use unrolled::Unrolled;

const SHARED: &str = include_str!("../../../shaders/matmul/shared.wgsl");
const STEP_OVER: &str = include_str!("../../../shaders/matmul/step_over.wgsl");
const PLACE: &str = include_str!("../../../shaders/matmul/place.wgsl");
const NAIVE: &str = include_str!("../../../shaders/matmul/naive.wgsl");

/// One of the two operands, as the text sees it.
#[derive(Clone, Copy)]
struct Side {
    /// `a` or `b`.
    name: char,
    /// Contiguous along k; else along its edge.
    along_k: bool,
    /// Its vec4s are aligned.
    vec4s: bool,
    /// Contiguous along nothing: it is walked along k all the same, in steps.
    stepped: bool,
    /// So many elements along k, as a power of two, share a scale; 0 where there are none. It is
    /// contiguous along k then.
    group_log2: u8,
}

impl Side {
    /// The four elements from `at` on, along the dimension that is contiguous (or stepped).
    fn vec4(self, at: &str) -> String {
        if self.vec4s {
            return format!("{}_get4({at})", self.name);
        }
        let get = |i| format!("{}_get({at} + {})", self.name, self.along(&format!("{i}u")));
        format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
    }

    /// The four elements from `at` on, of which `over`, a number in the text, are within the
    /// operand beside the first: the others are the last of those again, which nobody stores.
    fn vec4_within(self, at: &str, over: &str) -> String {
        if self.vec4s {
            return self.vec4(at);
        }
        let get = |i| {
            let steps = self.along(&format!("min({i}u, {over})"));
            format!("{}_get({at} + {steps})", self.name)
        };
        format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
    }

    /// Declares `{at}_over` for [`vec4_within`](Self::vec4_within).
    fn push_over(self, out: &mut String, at: &str, first: &str, last: &str) {
        if !self.vec4s {
            push!(out, "  let {at}_over = {last} - min({first}, {last});");
        }
    }

    /// Elements that lie in one group, times its scale: at step `k` of the line that starts its
    /// scales at `scales`, a name of [`scale_line`](SCALE_LINE)'s making.
    fn scaled(self, elements: String, scales: &str, k: &str) -> String {
        match self.group_log2 {
            0 => elements,
            log2 => format!("{elements} * scales_get({scales} + (({k}) >> {log2}u))"),
        }
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
        vec4s: variant.vec4s & 1 == 1,
        stepped: form.a == Order::Stepped,
        group_log2: 0,
    };
    let b = Side {
        name: 'b',
        along_k: form.b != Order::AlongEdge,
        vec4s: variant.vec4s >> 1 & 1 == 1,
        stepped: form.b == Order::Stepped,
        group_log2: form.group_log2,
    };
    let ends = [form.has_scales(), form.end.bias, form.end.residual];
    let c = 2 + ends.map(u8::from).iter().sum::<u8>();
    let store = &store(variant.vec4s >> c & 1 == 1, form.end != End::default());
    let text = match form.tile {
        Tile::Naive => fill(NAIVE, &[("kind", variant.dtypes[usize::from(c)].wgsl())]),
        Tile::Register { rows, vec4s, lanes } => Unrolled {
            a,
            b,
            rows: u32::from(rows),
            vec4s: u32::from(vec4s),
            lanes: u32::from(lanes),
            spread: form.spread,
        }
        .text(store),
        Tile::Split {
            rows,
            columns,
            lanes,
            vec8s,
        } => Split {
            a,
            b,
            rows: u32::from(rows),
            columns: u32::from(columns),
            lanes: u32::from(lanes),
            vec8s: vec8s
                && b.vec4s
                && variant.dtypes[1] == DType::F32
                && (b.along_k || columns.is_multiple_of(8)),
            spread: form.spread,
        }
        .text(store),
        Tile::Workgroup { rows } => workgroup(a, b, u32::from(rows), store),
        Tile::Skinny { rows } => skinny(a, b, u32::from(rows), store),
        Tile::Cooperative { size, large, lanes } => {
            let squares = Squares::new(size, large);
            cooperative::cooperative(a, b, squares, lanes.into(), store)
        }
        Tile::Packed { rows, vec4s, lanes } => {
            let tile = [rows, vec4s, lanes].map(u32::from);
            packed::packed(tile, b, form.spread, store)
        }
    };
    let mut text = format!("{}\n{text}", shared(form.spread));
    for (name, dtype) in [('a', variant.dtypes[0]), ('b', variant.dtypes[1])] {
        text = widened(text, name, dtype, variant.dtypes[usize::from(c)]);
    }
    if form.group_log2 > 0 {
        let group_log2 = form.group_log2.to_string();
        text.push_str(&fill(SCALE_LINE, &[("group_log2", &group_log2)]));
    }
    if form.end != End::default() {
        end::push_end(&mut text, form, variant.vec4s);
    }
    Cow::Owned(text)
}

/// The text that reads floats, where an operand is i8.
fn widened(text: String, name: char, dtype: DType, result: DType) -> String {
    if dtype != DType::I8 || !result.is_float() {
        return text;
    }
    let text = text.replace(&format!("{name}_get("), &format!("{name}_wide("));
    let mut text = text.replace(&format!("{name}_get4("), &format!("{name}_wide4("));
    push!(
        text,
        "fn {name}_wide(i: u32) -> f32 {{ return f32({name}_get(i)); }}"
    );
    push!(
        text,
        "fn {name}_wide4(i: u32) -> vec4<f32> {{ return vec4<f32>({name}_get4(i)); }}"
    );
    text
}

/// Where the scales of a column of C start.
const SCALE_LINE: &str = "
fn scale_line(column: u32) -> u32 {
  let groups = ((p.size.z - 1u) >> ${group_log2}u) + 1u;
  return p.more.w + min(column, p.size.y - 1u) * groups;
}
";

/// What every variant begins with.
fn shared(spread: Spread) -> String {
    let step_over = match spread {
        Spread::Linear => STEP_OVER,
        Spread::Single => "return 0u;",
        Spread::Flat => "return matrix * inner.x;",
    };
    fill(SHARED, &[("step_over", step_over)])
}

/// Which tile of which matrix a workgroup computes, where a tile is so large.
fn place(spread: Spread, tile_m: u32, tile_n: u32) -> String {
    if spread != Spread::Linear {
        return "let tile_m = group.x;\n  let tile_n = group.y;\n  let matrix = group.z;".into();
    }
    fill(
        PLACE,
        &[
            ("tile_m", &tile_m.to_string()),
            ("tile_n", &tile_n.to_string()),
        ],
    )
}

/// The text of what packs an operand.
pub(super) fn pack(variant: &Variant) -> Cow<'static, str> {
    let packing = Packing::unpack(variant.code);
    let side = Side {
        name: 'a',
        along_k: packing.order != Order::AlongEdge,
        vec4s: variant.vec4s & 1 == 1,
        stepped: packing.order == Order::Stepped,
        group_log2: 0,
    };
    let text = packed::pack(side, u32::from(packing.lanes), packing.whole_k);
    let mut text = widened(text, 'a', variant.dtypes[0], DType::F32);
    if variant.dtypes[1] == DType::I8 {
        text = text.replace("c_put4(", "c_narrow4(");
        push!(
            text,
            "fn c_narrow4(i: u32, v: vec4<f32>) {{ c_put4(i, vec4<i32>(v)); }}"
        );
    }
    Cow::Owned(format!("{}\n{text}", shared(packing.spread)))
}

/// Stores a vec4 of C, whole if rows of C are made of vec4s.
fn store(vec4s: bool, has_end: bool) -> String {
    let value = if has_end {
        "let v = finish(at, column, product);"
    } else {
        "let v = product;"
    };
    let put = match vec4s {
        true => "c_put4(at + column, v);",
        false => {
            "let i = at + column; c_put(i, v.x); \
             if (column + 1u < p.size.y) { c_put(i + 1u, v.y); } \
             if (column + 2u < p.size.y) { c_put(i + 2u, v.z); } \
             if (column + 3u < p.size.y) { c_put(i + 3u, v.w); }"
        }
    };
    format!("{value} {put}")
}

/// The components of a vec4.
const LANES: [char; 4] = ['x', 'y', 'z', 'w'];
