//! The text of an elementwise variant: parameters, index arithmetic, loads, the operation, the
//! store.

use std::borrow::Cow;
use std::fmt::Write;

use super::code::{BROAD_GROUP, Code, Fetch, GROUP, LEAST_WORDS, MAP, VEC4S_ON_CPU};
use super::element::Element;
use crate::ops::functions::push_functions;
use crate::ops::skeleton::Skeleton;
use crate::ops::text::word;
use lapidary_core::DType;
use lapidary_core::internal::Variant;
use lapidary_core::internal::sections::section_for;

const WGSL: &str = include_str!("../../../shaders/elementwise.wgsl");

/// The parameters and the type aliases of a shader: `A` and `T` for the input, `Y` and `E` for the
/// output.
pub(in crate::ops) fn head(out: &mut String, words: usize, input: DType, output: DType) {
    let vectors: String = (0..words.div_ceil(4))
        .map(|index| format!(" w{index}: vec4<u32>,"))
        .collect();
    let (t, e) = (input.wgsl(), output.wgsl());
    // Writing to a String cannot fail.
    let _ = writeln!(out, "struct Params {{{vectors} }}");
    let _ = writeln!(out, "alias T = {t};\nalias A = vec4<{t}>;");
    let _ = writeln!(out, "alias E = {e};\nalias Y = vec4<{e}>;");
}

/// The whole text of a variant. Among its types, those of operands that are inputs come first.
pub(in crate::ops) fn text(variant: &Variant, element: &Element) -> Cow<'static, str> {
    let (code, names) = (Code(variant.code), element.names);
    let (bound, rank) = (code.bound(), code.rank());
    let output = variant.dtypes[bound];
    let input = if bound == 0 {
        output
    } else {
        variant.dtypes[element.main]
    };
    let section = element.text((element.section)(variant), input.wgsl());
    let beyond = code.beyond_map();
    let scalars = (0..2).filter(|n| section.contains(&format!("${n}")));
    let words = (beyond + scalars.count()).max(LEAST_WORDS);
    let mut out = String::with_capacity(4 << 10);
    head(&mut out, words, input, output);
    let section = section.replace("$0", &word(beyond));
    out.push_str(&section.replace("$1", &word(beyond + 1)));
    if bound > 0 {
        index(&mut out, bound, rank);
    }
    let store = if code.is_into() {
        "store_part"
    } else {
        "store_all"
    };
    let placed = section.contains("k: u32");
    if code.has(Code::VEC8S) {
        push_vec8(&mut out, variant, names, placed);
    } else {
        let vec4 = section_for(WGSL, "vec4", "")
            .replace("$LOADS", &loads(variant, names, placed))
            .replace("$STORE", section_for(WGSL, store, "").trim_end());
        out.push_str(&vec4);
    }
    out.push_str(&main(code));
    push_functions(&mut out);
    Cow::Owned(out)
}

/// Functions for coordinates in the output: those of element `k`, and those of the next element.
/// Also for the positions that they name in each operand, as x, y and z. There is only one division
/// for each dimension, because divisions take the most time.
pub(in crate::ops) fn index(out: &mut String, bound: usize, rank: usize) {
    let strides = |operand: usize| MAP + bound + rank * (1 + operand);
    let of_operand = |function: &str, texts: &[&str]| match (function, texts[0].parse()) {
        ("at", Ok(operand)) if operand < bound => {
            let steps = (0..rank).map(|d| format!(" + c[{d}] * {}", word(strides(operand) + d)));
            word(MAP + operand) + &steps.collect::<String>()
        }
        // The distance to the next vec4 in the same row.
        ("step", Ok(operand)) if operand < bound => {
            format!("4u * {}", word(strides(operand) + rank - 1))
        }
        _ => "0u".into(),
    };
    let numbers = [("rank", rank as u32), ("dims", (MAP + bound) as u32)];
    let skeleton = Skeleton::new(section_for(WGSL, "index", "")).numbers(numbers);
    out.push_str(&skeleton.function(&of_operand).fill());
}

/// The entry point. It calls `put_vec4` for every vec4 of an invocation, or `put_vec8` for every
/// two.
fn main(code: Code) -> String {
    let each = if code.has(Code::UNROLL) {
        VEC4S_ON_CPU
    } else {
        1
    };
    let group = match code.has(Code::BROAD) {
        true => BROAD_GROUP,
        false => GROUP,
    };
    let is_whole = code.bound() > 0 && code.has(Code::WHOLE);
    let is_together = is_whole && code.has(Code::TOGETHER);
    Skeleton::new(section_for(WGSL, "main", ""))
        .numbers([("each", each as u32), ("group", group as u32)])
        .with("is_whole", is_whole)
        .with("is_together", is_together)
        .with("vec8s", is_together && code.has(Code::VEC8S))
        .fill()
}

/// The function that computes two adjacent vec4s.
fn push_vec8(out: &mut String, variant: &Variant, names: &[&str], placed: bool) {
    let code = Code(variant.code);
    out.push_str("fn put_vec8(k: u32, i: vec4<u32>) {\n");
    let mut operand = 0;
    for (input, name) in names.iter().enumerate() {
        let at = ["x", "y", "z"][operand];
        let value = match code.fetch(input) {
            Fetch::Param => format!("A(bitcast<T>({}))", word(2)),
            Fetch::Vec4 => format!("{name}_get8(i.{at})"),
            _ => format!("vec4<f32>({name}_get(i.{at}))"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  let {name} = {value};");
        operand += usize::from(code.fetch(input) != Fetch::Param);
    }
    let half = |half: u32| {
        let inputs = names.iter().enumerate();
        let of_input = |(input, name): (usize, &&str)| match code.fetch(input) {
            Fetch::Vec4 => format!("{name}[{half}]"),
            _ => name.to_string(),
        };
        let place = placed.then(|| format!("k + {}u", 4 * half));
        let values: Vec<String> = place.into_iter().chain(inputs.map(of_input)).collect();
        format!("op({})", values.join(", "))
    };
    let _ = writeln!(
        out,
        "  y_put8(k, mat2x4<f32>({}, {}));\n}}",
        half(0),
        half(1)
    );
}

/// Fetches every input and calls `op`. If the operation is `placed`, `op` also gets the element's
/// number.
fn loads(variant: &Variant, names: &[&str], placed: bool) -> String {
    let code = Code(variant.code);
    let (bound, rank) = (code.bound(), code.rank());
    if bound == 0 {
        return "let v = op(k);".to_string();
    }
    let mut out = String::new();
    let apart = !code.has(Code::WHOLE);
    if apart {
        out.push_str("let c0 = coordinates(k);\n  let i0 = at(c0);\n");
        // The last vec4 may pass the end. Lanes past the end read the last element again.
        let elements = word(0);
        for lane in 1..4 {
            let before = lane - 1;
            let _ = writeln!(
                out,
                "  let c{lane} = next(c{before});\n  \
                 let i{lane} = select(i{before}, at(c{lane}), k + {lane}u < {elements});"
            );
        }
    }
    let mut operand = 0;
    for (input, name) in names.iter().enumerate() {
        if code.fetch(input) == Fetch::Param {
            let _ = writeln!(out, "  let {name} = A(bitcast<T>({}));", word(2));
            continue;
        }
        let at = ["x", "y", "z"][operand];
        let kind = variant.dtypes[operand].wgsl();
        let stride = word(MAP + bound + rank * (1 + operand) + rank - 1);
        let lane = |lane: u32| match (apart, lane) {
            (true, _) => format!("{name}_get(i{lane}.{at})"),
            (false, 0) => format!("{name}_get(i.{at})"),
            // A vec4 of a whole row can pass the end only if there is one dimension.
            (false, _) if rank == 1 => {
                let last = format!("{} - 1u - k", word(0));
                format!("{name}_get(i.{at} + min({lane}u, {last}) * {stride})")
            }
            (false, _) => format!("{name}_get(i.{at} + {lane}u * {stride})"),
        };
        let vec4 = match code.fetch(input) {
            Fetch::Vec4 => format!("{name}_get4(i.{at})"),
            Fetch::Splat => format!("vec4<{kind}>({})", lane(0)),
            _ => format!(
                "vec4<{kind}>({}, {}, {}, {})",
                lane(0),
                lane(1),
                lane(2),
                lane(3)
            ),
        };
        let _ = writeln!(out, "  let {name} = {vec4};");
        operand += 1;
    }
    let place = if placed { "k, " } else { "" };
    let _ = write!(out, "  let v = op({place}{});", names.join(", "));
    out
}
