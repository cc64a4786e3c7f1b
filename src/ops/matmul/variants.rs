//! The text of each variant of matmul, from the skeletons in `shaders/matmul/`.
//!
//! The skeletons hold tiles, loops and barriers. The code here writes what depends on the operands'
//! order, and what must be unrolled. An accumulator that is an indexed array would live in memory.
//!
//! An operand's *edge* is its dimension along C (rows of A, columns of B). Its *line* is the stride
//! of the dimension that is not contiguous. Names in the text: `x` are values of A, `y` values of
//! B, `acc` the accumulators.

mod end;
mod side;
mod tiles;

use std::borrow::Cow;

use super::form::{End, Form, Packing, Spread, Squares, Tile};
use crate::ops::skeleton::Skeleton;
use lapidary_core::DType;
use lapidary_core::internal::Variant;
use side::{Side, Sides};

const SHARED: &str = include_str!("../../../shaders/matmul/shared.wgsl");
const STEP_OVER: &str = include_str!("../../../shaders/matmul/step_over.wgsl");
const PLACE: &str = include_str!("../../../shaders/matmul/place.wgsl");
const NAIVE: &str = include_str!("../../../shaders/matmul/naive.wgsl");

/// The text of a variant.
pub(super) fn text(variant: &Variant) -> Cow<'static, str> {
    let form = Form::unpack(variant.code);
    let is_by_vec4s = |operand: u8| variant.vec4s >> operand & 1 == 1;
    let a = Side::new('a', form.a, is_by_vec4s(0), 0);
    let b = Side::new('b', form.b, is_by_vec4s(1), form.group_log2);
    let sides = Sides { a, b };
    let ends = [form.has_scales(), form.end.bias, form.end.residual];
    let c = 2 + ends.map(u8::from).iter().sum::<u8>();
    let result = variant.dtypes[usize::from(c)];
    let store = &store(is_by_vec4s(c), form.end != End::default());
    let text = match form.tile {
        Tile::Naive => Skeleton::new(NAIVE).with("kind", result.wgsl()).fill(),
        Tile::Register { rows, vec4s, lanes } => {
            let tile = [rows, vec4s, lanes].map(u32::from);
            tiles::register(sides, tile, form.spread, store)
        }
        Tile::Split {
            rows,
            columns,
            lanes,
            vec8s,
        } => {
            let vec8s = vec8s
                && b.vec4s
                && matches!(variant.dtypes[1], DType::F32 | DType::I8)
                && (b.along_k || columns.is_multiple_of(8));
            let tile = [rows, columns, lanes].map(u32::from);
            tiles::split(sides, tile, vec8s, form.spread, store)
        }
        Tile::Workgroup { rows } => tiles::workgroup(sides, rows.into(), store),
        Tile::Skinny { rows } => tiles::skinny(sides, rows.into(), store),
        Tile::Cooperative { size, large, lanes } => {
            tiles::cooperative(sides, Squares::new(size, large), lanes.into(), store)
        }
        Tile::Packed { rows, vec4s, lanes } => {
            let tile = [rows, vec4s, lanes].map(u32::from);
            tiles::packed(sides, tile, form.spread, store)
        }
    };
    let mut text = format!("{}\n{text}", shared(form.spread));
    for (name, dtype) in [('a', variant.dtypes[0]), ('b', variant.dtypes[1])] {
        text = widened(text, name, dtype, result);
    }
    if form.group_log2 > 0 {
        let group_log2 = form.group_log2.into();
        let line = Skeleton::new(SCALE_LINE).numbers([("group_log2", group_log2)]);
        text.push_str(&line.fill());
    }
    if form.end != End::default() {
        end::push_end(&mut text, form, variant.vec4s);
    }
    Cow::Owned(text)
}

/// The text, changed to read an i8 operand as floats.
fn widened(text: String, name: char, dtype: DType, result: DType) -> String {
    if dtype != DType::I8 || !result.is_float() {
        return text;
    }
    let text = text.replace(&format!("{name}_get("), &format!("{name}_wide("));
    let text = text.replace(&format!("{name}_get4("), &format!("{name}_wide4("));
    format!(
        "{text}fn {name}_wide(i: u32) -> f32 {{ return f32({name}_get(i)); }}\n\
         fn {name}_wide4(i: u32) -> vec4<f32> {{ return vec4<f32>({name}_get4(i)); }}\n"
    )
}

/// The start of the scales of a column of C.
const SCALE_LINE: &str = "
fn scale_line(column: u32) -> u32 {
  let groups = ((p.size.z - 1u) >> ${group_log2}u) + 1u;
  return p.more.w + min(column, p.size.y - 1u) * groups;
}
";

/// The shared beginning of all variants.
fn shared(spread: Spread) -> String {
    let step_over = match spread {
        Spread::Linear => STEP_OVER,
        Spread::Single => "return 0u;",
        Spread::Flat => "return matrix * inner.x;",
    };
    Skeleton::new(SHARED).with("step_over", step_over).fill()
}

/// The tile and the matrix of a workgroup, for tiles of this size.
fn place(spread: Spread, tile_m: u32, tile_n: u32) -> String {
    if spread != Spread::Linear {
        return "let tile_m = group.x;\n  let tile_n = group.y;\n  let matrix = group.z;".into();
    }
    let skeleton = Skeleton::new(PLACE);
    skeleton
        .numbers([("tile_m", tile_m), ("tile_n", tile_n)])
        .fill()
}

/// The text of the kernel that packs an operand.
pub(super) fn pack(variant: &Variant) -> Cow<'static, str> {
    let packing = Packing::unpack(variant.code);
    let side = Side::new('a', packing.order, variant.vec4s & 1 == 1, 0);
    let text = tiles::pack(side, packing.lanes.into(), packing.whole_k);
    let mut text = widened(text, 'a', variant.dtypes[0], DType::F32);
    if variant.dtypes[1] == DType::I8 {
        text = text.replace("c_put4(", "c_narrow4(");
        text.push_str("fn c_narrow4(i: u32, v: vec4<f32>) { c_put4(i, vec4<i32>(v)); }\n");
    }
    Cow::Owned(format!("{}\n{text}", shared(packing.spread)))
}

/// Stores a vec4 of C, whole if C's rows consist of vec4s.
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
