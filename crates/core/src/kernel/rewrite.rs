//! The shader of a custom kernel for one layout: the user's text with rewritten heads of the
//! bindings' declarations.
//!
//! The places of the operands decide which bindings are `read_write` (see
//! [`wgsl`](crate::engine::kernel::wgsl)). The binding numbers are those of the operands. The
//! uniform becomes immediates where the device has them. All other text stays, line for line, so
//! that places in the device's messages are right.

use std::ops::Range;

use super::reflect::{self, Params, Reflection};
use crate::driver::Caps;
use crate::error::Result;
use crate::excerpt::is_line_break;
use crate::memory::CANARY_BYTES;

/// The text where binding `index` is `read_write` if `is_writable(index)`. If bit `index` of
/// `with_canary` is set, its operand is bound with a canary, and its length excludes the canary.
pub(super) fn rewrite(
    kernel: &Reflection,
    is_writable: &dyn Fn(usize) -> bool,
    with_canary: u64,
    immediates: bool,
    enables: bool,
) -> String {
    let mut heads: Vec<(Range<usize>, String)> = Vec::with_capacity(kernel.operands.len() + 1);
    for (binding, operand) in kernel.operands.iter().enumerate() {
        let access = match is_writable(binding) {
            true => "read_write",
            false => "read",
        };
        let head = format!("@group(0) @binding({binding}) var<storage, {access}> ");
        heads.push((operand.at.head.clone(), head));
    }
    if let Some(params) = &kernel.params {
        let binding = kernel.operands.len();
        match (immediates, &params.uses) {
            (true, Some(uses)) => wrap(kernel, params, uses, &mut heads),
            (true, None) => heads.push((params.at.head.clone(), "var<immediate> ".to_owned())),
            (false, _) => {
                let head = format!("@group(0) @binding({binding}) var<uniform> ");
                heads.push((params.at.head.clone(), head));
            }
        }
    }
    // Other entry points are in the module too, so their bindings must get numbers that no operand
    // has.
    for (number, (range, of)) in (kernel.operands.len() + 1..).zip(&kernel.others) {
        let head = format!("@group(0) @binding({number}) var{of} ");
        heads.push((range.clone(), head));
    }
    for (binding, range) in kernel.lengths.iter().flatten() {
        let has_canary = *binding < 8 && with_canary >> binding & 1 == 1;
        let operand = kernel.operands.get(*binding).filter(|_| has_canary);
        if let Some(stride_bytes) = operand.and_then(|one| one.stride_bytes) {
            let canary = CANARY_BYTES / stride_bytes;
            heads.push((range.start..range.start, "(".to_owned()));
            heads.push((range.end..range.end, format!(" - {canary}u)")));
        }
    }
    heads.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(kernel.text.len() + 256);
    if enables && (!kernel.enables.is_empty() || kernel.text.contains("subgroup")) {
        out.push_str("enable subgroups; ");
    }
    let mut at = 0;
    for (range, head) in heads {
        out.push_str(&kernel.text[at..range.start]);
        // Keeps the line breaks of the head.
        out.extend(
            kernel.text[range.clone()]
                .chars()
                .filter(|c| is_line_break(*c)),
        );
        out.push_str(&head);
        at = range.end;
    }
    out.push_str(&kernel.text[at..]);
    out
}

/// Makes the parameters a member of a struct: for DX12, naga writes no other immediates. The type
/// stays at its place.
fn wrap(
    kernel: &Reflection,
    params: &Params,
    uses: &[Range<usize>],
    heads: &mut Vec<(Range<usize>, String)>,
) {
    let (name, at) = (&params.name, &params.at);
    let mut of = "LapidaryParameters".to_owned();
    while kernel.text.contains(&of) {
        of.push('_');
    }
    let head = format!("var<immediate> {name}: {of}; struct {of} {{ value: ");
    heads.push((at.head.start..at.ty.start, head));
    heads.push((at.ty.end..at.ty.end, " }".to_owned()));
    let values = uses.iter().map(|range| range.end..range.end);
    heads.extend(values.map(|range| (range, ".value".to_owned())));
}

/// Checks that the text is also valid when every binding is `read_write`: an output may lie in the
/// same buffer as an input.
pub(super) fn check(kernel: &Reflection, caps: &Caps) -> Result<()> {
    let text = rewrite(kernel, &|_| true, 0, caps.max_immediate_bytes > 0, false);
    let capabilities = reflect::capabilities(caps);
    let preface = "inputs are declared `read_write` where they share a buffer with outputs, and \
                   the uniform may become immediates, so no pointer type may name their access: ";
    reflect::check(&kernel.entry, &text, capabilities, preface).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::driver::sim::{SimDriver, SimOptions};
    use lapidary_testing::translate;

    fn with_immediates(text: &str) -> String {
        let (driver, _) = SimDriver::new(SimOptions::default()).expect("the options go together");
        let kernel = Reflection::new(text, None, driver.caps()).expect("a kernel");
        rewrite(&kernel, &|_| true, 0, true, false)
    }

    #[test]
    fn parameters_of_every_type_are_immediates_that_every_api_takes() {
        for (of, read) in [
            ("f32", "p"),
            ("vec3<f32>", "p.y + p[i % 3u]"),
            ("mat2x2<f32>", "(p * vec2(1.0)).x"),
            ("mat3x3f", "p[1][2]"),
            (
                "array<vec4<f32>, 2 /* of four */>",
                "p[i % 2u].z + (&p)[1].x",
            ),
            ("Own", "p.a"),
        ] {
            let text = format!(
                "struct Own {{ a: f32, b: u32 }}
                @group(0) @binding(1) var<storage, read_write> y: array<f32>;
                @group(0) @binding(0)
                var<uniform> p: {of};
                fn shadow(i: u32) -> f32 {{ let p = 1.0; return p; }}
                fn read(i: u32) -> f32 {{ return {read} + Other(2.0).p + shadow(i); }}
                struct Other {{ p: f32 }}
                @compute @workgroup_size(1)
                fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                  let i = id.x;
                  y[i] = read(i) + {read};
                  {{ var p = 3.0; y[i] += p; }}
                }}"
            );
            let rewritten = with_immediates(&text);
            assert_eq!(
                rewritten.lines().count(),
                text.lines().count(),
                "{rewritten}"
            );
            translate("own_parameters", &rewritten);
        }
    }
}
