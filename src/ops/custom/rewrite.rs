//! The shader of a custom kernel for a layout: the user's text with the heads of its bindings'
//! declarations written anew.
//!
//! Which bindings are read-write depends on where the tensors lie (see [`crate::engine::wgsl`]),
//! the numbers are those of the operands, and the uniform becomes immediates where there are any.
//! All else stays as it is, line for line, so that places in the device's messages are right.

use std::ops::Range;

use super::reflect::{self, Reflection};
use super::tokens::is_line_break;
use crate::driver::Caps;
use crate::error::Result;
use crate::memory::FENCE_BYTES;

/// The text with binding `index` read-write if `is_writable(index)`, and with the length that it has without
/// the fence that it is bound with if bit `index` of `fenced` is set.
pub(super) fn rewrite(
    kernel: &Reflection,
    is_writable: impl Fn(usize) -> bool,
    fenced: u64,
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
        let head = match immediates {
            true => "var<immediate> ".to_owned(),
            false => format!("@group(0) @binding({binding}) var<uniform> "),
        };
        heads.push((params.at.head.clone(), head));
    }
    // Other entry points are in the module too, so what they bind must not have a number of ours.
    for (number, (range, of)) in (kernel.operands.len() + 1..).zip(&kernel.others) {
        let head = format!("@group(0) @binding({number}) var{of} ");
        heads.push((range.clone(), head));
    }
    for (binding, range) in kernel.lengths.iter().flatten() {
        let stride_bytes = kernel
            .operands
            .get(*binding)
            .and_then(|one| one.stride_bytes);
        if let (Some(stride_bytes), true) =
            (stride_bytes, *binding < 8 && fenced >> binding & 1 == 1)
        {
            let fence = FENCE_BYTES / stride_bytes;
            heads.push((range.start..range.start, "(".to_owned()));
            heads.push((range.end..range.end, format!(" - {fence}u)")));
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
        // What the head takes in lines it keeps.
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

/// Checks that the text is valid as well when every binding is read-write: an output may turn
/// out to lie in the same buffer as an input.
pub(super) fn check(kernel: &Reflection, caps: &Caps) -> Result<()> {
    let text = rewrite(kernel, |_| true, 0, caps.max_immediate_bytes > 0, false);
    let capabilities = reflect::capabilities(caps);
    let preface = "inputs are declared `read_write` where they share a buffer with outputs, and \
                   the uniform may become immediates, so no pointer type may name their access: ";
    reflect::check(&kernel.entry, &text, capabilities, preface).map(|_| ())
}
