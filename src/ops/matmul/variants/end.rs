//! The text of a product's epilogue.

use crate::ops::functions::push_functions;
use crate::ops::matmul::form::Form;
use crate::ops::skeleton::Skeleton;
use crate::ops::unary;
use lapidary_core::internal::sections::{section_for, with_words};

const WGSL: &str = include_str!("../../../../shaders/matmul/end.wgsl");

/// Appends `finish(at, column, product)`. It takes the vec4 of C at `column` of the row that starts
/// at `at`.
pub(super) fn push_end(out: &mut String, form: Form, vec4s: u8) {
    let end = form.end;
    if let Some(activation) = end.activation {
        out.push_str("alias T = f32;\nalias Y = vec4<f32>;\nalias E = f32;\n");
        // Cooperative matrices have a role `A`, which an alias of that name would hide.
        let text = unary::text_of(activation.op(), "f32");
        out.push_str(&with_words(text, |word| {
            (word == "A").then_some("vec4<f32>".into())
        }));
    }
    let bias = 2 + u8::from(form.has_scales());
    // Past the last column, the last one is read again.
    let vec4 = |_: &str, texts: &[&str]| {
        let (name, start) = (texts[0], texts[1]);
        let operand = match name {
            "scales" => 2,
            "bias" => bias,
            _ => bias + u8::from(end.bias),
        };
        if vec4s >> operand & 1 == 1 {
            return format!("{name}_get4({start} + column)");
        }
        let get = |i| format!("{name}_get({start} + min(column + {i}u, p.size.y - 1u))");
        format!("vec4({})", [0, 1, 2, 3].map(get).join(", "))
    };
    let skeleton = Skeleton::new(section_for(WGSL, "end", ""))
        .with("scale", end.scale)
        .with("columns", end.columns)
        .with("bias", end.bias)
        .with("activation", end.activation.is_some())
        .with("residual", end.residual);
    out.push_str(&skeleton.function(&vec4).fill());
    push_functions(out);
}
