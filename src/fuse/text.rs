//! The WGSL of a fused kernel: every operation a function, as its family's file has it, and every
//! node a line.

use std::fmt::Write;

use super::name;
use super::structure::{Fetch, Input, Node, Places, Structure};
use crate::dtype::DType;
use crate::ops::elementwise::element::SCALARS;
use crate::ops::elementwise::word;
use crate::ops::functions::push_functions;

/// Names of operands that are read.
pub(super) const LEAVES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Names of operands that are written.
pub(super) const OUTS: [&str; 8] = ["y0", "y1", "y2", "y3", "y4", "y5", "y6", "y7"];

/// The text, with operands and `p` undeclared.
pub(super) fn text(structure: &Structure) -> String {
    let places = structure.places();
    let mut out = String::with_capacity(4 << 10);
    push(&mut out, format_args!("// {}\n", name::of(structure)));
    let vectors: String = (0..places.words / 4)
        .map(|index| format!(" w{index}: vec4<u32>,"))
        .collect();
    push(&mut out, format_args!("struct Params {{{vectors} }}\n"));
    push_operations(&mut out, structure);
    if structure.is_mapped() {
        push_maps(&mut out, structure, &places);
    }
    push_quad(&mut out, structure, &places);
    push_main(&mut out, structure, &places);
    push_functions(&mut out);
    out
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

/// What a node's function is called.
fn function(node: &Node) -> String {
    let (from, to) = (node.main.wgsl(), node.dtype.wgsl());
    match from == to {
        true => format!("{}_{from}", node.section),
        false => format!("{}_{from}_{to}", node.section),
    }
}

/// The functions of all operations, each once.
fn push_operations(out: &mut String, structure: &Structure) {
    let mut known = Vec::new();
    for node in &structure.nodes {
        let function = function(node);
        if known.contains(&function) {
            continue;
        }
        let (from, to) = (node.main.wgsl(), node.dtype.wgsl());
        let text = node.element.text(node.section, from);
        out.push_str(&with_types(text, from, to, &function, node));
        known.push(function);
    }
    let rounds = |dtype: DType| {
        let of_type = |node: &Node| node.dtype == dtype && needs_narrowing(node);
        structure.nodes.iter().any(of_type)
    };
    if rounds(DType::F16) {
        out.push_str(
            "// As it would be read back from memory.\n\
             fn as_half(v: vec4<f32>) -> vec4<f32> {\n  return vec4<f32>(\
             unpack2x16float(pack_halves(v.xy)), unpack2x16float(pack_halves(v.zw)));\n}\n",
        );
    }
    if rounds(DType::U8) {
        out.push_str("fn as_byte(v: vec4<u32>) -> vec4<u32> { return v & vec4<u32>(0xffu); }\n");
    }
    out.push('\n');
}

/// The text of an operation, a function `op`, under its own name and with its types spelled out.
fn with_types(text: &str, from: &str, to: &str, function: &str, node: &Node) -> String {
    let mut out = String::with_capacity(2 * text.len());
    let mut rest = text;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    while let Some(at) = rest.find(is_part) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        // A field of something is no alias.
        let is_field = out.ends_with('.');
        match &rest[..end] {
            field if is_field => out.push_str(field),
            "op" => out.push_str(function),
            "A" => push(&mut out, format_args!("vec4<{from}>")),
            "T" => out.push_str(from),
            "Y" => push(&mut out, format_args!("vec4<{to}>")),
            "E" => out.push_str(to),
            other => out.push_str(other),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    for (which, (slot, spelled)) in node.scalars.iter().zip(SCALARS).enumerate() {
        if slot.is_some() {
            out = out.replace(spelled, &format!("s{which}"));
            out = out.replacen(") -> ", &format!(", s{which}: u32) -> "), 1);
        }
    }
    out
}

/// Does its value change on the way through memory?
fn needs_narrowing(node: &Node) -> bool {
    const EXACT: [&str; 7] = ["where", "same", "relu", "neg", "abs", "maximum", "minimum"];
    match node.dtype {
        DType::F16 => !(EXACT.contains(&node.section) && node.main == DType::F16),
        DType::U8 => true,
        _ => false,
    }
}

/// Coordinates in the dimensions, and which element of each mapped leaf they name.
fn push_maps(out: &mut String, structure: &Structure, places: &Places) {
    let rank = structure.rank;
    let dim = |d: usize| word(places.dims + d);
    push(
        out,
        format_args!(
            "alias C = array<u32, {rank}>;\n\
             fn coordinates(k: u32) -> C {{\n  var c: C;\n  var r = k;\n"
        ),
    );
    for d in (1..rank).rev() {
        let dim = dim(d);
        push(
            out,
            format_args!("  let q{d} = r / {dim}; c[{d}] = r - q{d} * {dim}; r = q{d};\n"),
        );
    }
    out.push_str("  c[0] = r;\n  return c;\n}\n");
    if !structure.whole {
        out.push_str("fn next(from_c: C) -> C {\n  var c = from_c;\n");
        for d in (1..rank).rev() {
            let dim = dim(d);
            push(
                out,
                format_args!("  c[{d}] += 1u; if (c[{d}] < {dim}) {{ return c; }} c[{d}] = 0u;\n"),
            );
        }
        out.push_str("  c[0] += 1u;\n  return c;\n}\n");
    }
    out.push_str(
        "// Of each operand that is read through a map, the element at some coordinates.\n",
    );
    let mapped = mapped(structure);
    let fields: String = (mapped
        .iter()
        .map(|&leaf| format!(" {}: u32,", LEAVES[leaf])))
    .collect();
    push(out, format_args!("struct At {{{fields} }}\n"));
    let elements = mapped.iter().map(|&leaf| {
        let mut sum = word(places.offsets[leaf]);
        for d in 0..rank {
            let stride = word(places.strides[leaf] + d);
            push(&mut sum, format_args!(" + c[{d}] * {stride}"));
        }
        sum
    });
    let elements = elements.collect::<Vec<_>>().join(", ");
    push(
        out,
        format_args!("fn at(c: C) -> At {{ return At({elements}); }}\n"),
    );
}

/// The leaves that are read through maps.
fn mapped(structure: &Structure) -> Vec<usize> {
    let leaves = 0..structure.leaves.len();
    leaves
        .filter(|&leaf| structure.leaves[leaf].fetch.is_mapped())
        .collect()
}

/// The function that makes one quad.
fn push_quad(out: &mut String, structure: &Structure, places: &Places) {
    let at = match structure.is_mapped() && structure.whole {
        true => ", i: At",
        false => "",
    };
    push(out, format_args!("fn quad(k: u32{at}) {{\n"));
    if structure.is_mapped() && !structure.whole {
        out.push_str("  let c0 = coordinates(k);\n  let i0 = at(c0);\n");
        for lane in 1..4 {
            let before = lane - 1;
            push(
                out,
                format_args!("  let c{lane} = next(c{before});\n  let i{lane} = at(c{lane});\n"),
            );
        }
    }
    for leaf in 0..structure.leaves.len() {
        push_leaf(out, structure, places, leaf);
    }
    for (number, node) in structure.nodes.iter().enumerate() {
        let value = call(structure, places, number, node);
        push(out, format_args!("  let t{number} = {value};\n"));
    }
    let mut start = places.starts;
    let lanes = "vec4<u32>(0u, 1u, 2u, 3u)";
    for (shape, y) in structure.outs.iter().zip(OUTS) {
        let node = shape.node;
        if !shape.is_into {
            push(out, format_args!("  {y}_put4(k, t{node});\n"));
            continue;
        }
        let o = format!("{} + k", word(start));
        start += 1;
        push(
            out,
            format_args!(
                "  if (p.w0.x - k >= 4u) {{\n    {y}_put4({o}, t{node});\n  }} else {{\n    \
                 // What lies behind a part stays as it is.\n    {y}_put4({o}, \
                 select({y}_get4({o}), t{node}, {lanes} < vec4<u32>(p.w0.x - k)));\n  }}\n"
            ),
        );
    }
    out.push_str("}\n");
}

fn push_leaf(out: &mut String, structure: &Structure, places: &Places, leaf: usize) {
    let name = LEAVES[leaf];
    let kind = structure.leaves[leaf].dtype.wgsl();
    let offset = || word(places.offsets[leaf]);
    let lane = |lane: usize| match (structure.whole, lane) {
        (false, _) => format!("{name}_get(i{lane}.{name})"),
        (true, 0) => format!("{name}_get(i.{name})"),
        (true, _) => {
            let stride = word(places.strides[leaf] + structure.rank - 1);
            format!("{name}_get(i.{name} + {lane}u * {stride})")
        }
    };
    let quad = match structure.leaves[leaf].fetch {
        Fetch::InOrder => format!("{name}_get4(k)"),
        Fetch::One => format!("vec4<{kind}>({name}_get({}))", offset()),
        Fetch::Quad => format!("{name}_get4(i.{name})"),
        Fetch::Splat => format!("vec4<{kind}>({})", lane(0)),
        Fetch::Strided => {
            let [x, y, z, w] = [0, 1, 2, 3].map(lane);
            format!("vec4<{kind}>({x}, {y}, {z}, {w})")
        }
    };
    push(out, format_args!("  let {name} = {quad};\n"));
}

/// The call that makes a node.
fn call(structure: &Structure, places: &Places, number: usize, node: &Node) -> String {
    let kind = node.main.wgsl();
    let slot = |slot: u8| word(places.scalars + usize::from(slot));
    let mut arguments: Vec<String> = Vec::new();
    for input in &node.inputs {
        arguments.push(match *input {
            Input::Leaf(leaf) => LEAVES[usize::from(leaf)].to_string(),
            Input::Node(node) => format!("t{node}"),
            Input::Scalar(number) => format!("vec4<{kind}>(bitcast<{kind}>({}))", slot(number)),
        });
    }
    arguments.extend(node.scalars.iter().flatten().map(|&number| slot(number)));
    let call = format!("{}({})", function(node), arguments.join(", "));
    // What is only stored is narrowed by that.
    let reads = |other: &Node| other.inputs.contains(&Input::Node(number as u8));
    let is_read = structure.nodes.iter().any(reads);
    match node.dtype {
        _ if !is_read || !needs_narrowing(node) => call,
        DType::F16 => format!("as_half({call})"),
        DType::U8 => format!("as_byte({call})"),
        _ => call,
    }
}

/// Calls `quad` for every quad of an invocation.
fn push_main(out: &mut String, structure: &Structure, places: &Places) {
    let each = structure.each;
    out.push_str(
        "\n@compute @workgroup_size(64)\nfn main(\n  @builtin(workgroup_id) group: vec3<u32>,\n  \
         @builtin(num_workgroups) groups: vec3<u32>,\n  \
         @builtin(local_invocation_index) lane: u32,\n) {\n  \
         let thread = (group.y * groups.x + group.x) * 64u + lane;\n  \
         // The last quad may pass the end: the padding of a storage belongs to it.\n  \
         let quads = (p.w0.x + 3u) >> 2u;\n",
    );
    let is_mapped = structure.is_mapped() && structure.whole;
    if is_mapped && structure.together {
        let first = 4 * each;
        push(
            out,
            format_args!("  let i = at(coordinates(thread * {first}u));\n"),
        );
    }
    for quad in 0..each {
        let q = format!("thread * {each}u + {quad}u");
        let k = format!("({q}) << 2u");
        let i = match (is_mapped, structure.together) {
            (false, _) => String::new(),
            (true, false) => format!(", at(coordinates({k}))"),
            (true, true) => {
                let steps = mapped(structure).into_iter().map(|leaf| {
                    let stride = word(places.strides[leaf] + structure.rank - 1);
                    format!("i.{} + {}u * {stride}", LEAVES[leaf], 4 * quad)
                });
                format!(", At({})", steps.collect::<Vec<_>>().join(", "))
            }
        };
        push(
            out,
            format_args!("  if ({q} < quads) {{ quad({k}{i}); }}\n"),
        );
    }
    out.push_str("}\n");
}
