//! The kernels of the diagnostics.

use std::borrow::Cow;

use crate::engine::kernel::reference;
use crate::engine::kernel::sections::push_sections;
use crate::engine::{BuiltInKernel, Look, Operand, Variant};

const WGSL: &str = include_str!("../../../shaders/probe.wgsl");

/// Reads `x`, and writes an answer to `y`.
pub static PROBE: BuiltInKernel = BuiltInKernel {
    name: "probe",
    operands: &[Operand::read("x"), Operand::update("y")],
    text,
    reference: reference!(super::reference::run),
};

/// The same, and also writes to `x`.
pub static CLEAR: BuiltInKernel = BuiltInKernel {
    name: "clear",
    operands: &[Operand::update("x"), Operand::update("y")],
    text,
    reference: reference!(super::reference::run),
};

fn text(variant: &Variant) -> Cow<'static, str> {
    let sections: &[&str] = match Look::from_code(variant.code) {
        Look::Words => &["range", "words"],
        Look::Table => &["table"],
        Look::Clear => &["range", "clear"],
        Look::F32 => &["range", "f32", "floats"],
        Look::F16 => &["range", "f16", "floats"],
        Look::Bf16 => &["range", "bf16", "floats"],
    };
    let mut out = format!("const PATTERN = {}u;\n", crate::memory::PATTERN);
    push_sections(&mut out, WGSL, &["head"]);
    push_sections(&mut out, WGSL, sections);
    Cow::Owned(out)
}
