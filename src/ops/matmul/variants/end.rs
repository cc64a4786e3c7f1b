//! The text of what a product ends with.

use std::fmt::Write;

use crate::ops::functions::push_functions;
use crate::ops::matmul::form::Form;
use crate::ops::unary;
use lapidary_core::internal::sections::with_words;

/// Appends `finish(at, column, product)`: the vec4 of C at `column` of the row that starts at `at`.
pub(super) fn push_end(out: &mut String, form: Form, vec4s: u8) {
    let end = form.end;
    let first = 2 + u8::from(form.has_scales());
    if let Some(activation) = end.activation {
        out.push_str("alias T = f32;\nalias Y = vec4<f32>;\nalias E = f32;\n");
        // `A` is a role of cooperative matrices, which a type of that name would hide.
        let text = unary::text_of(activation.op(), "f32");
        out.push_str(&with_words(text, |word| {
            (word == "A").then_some("vec4<f32>".into())
        }));
    }
    out.push_str("\nfn finish(at: u32, column: u32, product: vec4<f32>) -> vec4<f32> {\n");
    out.push_str("  var y = product;\n");
    if end.scale {
        push!(out, "  y *= bitcast<f32>(p.more.x);");
    }
    if end.columns {
        let whole = vec4s >> 2 & 1 == 1;
        push!(out, "  y *= {};", vec4("scales", "p.more.w", whole));
    }
    if end.bias {
        let whole = vec4s >> first & 1 == 1;
        push!(out, "  y += {};", vec4("bias", "p.more.y", whole));
    }
    if end.activation.is_some() {
        push!(out, "  y = op(y);");
    }
    if end.residual {
        let whole = vec4s >> (first + u8::from(end.bias)) & 1 == 1;
        push!(out, "  y += {};", vec4("residual", "p.more.z + at", whole));
    }
    out.push_str("  return y;\n}\n");
    push_functions(out);
}

/// A vec4 from `start + column` on. Past the last column it is the last one's, which nobody stores.
fn vec4(name: &str, start: &str, whole: bool) -> String {
    if whole {
        return format!("{name}_get4({start} + column)");
    }
    let get = |i| format!("{name}_get({start} + min(column + {i}u, p.size.y - 1u))");
    format!("vec4({}, {}, {}, {})", get(0), get(1), get(2), get(3))
}
