//! Builds the whole shader of a kernel: declares the operands of its text for a layout.
//!
//! wgpu forbids binding one buffer both read-only and read-write in one dispatch. WGSL cannot
//! override the access of a binding. One binding shows at most a window of a large operand. So the
//! engine writes the declarations last, from a [`Layout`]. The layout says which operands coincide
//! (one *part* each), whether the kernel may write to a part, and how many windows the part has.
//!
//! Every binding is an array of words or of vec4s of words. The accessors bit-cast operands on the
//! way in and out, which costs nothing. So operands of one part may even differ in type.

/// Appends a line.
macro_rules! line {
    ($out:expr, $($text:tt)*) => {{
        // Writing to a String cannot fail.
        let _ = std::fmt::Write::write_fmt($out, format_args!("{}\n", format_args!($($text)*)));
    }};
}

mod access;
mod pages;

use super::{MAX_OPERANDS, Operand, Role, Variant};
use crate::driver::BindingAccess;
use crate::dtype::DType;
use access::declare_operand;
use pages::{declare_pages, pages_of};

/// The bindings of a kernel's operands. The kernel, the variant and the layout are the key of a
/// pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The part of each operand. Operands of one storage share a part. Parts are numbered from 0 in
    /// the order of first appearance.
    pub parts: [u8; MAX_OPERANDS],
    /// The number of windows of each part, at least 1.
    pub windows: [u8; MAX_OPERANDS],
    /// Bit `k`: part `k` is bound read-write, because the command writes one of its operands or
    /// another part of the same slab.
    pub writable: u8,
}

impl Layout {
    /// The number of parts of the first `operands` operands.
    pub(super) fn part_count(&self, operands: usize) -> usize {
        let last = self.parts[..operands].iter().max();
        last.map_or(0, |&last| usize::from(last) + 1)
    }

    /// The access of each binding, in order: all windows of the first part, then of the next.
    pub(crate) fn bindings(&self, operands: usize) -> Vec<BindingAccess> {
        let mut bindings = Vec::new();
        for part in 0..self.part_count(operands) {
            let access = match self.writable >> part & 1 {
                0 => BindingAccess::Read,
                _ => BindingAccess::ReadWrite,
            };
            bindings.extend(std::iter::repeat_n(access, usize::from(self.windows[part])));
        }
        bindings
    }

    /// Bit `i`: all operands that binding `i` shows are written whole, and not read. The bits cover
    /// the first 64 bindings; no adapter has more.
    pub(crate) fn written_whole(&self, operands: &[Operand]) -> u64 {
        let (mut bits, mut binding) = (0, 0_u32);
        for part in 0..self.part_count(operands.len()) {
            let mut of_part = operands_of(self, operands.len(), part);
            let is_whole = of_part.all(|index| operands[index].role == Role::Write);
            for _ in 0..self.windows[part] {
                bits |= u64::from(is_whole).checked_shl(binding).unwrap_or(0);
                binding += 1;
            }
        }
        bits
    }
}

/// The demands of the target beside the layout.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The size of a window.
    pub window_bytes: u64,
    /// Whether the parameters are immediates. If not, they are a uniform binding after the storage
    /// bindings.
    pub immediates: bool,
    /// Whether the shader has the `enable` lines that browsers require. Natively naga rejects them.
    pub enables: bool,
    /// Whether vec4s are loaded and stored as words of 64 bits (see `Caps::wide_words`).
    pub wide_words: bool,
}

/// Whether a text calls an accessor of an operand.
fn calls(text: &str, operand: &str, accessor: &str) -> bool {
    text.contains(&format!("{operand}_{accessor}("))
}

/// The whole shader of a kernel's text.
pub fn shader(
    text: &str,
    operands: &[Operand],
    variant: &Variant,
    layout: &Layout,
    target: &Target,
) -> String {
    let mut out = String::with_capacity(text.len() + 2048);
    if text.contains("coop_mat") {
        out.push_str("enable f16;\nenable wgpu_cooperative_matrix;\n");
    }
    if target.enables && text.contains("subgroup") {
        out.push_str("enable subgroups;\n");
    }
    let mut binding = 0;
    let unit = |part| match has_vec8s(text, operands, variant, layout, target, part) {
        true => Unit::Vec8,
        false => unit_of_part(text, operands, variant, layout, part),
    };
    let mut some_are_vec8s = false;
    for part in 0..layout.part_count(operands.len()) {
        let unit = unit(part);
        some_are_vec8s |= unit == Unit::Vec8;
        let stores = operands_of(layout, operands.len(), part)
            .any(|index| operands[index].role != Role::Read);
        match pages_of(operands, layout, part) {
            Some(name) => {
                declare_pages(&mut out, name, layout, part, stores, target, &mut binding);
            }
            None => declare_part(&mut out, layout, part, unit, stores, target, &mut binding),
        }
    }
    if target.wide_words {
        out.push_str(WIDE_WORDS);
    }
    if some_are_vec8s {
        out.push_str(VEC8S);
    }
    let writes = |of: DType| {
        let mut typed = operands.iter().zip(&variant.dtypes);
        typed.any(|(operand, &dtype)| {
            dtype == of && operand.role != Role::Read && calls(text, operand.name, "put4")
        })
    };
    if writes(DType::F16) || text.contains("pack_halves(") {
        out.push_str(PACK_HALVES);
    }
    if writes(DType::Bf16) || text.contains("upper_halves(") {
        out.push_str(UPPER_HALVES);
    }
    for (index, operand) in operands.iter().enumerate() {
        if operand.is_pages {
            continue;
        }
        let part = usize::from(layout.parts[index]);
        declare_operand(
            &mut out,
            text,
            operand,
            variant.dtypes[index],
            part,
            unit(part),
        );
    }
    if text.contains("struct Params") {
        let declaration = match target.immediates {
            true => "var<immediate> p: Params;\n".to_string(),
            false => format!("@group(0) @binding({binding}) var<uniform> p: Params;\n"),
        };
        out.push_str(&declaration);
    }
    out.push_str(text);
    out
}

/// Conversions from and to words of 64 bits. The low half is the first word.
const WIDE_WORDS: &str = "fn from_wide2(v: u64) -> vec2<u32> {
  return vec2<u32>(u32(v), u32(v >> 32u));
}
fn from_wide4(v: vec2<u64>) -> vec4<u32> {
  let low = vec2<u32>(v);
  let high = vec2<u32>(v >> vec2<u32>(32u));
  return vec4<u32>(low.x, high.x, low.y, high.y);
}
fn to_wide2(v: vec2<u32>) -> u64 {
  return u64(v.x) | (u64(v.y) << 32u);
}
fn to_wide4(v: vec4<u32>) -> vec2<u64> {
  return vec2<u64>(v.xz) | (vec2<u64>(v.yw) << vec2<u32>(32u));
}
";

/// Conversions of two vec4s from and to four words of 64 bits.
const VEC8S: &str = "struct Vec8 { low: vec4<u32>, high: vec4<u32> }
fn to_wide8(v: Vec8) -> vec4<u64> {
  let low = vec4<u64>(vec4<u32>(v.low.xz, v.high.xz));
  return low | (vec4<u64>(vec4<u32>(v.low.yw, v.high.yw)) << vec4<u32>(32u));
}
fn from_wide8(v: vec4<u64>) -> Vec8 {
  let low = vec4<u32>(v);
  let high = vec4<u32>(v >> vec4<u32>(32u));
  return Vec8(vec4<u32>(low.x, high.x, low.y, high.y), vec4<u32>(low.z, high.z, low.w, high.w));
}
";

/// Converts two f32 to two f16, rounded to nearest, ties to even, as every host does. WGSL's
/// `pack2x16float` may round either way, and its result is undefined above the largest f16.
///
/// For a number below the least normal f16, the last bits of 0.5 + x are the f16. For others the
/// exponent moves, and the cut-off bits round the rest; a carry may make infinity.
const PACK_HALVES: &str = "fn pack_halves(v: vec2<f32>) -> u32 {
  let bits = bitcast<vec2<u32>>(v);
  let size = bits & vec2<u32>(0x7fffffffu);
  let odd = (size >> vec2<u32>(13u)) & vec2<u32>(1u);
  let normal = (size - vec2<u32>(0x38000000u) + vec2<u32>(0xfffu) + odd) >> vec2<u32>(13u);
  let tiny = bitcast<vec2<u32>>(abs(v) + vec2<f32>(0.5)) - vec2<u32>(0x3f000000u);
  var h = select(normal, tiny, size < vec2<u32>(0x38800000u));
  h = select(h, vec2<u32>(0x7c00u), size >= vec2<u32>(0x47800000u));
  h = select(h, vec2<u32>(0x7e00u), size > vec2<u32>(0x7f800000u));
  h |= (bits >> vec2<u32>(16u)) & vec2<u32>(0x8000u);
  return h.x | (h.y << 16u);
}
";

/// Rounds four f32 to bf16 in their upper halves, to nearest, ties to even. A carry moves the
/// exponent, up to infinity. NaN stays NaN.
const UPPER_HALVES: &str = "fn upper_halves(v: vec4<f32>) -> vec4<u32> {
  let bits = bitcast<vec4<u32>>(v);
  let odd = (bits >> vec4<u32>(16u)) & vec4<u32>(1u);
  let near = bits + vec4<u32>(0x7fffu) + odd;
  let is_nan = (bits & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  return select(near, bits | vec4<u32>(0x400000u), is_nan) & vec4<u32>(0xffff0000u);
}
";

/// The element type of a binding's array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// One word.
    Word,
    /// Four elements of two bytes, eight of one, or two of four: two words.
    Words2,
    /// Four elements of four bytes: four words.
    Words4,
    /// Eight elements of four bytes, as words of 64 bits.
    Vec8,
}

impl Unit {
    fn wgsl(self) -> &'static str {
        match self {
            Unit::Word => "u32",
            Unit::Words2 => "vec2<u32>",
            Unit::Words4 => "vec4<u32>",
            Unit::Vec8 => "Vec8",
        }
    }

    /// The element type of the bound array, and the conversions from and to it.
    fn bound(self, wide_words: bool) -> (&'static str, [&'static str; 2]) {
        match (self, wide_words) {
            (Unit::Words2, true) => ("u64", ["from_wide2", "to_wide2"]),
            (Unit::Words4, true) => ("vec2<u64>", ["from_wide4", "to_wide4"]),
            (Unit::Vec8, _) => ("vec4<u64>", ["from_wide8", "to_wide8"]),
            (unit, _) => (unit.wgsl(), ["", ""]),
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Unit::Word => 4,
            Unit::Words2 => 8,
            Unit::Words4 => 16,
            Unit::Vec8 => 32,
        }
    }
}

/// The operands of a part.
fn operands_of(layout: &Layout, operands: usize, part: usize) -> impl Iterator<Item = usize> {
    (0..operands).filter(move |&index| usize::from(layout.parts[index]) == part)
}

/// Whether a part can be bound as vec8s. All accesses to its operands must be vec8s, and it must
/// have one window. The end of another window might be shorter than a vec8.
fn has_vec8s(
    text: &str,
    operands: &[Operand],
    variant: &Variant,
    layout: &Layout,
    target: &Target,
    part: usize,
) -> bool {
    let all = operands_of(layout, operands.len(), part).all(|index| {
        let calls = |accessor| calls(text, operands[index].name, accessor);
        let is_of_vec8s = match operands[index].role {
            Role::Read => calls("get8"),
            Role::Write => calls("put8") && !calls("put4"),
            Role::Update => false,
        };
        variant.dtypes[index] == DType::F32 && variant.vec4s >> index & 1 == 1 && is_of_vec8s
    });
    target.wide_words && layout.windows[part] == 1 && all
}

/// Vec4s if every operand of the part uses vec4s of the same size, else words. Bytes that are read
/// eight at a time are two words, and words that are read in pairs.
fn unit_of_part(
    text: &str,
    operands: &[Operand],
    variant: &Variant,
    layout: &Layout,
    part: usize,
) -> Unit {
    let mut unit = None;
    for index in operands_of(layout, operands.len(), part) {
        let wanted = match (
            variant.vec4s >> index & 1,
            variant.dtypes[index].size_bytes(),
        ) {
            (1, 4) => Unit::Words4,
            (1, 2) => Unit::Words2,
            (1, 1) if calls(text, operands[index].name, "get8") => Unit::Words2,
            (0, 4) if calls(text, operands[index].name, "get2") => Unit::Words2,
            _ => Unit::Word,
        };
        if unit.is_some_and(|unit| unit != wanted) {
            return Unit::Word;
        }
        unit = Some(wanted);
    }
    unit.unwrap_or(Unit::Word)
}

/// Declares the variables of a part's windows, and `b0_load`, which chooses among them. Declares
/// `b0_store` too if the command writes an operand of the part.
fn declare_part(
    out: &mut String,
    layout: &Layout,
    part: usize,
    unit: Unit,
    stores: bool,
    target: &Target,
    binding: &mut u32,
) {
    let unit_name = unit.wgsl();
    let [load, store] = declare_windows(out, layout, part, unit, target, binding);
    let windows = u64::from(layout.windows[part]);
    let units = target.window_bytes / unit.bytes();
    // An `if` for each window, side by side, and one return. FXC treats many returns as deep
    // nesting and fails. SwiftShader took 24 GB for a text with 32 such loads.
    line!(out, "fn b{part}_load(u: u32) -> {unit_name} {{");
    if windows > 1 {
        line!(out, "  var v = {unit_name}();");
    }
    for window in 0..windows {
        let index = offset("u", window * units);
        let value = format_args!("{load}(b{part}_{window}[{index}])");
        match condition(window, windows, units) {
            Some(here) => line!(out, "  if ({here}) {{ v = {value}; }}"),
            None => line!(out, "  return {value};"),
        }
    }
    if windows > 1 {
        line!(out, "  return v;");
    }
    line!(out, "}}");
    if !stores {
        return;
    }
    line!(out, "fn b{part}_store(u: u32, v: {unit_name}) {{");
    for window in 0..windows {
        let index = offset("u", window * units);
        let store = format_args!("b{part}_{window}[{index}] = {store}(v);");
        match condition(window, windows, units) {
            Some(here) => line!(out, "  if ({here}) {{ {store} }}"),
            None => line!(out, "  {store}"),
        }
    }
    line!(out, "}}");
}

/// Declares the variables of a part's windows. Returns the functions around a load and a store.
fn declare_windows(
    out: &mut String,
    layout: &Layout,
    part: usize,
    unit: Unit,
    target: &Target,
    binding: &mut u32,
) -> [&'static str; 2] {
    let access = match layout.writable >> part & 1 {
        0 => "read",
        _ => "read_write",
    };
    let (bound, functions) = unit.bound(target.wide_words);
    for window in 0..layout.windows[part] {
        line!(
            out,
            "@group(0) @binding({binding}) var<storage, {access}> b{part}_{window}: array<{bound}>;"
        );
        *binding += 1;
    }
    functions
}

/// Whether the unit `u` is in a window of `units` units. `None` if there is only one.
fn condition(window: u64, windows: u64, units: u64) -> Option<String> {
    let (start, end) = (window * units, (window + 1) * units);
    match (window > 0, window + 1 < windows) {
        (false, false) => None,
        (false, true) => Some(format!("u < {end}u")),
        (true, true) => Some(format!("u - {start}u < {units}u")),
        (true, false) => Some(format!("u >= {start}u")),
    }
}

fn offset(name: &str, by: u64) -> String {
    match by {
        0 => name.to_string(),
        by => format!("{name} - {by}u"),
    }
}

#[cfg(test)]
mod tests;
