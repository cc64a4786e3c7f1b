//! The families whose vec4s of output are made of vec4s of input. A new operation of a family is
//! fused without another word; a new family is one more line here.

use super::elementwise::element::{Element, Seen};
use super::{binary, copy, fill, select, ternary, unary};
use lapidary_core::internal::{Kernel, Launch, Program};

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

/// The family of a kernel, and whether the kernel writes through a part of an old storage.
pub(crate) fn family_of(kernel: &'static Kernel) -> Option<(&'static Element, bool)> {
    ELEMENTS.iter().find_map(|element| match kernel {
        _ if std::ptr::eq(kernel, element.fresh) => Some((*element, false)),
        _ if std::ptr::eq(kernel, element.into) => Some((*element, true)),
        _ => None,
    })
}

/// What a launch of a family does. `None` if it is a launch of anything else, or one of several
/// that make up a call.
pub(crate) fn seen(launch: &Launch) -> Option<Seen> {
    let Program::Builtin(kernel) = launch.program else {
        return None;
    };
    let (family, is_into) = family_of(kernel)?;
    let is_whole = launch.ranges.is_empty();
    is_whole.then(|| Seen::new(family, is_into, launch))
}

/// The number of a family, which no other has.
pub(crate) fn number_of(family: &Element) -> u64 {
    let mut elements = ELEMENTS.iter();
    elements
        .position(|one| std::ptr::eq(*one, family))
        .unwrap_or(0) as u64
}

/// The family whose first operation changes nothing.
pub(crate) fn copy_family() -> &'static Element {
    &copy::ELEMENT
}
