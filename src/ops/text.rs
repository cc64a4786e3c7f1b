//! The text of a kernel, composed of lines and of sections of WGSL files.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use super::functions::push_functions;
use lapidary_core::internal::sections::push_sections;

/// The WGSL expression for a word of the parameters.
pub(crate) fn word(index: usize) -> String {
    format!("p.w{}.{}", index / 4, ["x", "y", "z", "w"][index % 4])
}

/// A text under construction.
pub(super) struct Text(String);

impl Text {
    pub(super) fn new() -> Self {
        Text(String::with_capacity(8 << 10))
    }

    pub(super) fn line(mut self, line: impl Display) -> Self {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{line}");
        self
    }

    pub(super) fn sections(mut self, file: &'static str, names: &[&str]) -> Self {
        push_sections(&mut self.0, file, names);
        self
    }

    /// Appends the shared functions that the text calls, and returns it.
    pub(super) fn done(mut self) -> Cow<'static, str> {
        push_functions(&mut self.0);
        Cow::Owned(self.0)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(text)
    }
}

/// The section that computes the keys by which elements of this type are ordered.
pub(super) fn key_section(kind: &str) -> &'static str {
    match kind {
        "f32" => "key_float",
        "i32" => "key_signed",
        _ => "key_unsigned",
    }
}

/// The least and the greatest number of a type of integers, in WGSL.
pub(super) fn bounds(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "i32" => ("-2147483647i - 1i", "2147483647i"),
        _ => ("0u", "0xffffffffu"),
    }
}

/// The key of a NaN, which wins both as the largest and as the least element.
pub(super) fn nan_key(is_largest: bool) -> &'static str {
    if is_largest {
        "0x7fc00000i"
    } else {
        bounds("i32").0
    }
}
