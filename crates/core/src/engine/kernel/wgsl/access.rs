//! The accessors of an operand: they read and write elements in words of any width.

use super::{Unit, calls};
use crate::dtype::DType;
use crate::engine::kernel::{Operand, Role};

/// Declares the accessors of an operand that the text uses.
pub(super) fn declare_operand(
    out: &mut String,
    text: &str,
    operand: &Operand,
    dtype: DType,
    part: usize,
    unit: Unit,
) {
    let (name, kind) = (operand.name, dtype.wgsl());
    if calls(text, name, "get") {
        let body = get(part, dtype, unit);
        line!(out, "fn {name}_get(i: u32) -> {kind} {{ {body} }}");
    }
    if calls(text, name, "get2") {
        debug_assert!(dtype == DType::U32, "{name}_get2");
        let body = match unit {
            Unit::Words2 => format!("return b{part}_load(i >> 1u);"),
            _ => format!("return vec2<u32>(b{part}_load(i), b{part}_load(i + 1u));"),
        };
        line!(out, "fn {name}_get2(i: u32) -> vec2<u32> {{ {body} }}");
    }
    let reads_vec8s = calls(text, name, "get8");
    if reads_vec8s {
        debug_assert!(matches!(dtype, DType::F32 | DType::I8), "{name}_get8");
        let body = get8(name, part, dtype, unit);
        line!(out, "fn {name}_get8(i: u32) -> mat2x4<f32> {{ {body} }}");
    }
    if reads_vec8s || calls(text, name, "get4") {
        let body = get4(part, dtype, unit);
        line!(out, "fn {name}_get4(i: u32) -> vec4<{kind}> {{ {body} }}");
    }
    let writes_vec8s = operand.role != Role::Read && calls(text, name, "put8");
    if writes_vec8s {
        debug_assert!(dtype == DType::F32, "{name}_put8");
        let body = match unit {
            Unit::Vec8 => format!(
                "b{part}_store(i >> 3u, Vec8(bitcast<vec4<u32>>(v[0]), bitcast<vec4<u32>>(v[1])));"
            ),
            _ => format!("{name}_put4(i, v[0]); {name}_put4(i + 4u, v[1]);"),
        };
        line!(out, "fn {name}_put8(i: u32, v: mat2x4<f32>) {{ {body} }}");
    }
    let writes_vec4s = operand.role != Role::Read && calls(text, name, "put4");
    if writes_vec4s || writes_vec8s && unit != Unit::Vec8 {
        let body = put4(part, dtype, unit);
        line!(out, "fn {name}_put4(i: u32, v: vec4<{kind}>) {{ {body} }}");
    }
    if operand.role != Role::Read && calls(text, name, "put") {
        debug_assert!(dtype.size_bytes() == 4 && unit == Unit::Word, "{name}_put");
        line!(
            out,
            "fn {name}_put(i: u32, v: {kind}) {{ b{part}_store(i, bitcast<u32>(v)); }}"
        );
    }
}

fn get(part: usize, dtype: DType, unit: Unit) -> String {
    let kind = dtype.wgsl();
    let one = match dtype {
        DType::Bf16 => "return bitcast<f32>(select(w << 16u, w & 0xffff0000u, (i & 1u) != 0u));",
        _ => "let h = unpack2x16float(w); return select(h.x, h.y, (i & 1u) != 0u);",
    };
    let word = word_of_bytes(part, unit);
    match (dtype.size_bytes(), unit) {
        (4, Unit::Words4) => format!("return bitcast<{kind}>(b{part}_load(i >> 2u)[i & 3u]);"),
        (4, Unit::Vec8) => format!(
            "let o = b{part}_load(i >> 3u); let q = select(o.low, o.high, (i & 4u) != 0u); \
             return bitcast<{kind}>(q[i & 3u]);"
        ),
        (4, _) => format!("return bitcast<{kind}>(b{part}_load(i));"),
        (2, Unit::Words2) => format!(
            "let q = b{part}_load(i >> 2u); let w = select(q.x, q.y, (i & 2u) != 0u); {one}"
        ),
        (2, _) => format!("let w = b{part}_load(i >> 1u); {one}"),
        _ if dtype == DType::I8 => {
            format!("{word} return bitcast<i32>(w << (24u - (i & 3u) * 8u)) >> 24u;")
        }
        _ => format!("{word} return (w >> ((i & 3u) * 8u)) & 0xffu;"),
    }
}

/// Eight elements as floats.
fn get8(name: &str, part: usize, dtype: DType, unit: Unit) -> String {
    match (dtype, unit) {
        (DType::F32, Unit::Vec8) => format!(
            "let o = b{part}_load(i >> 3u); \
             return mat2x4<f32>(bitcast<vec4<f32>>(o.low), bitcast<vec4<f32>>(o.high));"
        ),
        (DType::I8, Unit::Words2) => format!(
            "let o = bitcast<vec2<i32>>(b{part}_load(i >> 3u)); \
             return mat2x4<f32>(vec4<f32>({}), vec4<f32>({}));",
            four_signed("o.x"),
            four_signed("o.y")
        ),
        (DType::I8, _) => format!(
            "return mat2x4<f32>(vec4<f32>({name}_get4(i)), vec4<f32>({name}_get4(i + 4u)));"
        ),
        _ => format!("return mat2x4<f32>({name}_get4(i), {name}_get4(i + 4u));"),
    }
}

/// The four signed bytes of a word.
fn four_signed(word: &str) -> String {
    format!("vec4<i32>({word} << 24u, {word} << 16u, {word} << 8u, {word}) >> vec4<u32>(24u)")
}

/// Loads the word `w` of the byte `i`.
fn word_of_bytes(part: usize, unit: Unit) -> String {
    match unit {
        Unit::Words2 => {
            format!("let o = b{part}_load(i >> 3u); let w = select(o.x, o.y, (i & 4u) != 0u);")
        }
        _ => format!("let w = b{part}_load(i >> 2u);"),
    }
}

fn get4(part: usize, dtype: DType, unit: Unit) -> String {
    let kind = dtype.wgsl();
    let halves = match dtype {
        DType::Bf16 => {
            "return bitcast<vec4<f32>>(\
             vec4<u32>(q.x << 16u, q.x & 0xffff0000u, q.y << 16u, q.y & 0xffff0000u));"
        }
        _ => "return vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y));",
    };
    let word = word_of_bytes(part, unit);
    match (dtype.size_bytes(), unit) {
        (4, Unit::Words4) => format!("return bitcast<vec4<{kind}>>(b{part}_load(i >> 2u));"),
        (4, Unit::Vec8) => format!(
            "let o = b{part}_load(i >> 3u); \
             return bitcast<vec4<{kind}>>(select(o.low, o.high, (i & 4u) != 0u));"
        ),
        (4, _) => format!(
            "return bitcast<vec4<{kind}>>(vec4<u32>(b{part}_load(i), b{part}_load(i + 1u), \
             b{part}_load(i + 2u), b{part}_load(i + 3u)));"
        ),
        (2, Unit::Words2) => format!("let q = b{part}_load(i >> 2u); {halves}"),
        (2, _) => format!(
            "let q = vec2<u32>(b{part}_load(i >> 1u), b{part}_load((i >> 1u) + 1u)); {halves}"
        ),
        _ if dtype == DType::I8 => format!(
            "{word} let q = bitcast<i32>(w); return {};",
            four_signed("q")
        ),
        _ => format!(
            "{word} return vec4<u32>(w & 0xffu, (w >> 8u) & 0xffu, (w >> 16u) & 0xffu, w >> 24u);"
        ),
    }
}

fn put4(part: usize, dtype: DType, unit: Unit) -> String {
    let halves = match dtype {
        DType::Bf16 => "let h = upper_halves(v); let q = (h.xz >> vec2<u32>(16u)) | h.yw;",
        _ => "let q = vec2<u32>(pack_halves(v.xy), pack_halves(v.zw));",
    };
    match (dtype.size_bytes(), unit) {
        (4, Unit::Words4) => format!("b{part}_store(i >> 2u, bitcast<vec4<u32>>(v));"),
        (4, _) => format!(
            "let q = bitcast<vec4<u32>>(v); b{part}_store(i, q.x); b{part}_store(i + 1u, q.y); \
             b{part}_store(i + 2u, q.z); b{part}_store(i + 3u, q.w);"
        ),
        (2, Unit::Words2) => format!("{halves} b{part}_store(i >> 2u, q);"),
        (2, _) => {
            format!("{halves} b{part}_store(i >> 1u, q.x); b{part}_store((i >> 1u) + 1u, q.y);")
        }
        _ => format!(
            "let q = bitcast<vec4<u32>>(v) & vec4<u32>(0xffu); \
             b{part}_store(i >> 2u, q.x | (q.y << 8u) | (q.z << 16u) | (q.w << 24u));"
        ),
    }
}
