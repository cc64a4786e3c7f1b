//! Kernels that look for bugs, and what operations are called when they have one.

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::readers::reader_of;
use super::text::push_sections;
use crate::engine::kernel::{Launch, Program};
use crate::engine::{Kernel, Look, Operand, Probes, Variant};

const WGSL: &str = include_str!("../../shaders/probe.wgsl");

/// Looks at `x`, and says in `y` what it saw.
static PROBE: Kernel = Kernel {
    name: "probe",
    operands: &[Operand::read("x"), Operand::update("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::probe::run,
};

/// The same, and changes `x`.
static MEND: Kernel = Kernel {
    name: "mend",
    operands: &[Operand::update("x"), Operand::update("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::probe::run,
};

/// What the engine looks for bugs with.
pub(crate) const PROBES: Probes = Probes {
    probe: &PROBE,
    mend: &MEND,
    operation,
};

fn text(variant: &Variant) -> Cow<'static, str> {
    let sections: &[&str] = match Look::of(variant.code) {
        Look::Words => &["range", "words"],
        Look::Table => &["table"],
        Look::Mend => &["range", "mend"],
        Look::F32 => &["range", "f32", "floats"],
        Look::F16 => &["range", "f16", "floats"],
        Look::Bf16 => &["range", "bf16", "floats"],
    };
    let mut out = format!("const PATTERN = {}u;\n", crate::memory::PATTERN);
    push_sections(&mut out, WGSL, &["head"]);
    push_sections(&mut out, WGSL, sections);
    Cow::Owned(out)
}

/// What a launch computes, as whoever called for it would say.
fn operation(launch: &Launch) -> String {
    let Program::Builtin(kernel) = &launch.program else {
        return launch.program.name().to_owned();
    };
    if let Some((element, _)) = Element::of(kernel) {
        return (element.section)(&launch.variant()).to_owned();
    }
    let reader = reader_of(kernel);
    reader.map_or(kernel.name.to_owned(), |reader| {
        (reader.name)(launch.code).to_string()
    })
}
