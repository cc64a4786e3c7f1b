//! The WGSL of a fused kernel. Every operation is a function from its family's file, and every node
//! is a line.

mod vec4s;

use std::fmt::Write;

use smallvec::SmallVec;

use super::name;
use super::structure::{ExprNode, Fetch, Input, Places, Structure, TailShape, WORDS, ZERO};
use crate::ops::elementwise::element::SCALARS;
use crate::ops::functions::push_functions;
use crate::ops::readers::{READER_WORDS, unseen_word};
use lapidary_core::DType;
use lapidary_core::internal::sections::with_words;

/// Names of operands that are read, in a kernel without a reader.
pub(super) const LEAVES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The same for an expression before a reader.
const LEAVES_OF_X: [&str; 8] = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];

/// The same for an expression after a reader.
const LEAVES_OF_Y: [&str; 8] = ["z0", "z1", "z2", "z3", "z4", "z5", "z6", "z7"];

/// Names of operands that are written.
pub(super) const OUTS: [&str; 8] = ["y0", "y1", "y2", "y3", "y4", "y5", "y6", "y7"];

/// The names of an expression's leaves.
pub(super) fn leaf_names(structure: &Structure) -> &'static [&'static str; 8] {
    match (&structure.tail, &structure.head) {
        (None, None) => &LEAVES,
        (Some(_), _) => &LEAVES_OF_X,
        (None, Some(_)) => &LEAVES_OF_Y,
    }
}

/// State shared by the functions that write parts of the text.
struct Writer<'a> {
    structure: &'a Structure,
    places: Places,
    /// The expression after the reader, if this one is before it.
    onward: Option<&'a Structure>,
    /// Suffix of the names of its maps, to tell them from another expression's.
    of: &'static str,
    /// The names of the leaves.
    leaves: &'static [&'static str],
    /// The positions of its words among the parameters.
    slots: SmallVec<[usize; WORDS]>,
    out: String,
}

/// The text, without the declarations of operands and `p`.
pub(super) fn text(structure: &Structure) -> String {
    let mut writer = Writer::new(structure);
    writer.push(format_args!("// {}\n", name::formulas(structure)));
    match structure.reader() {
        None => writer.push_whole(),
        Some(reader) => writer.push_reader(reader),
    }
    push_functions(&mut writer.out);
    writer.out
}

impl<'a> Writer<'a> {
    fn new(structure: &'a Structure) -> Self {
        Writer {
            structure,
            places: structure.places(),
            onward: None,
            of: "",
            leaves: leaf_names(structure),
            slots: structure.slots(),
            out: String::with_capacity(4 << 10),
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        push(&mut self.out, text);
    }

    /// The WGSL expression for a word of the parameters.
    fn word(&self, index: usize) -> String {
        let index = (self.onward).map_or(index, |onward| onward.word_before(index));
        let slot = self.slots.get(index).copied().unwrap_or_default();
        let lanes = ["x", "y", "z", "w"];
        match self.structure.reader() {
            None => format!("p.w{}.{}", slot / 4, lanes[slot % 4]),
            Some(_) if slot >= READER_WORDS => {
                format!("p.x{}.{}", (slot - READER_WORDS) / 4, lanes[slot % 4])
            }
            Some(_) => {
                let (vector, lane) = unseen_word(slot);
                format!("p.{vector}.{}", lanes[lane])
            }
        }
    }

    /// The fields that hold the parameters, after those of a reader.
    fn fields(&self) -> String {
        let words = self.structure.words().unwrap_or(0);
        let (name, own) = match self.structure.reader() {
            None => ("w", 0),
            Some(_) => ("x", READER_WORDS),
        };
        let field = |index| format!(" {name}{index}: vec4<u32>,");
        (0..words.saturating_sub(own) / 4).map(field).collect()
    }

    /// Writes a kernel without a reader.
    fn push_whole(&mut self) {
        let fields = self.fields();
        self.push(format_args!("struct Params {{{fields} }}\n"));
        self.push_steps();
        if self.structure.is_mapped() {
            self.push_maps();
        }
        match self.structure.vec8s {
            true => self.push_vec8(),
            false => self.push_vec4(),
        }
        self.push_main();
    }

    /// Writes a reader's kernel with the expression that computes its `x`, or with the one that
    /// reads its `y`, or with both.
    fn push_reader(&mut self, reader: &TailShape) {
        let text = (reader.reader.kernel.text)(&reader.variant);
        let fields = self.fields();
        // After the reader's own parameters.
        let whole = match text.split_once("struct Params {") {
            Some((before, after)) => {
                let (its, after) = after.split_once('}').unwrap_or((after, ""));
                format!("{before}struct Params {{{its} {fields}\n}}{after}")
            }
            None => text.into_owned(),
        };
        self.out.push_str(&whole);
        self.out.push('\n');
        self.push_steps();
        let structure = self.structure;
        if let Some(before) = structure.before.as_deref() {
            let mut its = Writer {
                onward: Some(structure),
                out: std::mem::take(&mut self.out),
                ..Writer::new(before)
            };
            its.push_x(&whole, reader);
            self.out = its.out;
            self.of = "_of_y";
        }
        match structure.head {
            None => self.push_x(&whole, reader),
            Some(_) => self.push_y(),
        }
    }

    /// Writes the functions that compute `x`, as far as the text of the reader calls them.
    fn push_x(&mut self, reader: &str, shape: &TailShape) {
        self.out.push_str("// How `x` is computed.\n");
        if self.structure.is_mapped() {
            self.push_maps();
        }
        let kind = shape.variant.dtypes[0].wgsl();
        if reader.contains("x_get4(") {
            self.push(format_args!("fn x_get4(k: u32) -> vec4<{kind}> {{\n"));
            self.push_elements(self.structure.whole);
            self.push_lanes();
            self.push_leaves(Self::leaf);
            self.push_nodes();
            self.push_result("");
        }
        if reader.contains("x_get(") {
            self.push(format_args!("fn x_get(k: u32) -> {kind} {{\n"));
            self.push_elements(true);
            self.push_leaves(Self::leaf_alone);
            self.push_nodes();
            self.push_result(".x");
        }
    }

    /// Writes the function that continues with `y`.
    fn push_y(&mut self) {
        self.out.push_str("// What is computed from `y`.\n");
        if self.structure.is_mapped() {
            self.push_maps();
        }
        let kind = self.structure.leaves[self.structure.bound()].dtype.wgsl();
        self.push(format_args!("fn y_put4(k: u32, v: vec4<{kind}>) {{\n"));
        self.push_elements(self.structure.whole);
        self.push_lines();
    }

    /// Computes the positions in mapped leaves of the first element, if `is_wanted`.
    fn push_elements(&mut self, is_wanted: bool) {
        if self.structure.is_mapped() && is_wanted {
            let of = self.of;
            self.push(format_args!(
                "  let i = elements{of}_at(coordinates{of}(k));\n"
            ));
        }
    }

    /// Writes the functions that the nodes' lines call.
    fn push_steps(&mut self) {
        let structures = [self.structure.before.as_deref(), Some(self.structure)];
        push_operations(&mut self.out, structures.into_iter().flatten());
        let is_float = |node: &ExprNode| node.dtype.is_float() || node.main.is_float();
        if self.structure.head.is_some() || self.structure.nodes.iter().any(is_float) {
            let zero = self.word(ZERO);
            self.push(format_args!(
                "// Zero changes nothing, but compilers do not know that it is zero: what follows is not \
                 computed\n// from how this came about. Else x - x might be 0 for an infinity, or a \
                 product rounded with a sum.\n\
                 fn as_is(v: vec4<f32>) -> vec4<f32> {{\n  \
                 return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4<u32>({zero}));\n}}\n"
            ));
        }
    }

    fn push_result(&mut self, lane: &str) {
        let node = self.structure.outs[0].node;
        self.push(format_args!("  return t{node}{lane};\n}}\n"));
    }

    /// Writes functions from an element's number to coordinates, and from those to positions in
    /// mapped leaves.
    fn push_maps(&mut self) {
        let (rank, of) = (self.structure.rank, self.of);
        let dims: Vec<String> = (0..rank).map(|d| self.word(self.places.dims + d)).collect();
        self.push(format_args!(
            "alias Coordinates{of} = array<u32, {rank}>;\n\
             fn coordinates{of}(k: u32) -> Coordinates{of} {{\n  var c: Coordinates{of};\n  var r = k;\n"
        ));
        for d in (1..rank).rev() {
            let dim = &dims[d];
            self.push(format_args!(
                "  let q{d} = r / {dim}; c[{d}] = r - q{d} * {dim}; r = q{d};\n"
            ));
        }
        self.out.push_str("  c[0] = r;\n  return c;\n}\n");
        if !self.structure.whole {
            // The last vec4 may pass the end. Lanes past the end read the last element again.
            let n = self.word(0);
            self.push(format_args!(
                "fn next_coordinates{of}(before: Coordinates{of}, k: u32) -> Coordinates{of} {{\n  \
                 if (k >= {n}) {{ return before; }}\n  var c = before;\n"
            ));
            for d in (1..rank).rev() {
                let dim = &dims[d];
                self.push(format_args!(
                    "  c[{d}] += 1u; if (c[{d}] < {dim}) {{ return c; }} c[{d}] = 0u;\n"
                ));
            }
            self.out.push_str("  c[0] += 1u;\n  return c;\n}\n");
        }
        self.out.push_str(
            "// Of each operand that is read through a map, the element at some coordinates.\n",
        );
        let mapped = self.mapped();
        let fields: String = (mapped.iter())
            .map(|&leaf| format!(" {}: u32,", self.leaves[leaf]))
            .collect();
        self.push(format_args!("struct Elements{of} {{{fields} }}\n"));
        let elements = mapped.iter().map(|&leaf| {
            let mut sum = self.word(self.places.offsets[leaf]);
            for d in 0..rank {
                let stride = self.word(self.places.strides[leaf] + d);
                push(&mut sum, format_args!(" + c[{d}] * {stride}"));
            }
            sum
        });
        let elements = elements.collect::<Vec<_>>().join(", ");
        self.push(format_args!(
            "fn elements{of}_at(c: Coordinates{of}) -> Elements{of} {{ \
             return Elements{of}({elements}); }}\n"
        ));
    }

    /// The leaves that are read through maps.
    fn mapped(&self) -> Vec<usize> {
        let leaves = 0..self.structure.leaves.len();
        leaves
            .filter(|&leaf| self.structure.leaves[leaf].fetch.is_mapped())
            .collect()
    }

    /// If a vec4 may span two rows, computes the positions for each of its elements.
    fn push_lanes(&mut self) {
        if !self.structure.is_mapped() || self.structure.whole {
            return;
        }
        let of = self.of;
        self.push(format_args!(
            "  let c0 = coordinates{of}(k);\n  let i0 = elements{of}_at(c0);\n"
        ));
        for lane in 1..4 {
            let before = lane - 1;
            self.push(format_args!(
                "  let c{lane} = next_coordinates{of}(c{before}, k + {lane}u);\n  \
                 let i{lane} = elements{of}_at(c{lane});\n"
            ));
        }
    }

    /// Writes the lines that compute and store one vec4, and closes the function.
    fn push_lines(&mut self) {
        self.push_lanes();
        self.push_leaves(Self::leaf);
        self.push_nodes();
        let mut start = self.places.starts;
        let n = self.word(0);
        let lanes = "vec4<u32>(0u, 1u, 2u, 3u)";
        for (shape, y) in self.structure.outs.iter().zip(OUTS) {
            let node = shape.node;
            if !shape.is_into {
                self.push(format_args!("  {y}_put4(k, t{node});\n"));
                continue;
            }
            let o = format!("{} + k", self.word(start));
            start += 1;
            self.push(format_args!(
                "  if ({n} - k >= 4u) {{\n    {y}_put4({o}, t{node});\n  }} else {{\n    \
                 // The bytes past the end of a part stay as they are.\n    {y}_put4({o}, \
                 select({y}_get4({o}), t{node}, {lanes} < vec4<u32>({n} - k)));\n  }}\n"
            ));
        }
        self.out.push_str("}\n");
    }

    fn push_leaves(&mut self, read: impl Fn(&Self, usize) -> String) {
        for leaf in 0..self.structure.leaves.len() {
            let name = self.leaves[leaf];
            let value = match self.structure.leaves[leaf].dtype {
                _ if leaf < self.structure.bound() => read(self, leaf),
                // As if it had been read back from memory.
                DType::F32 => "as_is(v)".to_string(),
                dtype => match narrowing(dtype) {
                    Some((function, _)) => format!("{function}(v)"),
                    None => "v".to_string(),
                },
            };
            self.push(format_args!("  let {name} = {value};\n"));
        }
    }

    fn push_nodes(&mut self) {
        for (number, node) in self.structure.nodes.iter().enumerate() {
            let value = self.call(number, node);
            self.push(format_args!("  let t{number} = {value};\n"));
        }
    }

    /// A vec4 of a leaf.
    fn leaf(&self, leaf: usize) -> String {
        let name = self.leaves[leaf];
        let shape = self.structure.leaves[leaf];
        let kind = shape.dtype.wgsl();
        let lane = |lane: usize| match (self.structure.whole, lane) {
            (false, _) => format!("{name}_get(i{lane}.{name})"),
            (true, 0) => format!("{name}_get(i.{name})"),
            (true, _) => {
                let stride = self.word(self.places.strides[leaf] + self.structure.rank - 1);
                // A vec4 of a whole row can pass the end only if there is one dimension.
                let step = match self.structure.rank {
                    1 => format!("min({lane}u, {} - 1u - k)", self.word(0)),
                    _ => format!("{lane}u"),
                };
                format!("{name}_get(i.{name} + {step} * {stride})")
            }
        };
        match shape.fetch {
            Fetch::InOrder => format!("{name}_get4(k)"),
            Fetch::One => {
                let offset = self.word(self.places.offsets[leaf]);
                format!("vec4<{kind}>({name}_get({offset}))")
            }
            Fetch::Vec4 => format!("{name}_get4(i.{name})"),
            Fetch::Splat => format!("vec4<{kind}>({})", lane(0)),
            Fetch::Strided => {
                let [x, y, z, w] = [0, 1, 2, 3].map(lane);
                format!("vec4<{kind}>({x}, {y}, {z}, {w})")
            }
        }
    }

    /// One element of a leaf, repeated four times.
    fn leaf_alone(&self, leaf: usize) -> String {
        let name = self.leaves[leaf];
        let shape = self.structure.leaves[leaf];
        let element = match shape.fetch {
            Fetch::InOrder => "k".to_string(),
            Fetch::One => self.word(self.places.offsets[leaf]),
            _ => format!("i.{name}"),
        };
        format!("vec4<{}>({name}_get({element}))", shape.dtype.wgsl())
    }

    /// The call that computes a node.
    fn call(&self, number: usize, node: &ExprNode) -> String {
        let kind = node.main.wgsl();
        let slot = |slot: u8| self.word(self.places.scalars + usize::from(slot));
        let mut arguments: Vec<String> = Vec::new();
        if node.inputs.is_empty() {
            arguments.push("k".to_string());
        }
        for (index, input) in node.inputs.iter().enumerate() {
            let argument = match *input {
                Input::Leaf(leaf) => self.leaves[usize::from(leaf)].to_string(),
                Input::Node(node) => format!("t{node}"),
                Input::Scalar(number) => {
                    format!("vec4<{kind}>(bitcast<{kind}>({}))", slot(number))
                }
            };
            // As if it had been read from memory twice. The compiler must not see that both are the
            // same.
            let is_again = kind == "f32" && node.inputs[..index].contains(input);
            arguments.push(match is_again {
                true => format!("as_is({argument})"),
                false => argument,
            });
        }
        arguments.extend(node.scalars.iter().flatten().map(|&number| slot(number)));
        let call = format!("{}({})", function(node), arguments.join(", "));
        // A store narrows values that no other node reads.
        let reads = |other: &ExprNode| other.inputs.contains(&Input::Node(number as u8));
        let is_read = self.structure.tail.is_some() || self.structure.nodes.iter().any(reads);
        match node.dtype {
            _ if !is_read => call,
            dtype => match narrowing(dtype).filter(|_| needs_narrowing(node)) {
                Some((function, _)) => format!("{function}({call})"),
                None if dtype.is_float() => format!("as_is({call})"),
                None => call,
            },
        }
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

/// The name of a node's function. Operations of two families may have one name: then they read
/// different numbers of scalars.
fn function(node: &ExprNode) -> String {
    let (from, to) = (node.main.wgsl(), node.dtype.wgsl());
    let mut name = match node.scalars.iter().flatten().count() {
        0 => format!("{}_{from}", node.section),
        scalars => format!("{}_{scalars}_{from}", node.section),
    };
    if from != to {
        push(&mut name, format_args!("_{to}"));
    }
    name
}

/// Writes the functions of all operations, each once.
fn push_operations<'a>(out: &mut String, structures: impl Iterator<Item = &'a Structure> + Clone) {
    let mut known = Vec::new();
    for node in structures.clone().flat_map(|one| &one.nodes) {
        let function = function(node);
        if known.contains(&function) {
            continue;
        }
        let (from, to) = (node.main.wgsl(), node.dtype.wgsl());
        let text = node.element.text(node.section, from);
        out.push_str(&with_types(text, from, to, &function, node));
        known.push(function);
    }
    let rounds = |dtype: &DType| {
        let of_type = |node: &ExprNode| node.dtype == *dtype && needs_narrowing(node);
        structures.clone().any(|one| {
            let mut made = one.leaves[one.bound()..].iter();
            one.nodes.iter().any(of_type) || made.any(|leaf| leaf.dtype == *dtype)
        })
    };
    let narrowings = DType::ALL.into_iter().filter(rounds);
    for (_, text) in narrowings.filter_map(narrowing) {
        out.push_str("// As it would be read back from memory.\n");
        out.push_str(text);
    }
    out.push('\n');
}

/// The text of an operation's function `op`, with its own name and explicit types.
fn with_types(text: &str, from: &str, to: &str, function: &str, node: &ExprNode) -> String {
    let mut out = with_words(text, |word| match word {
        "op" => Some(function.into()),
        "A" => Some(format!("vec4<{from}>").into()),
        "T" => Some(from.into()),
        "Y" => Some(format!("vec4<{to}>").into()),
        "E" => Some(to.into()),
        _ => None,
    });
    for (which, (slot, spelled)) in node.scalars.iter().zip(SCALARS).enumerate() {
        if slot.is_some() {
            out = out.replace(spelled, &format!("s{which}"));
            out = out.replacen(") -> ", &format!(", s{which}: u32) -> "), 1);
        }
    }
    out
}

/// The name and text of a function that rounds a vec4 as a store and a load would. `None` for types
/// as wide as the ones that kernels compute in.
fn narrowing(dtype: DType) -> Option<(&'static str, &'static str)> {
    match dtype {
        // Mesa 22.3 unpacks the second of two constant halves as 0. So it must not see constants,
        // such as `x <= x`.
        DType::F16 => Some((
            "as_half",
            "fn as_half(x: vec4<f32>) -> vec4<f32> {\n  let v = as_is(x);\n  return vec4<f32>(\
             unpack2x16float(pack_halves(v.xy)), unpack2x16float(pack_halves(v.zw)));\n}\n",
        )),
        DType::Bf16 => Some((
            "as_upper_half",
            "fn as_upper_half(v: vec4<f32>) -> vec4<f32> { \
             return bitcast<vec4<f32>>(upper_halves(v)); }\n",
        )),
        DType::U8 => Some((
            "as_byte",
            "fn as_byte(v: vec4<u32>) -> vec4<u32> { return v & vec4<u32>(0xffu); }\n",
        )),
        DType::I8 => Some((
            "as_signed_byte",
            "fn as_signed_byte(v: vec4<i32>) -> vec4<i32> { \
             return (v << vec4<u32>(24u)) >> vec4<u32>(24u); }\n",
        )),
        DType::F32 | DType::I32 | DType::U32 | DType::Bool => None,
    }
}

/// Whether a store and a load would change its value.
fn needs_narrowing(node: &ExprNode) -> bool {
    const EXACT: [&str; 7] = ["where", "same", "relu", "neg", "abs", "maximum", "minimum"];
    let is_kept = EXACT.contains(&node.section) && node.main == node.dtype;
    narrowing(node.dtype).is_some() && !(is_kept && node.dtype.is_float())
}
