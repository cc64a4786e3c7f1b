//! The accessors of pages: the text names a window and an offset, which it has from the table.

use super::{Layout, Target, Unit, declare_windows, operands_of};
use crate::engine::kernel::Operand;

/// The name of the pages, if the part is that of the pages.
pub(super) fn pages_of(operands: &[Operand], layout: &Layout, part: usize) -> Option<&'static str> {
    let mut of_part = operands_of(layout, operands.len(), part);
    let pages = of_part.find(|&index| operands[index].is_pages)?;
    Some(operands[pages].name)
}

/// Declares the windows of the pages, `x_load`, and `x_store` if the command writes pages.
pub(super) fn declare_pages(
    out: &mut String,
    name: &str,
    layout: &Layout,
    part: usize,
    stores: bool,
    target: &Target,
    binding: &mut u32,
) {
    let unit = Unit::Words4;
    let [load, store] = declare_windows(out, layout, part, unit, target, binding);
    let windows = layout.windows[part];
    // As in `declare_part`, FXC wants one return.
    line!(out, "fn {name}_load(window: u32, u: u32) -> vec4<u32> {{");
    line!(out, "  var v = vec4<u32>();");
    for window in 0..windows {
        line!(
            out,
            "  if (window == {window}u) {{ v = {load}(b{part}_{window}[u]); }}"
        );
    }
    line!(out, "  return v;");
    line!(out, "}}");
    if !stores {
        return;
    }
    line!(out, "fn {name}_store(window: u32, u: u32, v: vec4<u32>) {{");
    for window in 0..windows {
        line!(
            out,
            "  if (window == {window}u) {{ b{part}_{window}[u] = {store}(v); }}"
        );
    }
    line!(out, "}}");
}
