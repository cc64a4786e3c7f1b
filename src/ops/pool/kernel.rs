//! The kernels of poolings and their variants.

use std::borrow::Cow;

use super::windows::Windows;
use crate::ops::text::Text;
use lapidary_core::DType;
use lapidary_core::internal::{BuiltInKernel, Operand, Variant};

const WGSL: &str = include_str!("../../../shaders/pool.wgsl");

/// `y` is the fold of each window of `x`.
pub(super) static POOL: BuiltInKernel = BuiltInKernel {
    name: "pool",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(crate::ops::pool::reference::run),
};

/// `y` is the gradient with respect to the input; `g` is that with respect to the result. For a
/// maximum, `x` has its position in each window. A mean does not read it.
pub(super) static POOL_BACKWARD: BuiltInKernel = BuiltInKernel {
    name: "pool_backward",
    operands: &[Operand::read("x"), Operand::read("g"), Operand::write("y")],
    text: text_of_gradient,
    reference: reference!(crate::ops::pool::reference::run_backward),
};

/// `y` is the element of `x` at the position that `g` has for each window.
pub(super) static POOL_CHOSEN: BuiltInKernel = BuiltInKernel {
    name: "pool_chosen",
    operands: &[Operand::read("x"), Operand::read("g"), Operand::write("y")],
    text: text_of_chosen,
    reference: reference!(crate::ops::pool::reference::run_chosen),
};

/// How a window is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum PoolFold {
    Mean,
    Max,
    /// The place of the maximum in its plane.
    Place,
    /// The position of the maximum in its window, among the elements that are in the plane. The
    /// gradient gets these positions for `x`.
    Position,
}

/// Most elements of a window whose positions fit into a byte.
const MOST_FOR_A_BYTE: u64 = 1 << 8;

impl PoolFold {
    /// The type of the result.
    pub(super) fn dtype(self, x: DType, windows: &Windows) -> DType {
        match self {
            PoolFold::Position if windows.area() <= MOST_FOR_A_BYTE => DType::U8,
            PoolFold::Place | PoolFold::Position => DType::U32,
            _ => x,
        }
    }
}

/// Bits of a variant's code: windows are adaptive, or dilated.
const ADAPTIVE: u64 = 1 << 4;
const DILATED: u64 = 1 << 5;

pub(super) fn code(fold: PoolFold, windows: &Windows) -> u64 {
    let adaptive = if windows.are_adaptive { ADAPTIVE } else { 0 };
    let dilated = if windows.dilation == [1, 1] {
        0
    } else {
        DILATED
    };
    fold as u64 | adaptive | dilated
}

pub(in crate::ops) fn fold_of(code: u64) -> PoolFold {
    match code & 3 {
        0 => PoolFold::Mean,
        1 => PoolFold::Max,
        2 => PoolFold::Place,
        _ => PoolFold::Position,
    }
}

pub(in crate::ops) fn is_adaptive(code: u64) -> bool {
    code & ADAPTIVE != 0
}

/// The beginning of a text: what is known about the windows.
fn windows(code: u64) -> Text {
    let is_dilated = code & DILATED != 0;
    let windows = match is_adaptive(code) {
        true => "adaptive",
        false => "regular",
    };
    let text = Text::new().line(format_args!("const DILATED: bool = {is_dilated};"));
    text.sections(WGSL, &["frame", windows])
}

/// The WGSL of a pooling.
fn text(variant: &Variant) -> Cow<'static, str> {
    let folds: &[&str] = match fold_of(variant.code) {
        PoolFold::Mean => &["forward", "mean"],
        PoolFold::Max => &["forward", "maximum", "places", "search"],
        PoolFold::Place => &["forward", "place", "places", "search"],
        PoolFold::Position => &["forward", "position", "places", "search"],
    };
    windows(variant.code).sections(WGSL, folds).done()
}

/// The WGSL that picks elements.
fn text_of_chosen(variant: &Variant) -> Cow<'static, str> {
    let sections = ["forward", "chosen", "places"];
    windows(variant.code).sections(WGSL, &sections).done()
}

/// The WGSL of a gradient.
fn text_of_gradient(variant: &Variant) -> Cow<'static, str> {
    let shares: &[&str] = match fold_of(variant.code) {
        PoolFold::Mean => &["gradient", "share_of_mean"],
        _ => &["gradient", "share_of_position", "places"],
    };
    windows(variant.code).sections(WGSL, shares).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_text_is_a_valid_shader() {
        for x in [DType::F32, DType::F16, DType::Bf16] {
            for windows in [0, ADAPTIVE, DILATED] {
                for fold in [PoolFold::Mean, PoolFold::Max] {
                    valid(&POOL, fold as u64 | windows, &[x; 2], 0b10);
                }
                let code = PoolFold::Mean as u64 | windows;
                valid(&POOL_BACKWARD, code, &[x; 3], 0b100);
                let code = PoolFold::Place as u64 | windows;
                valid(&POOL, code, &[x, DType::U32], 0b10);
                let code = PoolFold::Position as u64 | windows;
                for at in [DType::U8, DType::U32] {
                    valid(&POOL, code, &[x, at], 0b10);
                    valid(&POOL_BACKWARD, code, &[at, x, x], 0b100);
                    valid(&POOL_CHOSEN, code, &[x, at, x], 0b100);
                }
            }
        }
    }
}
