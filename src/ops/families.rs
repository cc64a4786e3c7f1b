//! The families that compute vec4s from vec4s. Fusion includes new operations of a family without
//! changes here. A new family is one more line.

use super::elementwise::element::{Element, Seen};
use super::{binary, copy, fill, select, ternary, unary};
use lapidary_core::internal::{BuiltInKernel, Launch, Program};

static ELEMENTS: [&Element; 9] = [
    &binary::ELEMENT,
    &binary::ELEMENT_SCALAR,
    &unary::ELEMENT,
    &select::ELEMENT,
    &copy::ELEMENT,
    &binary::ELEMENT_SCALAR_FIRST,
    &select::ELEMENT_SCALAR,
    &fill::ELEMENT,
    &ternary::ELEMENT,
];

/// The family of a kernel, and whether the kernel writes a part of an old storage.
pub(crate) fn family_of(kernel: &'static BuiltInKernel) -> Option<(&'static Element, bool)> {
    ELEMENTS.iter().find_map(|element| match kernel {
        _ if std::ptr::eq(kernel, element.fresh) => Some((*element, false)),
        _ if std::ptr::eq(kernel, element.into) => Some((*element, true)),
        _ => None,
    })
}

/// Decodes a launch of a family. `None` for other launches, and for launches that are only a part
/// of a call.
pub(crate) fn seen(launch: &Launch) -> Option<Seen> {
    let Program::Builtin(kernel) = launch.program else {
        return None;
    };
    let (family, is_into) = family_of(kernel)?;
    let is_whole = launch.ranges.is_empty();
    is_whole.then(|| Seen::new(family, is_into, launch))
}

/// The unique number of a family.
pub(crate) fn number_of(family: &Element) -> u64 {
    let mut elements = ELEMENTS.iter();
    elements
        .position(|one| std::ptr::eq(*one, family))
        .unwrap_or(0) as u64
}

/// All families.
#[cfg(test)]
pub(crate) fn all() -> &'static [&'static Element] {
    &ELEMENTS
}

/// The family whose first operation copies its input.
pub(crate) fn copy_family() -> &'static Element {
    &copy::ELEMENT
}
