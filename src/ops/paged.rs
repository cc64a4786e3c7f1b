//! Attention over pages: appends keys and values to pages, and computes attention with them.
//!
//! | kernel | what it does |
//! | --- | --- |
//! | append | converts new keys and values, and writes them into their pages |
//! | attention | the online softmax of a few rows of queries over a run of keys: a task |
//! | merge | puts the tasks of each row together |
//!
//! Attention has a variant for GPUs, with barriers and workgroup memory, and one for software
//! adapters, whose lanes broadcast to each other. `form` has the variants, `plan` divides a step of
//! a model among tasks, `run` launches the kernels. All of them read one table of words: the rows
//! and tasks of the plan, then the tables of the pages, which the engine writes.

mod form;
mod plan;
mod run;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use crate::ops::functions::push_functions;
use crate::ops::skeleton::Skeleton;
use form::Form;
use lapidary_core::internal::{ABSENT, BuiltInKernel, Operand, Role, Variant};

pub(crate) use form::Geometry;
pub(crate) use plan::Run;
pub(crate) use run::{Attention, Planned, attend};

const SHARED: &str = include_str!("../../shaders/paged/shared.wgsl");
const APPEND_TEXT: &str = include_str!("../../shaders/paged/append.wgsl");
const ATTENTION_TEXT: &str = include_str!("../../shaders/paged/attention.wgsl");
const LANES_TEXT: &str = include_str!("../../shaders/paged/lanes.wgsl");
const TASK_TEXT: &str = include_str!("../../shaders/paged/task.wgsl");
const STATE_TEXT: &str = include_str!("../../shaders/paged/state.wgsl");
const MERGE_TEXT: &str = include_str!("../../shaders/paged/merge.wgsl");

/// Keys and values `k` and `v` go into the pages `g`, by their table in `t`.
static APPEND: BuiltInKernel = BuiltInKernel {
    name: "paged_append",
    operands: &[
        Operand::read("k"),
        Operand::read("v"),
        Operand::read("t"),
        Operand::pages("g", Role::Update),
    ],
    text: |variant| text(variant, &[APPEND_TEXT]),
    reference: reference!(reference::append),
};

/// The states `s` of the queries `q` after their tasks.
static ATTENTION: BuiltInKernel = BuiltInKernel {
    name: "paged_attention",
    operands: &[
        Operand::read("q"),
        Operand::update("s"),
        Operand::read("t"),
        Operand::pages("g", Role::Read),
    ],
    text: attention_text,
    reference: reference!(reference::attention),
};

/// Rows of the result `y`.
static MERGE: BuiltInKernel = BuiltInKernel {
    name: "paged_merge",
    operands: &[Operand::read("s"), Operand::read("t"), Operand::update("y")],
    text: |variant| text(variant, &[MERGE_TEXT]),
    reference: reference!(reference::merge),
};

fn attention_text(variant: &Variant) -> Cow<'static, str> {
    let main = match Form::unpack(variant.code).lanes {
        0 => ATTENTION_TEXT,
        _ => LANES_TEXT,
    };
    text(variant, &[&main.replace("$task", TASK_TEXT), STATE_TEXT])
}

/// The text of a variant.
fn text(variant: &Variant, texts: &[&str]) -> Cow<'static, str> {
    let form = Form::unpack(variant.code);
    let mut out = fill(SHARED, form);
    for text in texts {
        out.push_str(&fill(text, form));
    }
    push_functions(&mut out);
    Cow::Owned(out)
}

fn fill(text: &str, form: Form) -> String {
    let geometry = form.geometry;
    // Four elements of a unit, as floats.
    let floats = |_: &str, texts: &[&str]| {
        let (unit, vec4) = (texts[0], texts[1]);
        match geometry.vec4s_of_unit() {
            1 => format!("bitcast<vec4<f32>>({unit})"),
            2 => {
                let words = if vec4 == "0" { ["x", "y"] } else { ["z", "w"] };
                let [a, b] = words.map(|word| format!("unpack2x16float({unit}.{word})"));
                format!("vec4<f32>({a}, {b})")
            }
            _ => {
                let word = format!("{unit}[{vec4}u]");
                format!(
                    "vec4<f32>(bitcast<vec4<i32>>(vec4<u32>({word} << 24u, {word} << 16u, \
                     {word} << 8u, {word})) >> vec4<u32>(24u))"
                )
            }
        }
    };
    Skeleton::new(text)
        .numbers([
            ("tokens", geometry.page_tokens),
            ("units", geometry.row_units()),
            ("size", geometry.head_size),
            ("vec4s", geometry.vec4s_of_unit()),
            ("rows", form.rows()),
            ("heads", form.heads()),
            ("queries", form.queries()),
            ("own", form.own_queries()),
            ("parts", form.parts()),
            ("lanes", form.lanes.into()),
            ("tile", form.tile()),
            ("keys", form.keys_of_lane()),
            ("columns", form.units_of_lane()),
            (
                "query_loads",
                form.queries().div_ceil(u32::from(form.lanes).max(1)),
            ),
            ("absent", ABSENT),
        ])
        .with("is_f32", geometry.vec4s_of_unit() == 1)
        .with("is_f16", geometry.vec4s_of_unit() == 2)
        .with("is_i8", geometry.vec4s_of_unit() == 4)
        .with("is_capped", form.is_capped)
        .with(
            "is_padded",
            !(geometry.head_size).is_multiple_of(4 * geometry.vec4s_of_unit()),
        )
        .function(&floats)
        .fill()
}
