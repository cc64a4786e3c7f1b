//! The text of each variant of attention, from the skeletons in `shaders/attention/`.
//!
//! The text is unrolled, because indexed arrays would live in memory. In the text, `q` and `x` are
//! queries by rows and by elements. `s` are scores of a key, `w` weights, and `o` columns of the
//! result. `g` is a lane's share of what it broadcasts.

use std::borrow::Cow;

use super::form::{Form, Tile, VEC4S_OF_A_LOOP};
use crate::ops::functions::push_functions;
use crate::ops::skeleton::Skeleton;
use lapidary_core::internal::Variant;
use lapidary_core::internal::sections::section_for;

const SHARED: &str = include_str!("../../../shaders/attention/shared.wgsl");
const REGISTER: &str = include_str!("../../../shaders/attention/register.wgsl");
const WORKGROUP: &str = include_str!("../../../shaders/attention/workgroup.wgsl");
const MASK: &str = include_str!("../../../shaders/attention/mask.wgsl");

/// The text of a variant.
pub(super) fn text(variant: &Variant) -> Cow<'static, str> {
    let form = Form::unpack(variant.code);
    let body = match form.tile {
        Tile::Register { lanes, width } => register(form, lanes.into(), width.into()),
        Tile::Workgroup => {
            let skeleton = Skeleton::new(WORKGROUP).numbers([("vec4s", form.vec4s.into())]);
            fill(skeleton.with("mask", mask(form, 4, 4)), form, 4)
        }
    };
    let mut out = format!("{SHARED}\n{body}");
    push_functions(&mut out);
    Cow::Owned(out)
}

/// An invocation owns `width` rows. Without lanes, each loads all keys and values itself.
fn register(form: Form, lanes: u32, width: u32) -> String {
    let keys = form.keys();
    let skeleton = Skeleton::new(REGISTER)
        .numbers([
            ("keys", keys),
            ("vec4s", form.vec4s.into()),
            ("lanes", lanes),
            ("threads", form.threads()),
            ("rows", form.rows()),
            ("key_loads", keys / lanes.max(1)),
            ("vec4s_of_a_loop", VEC4S_OF_A_LOOP),
        ])
        .with("mask", mask(form, width, keys));
    fill(skeleton, form, width)
}

/// Scales and masks the scores of `keys` keys, for `width` rows each.
fn mask(form: Form, width: u32, keys: u32) -> String {
    let mask = form.mask;
    let skeleton = Skeleton::new(section_for(MASK, "mask", ""))
        .numbers([
            ("keys", keys),
            ("mask_rows", if mask.one_row { 1 } else { width }),
        ])
        .with("is_given", mask.is_given)
        .with("is_bool", mask.is_bool)
        .with("one_row", mask.one_row)
        .with("vec4s", mask.vec4s)
        .with("is_causal", form.is_causal);
    fill(skeleton, form, width)
}

/// Fills a skeleton with the names that all of them use: vectors of one number for each of `width`
/// rows.
fn fill(skeleton: Skeleton<'_>, form: Form, width: u32) -> String {
    let (vector, bits) = match width {
        1 => ("f32", "u32"),
        2 => ("vec2<f32>", "vec2<u32>"),
        _ => ("vec4<f32>", "vec4<u32>"),
    };
    // A row may see the keys before this one.
    let seen = match form.is_causal {
        true => format!("min(p.size.y, p.rest.z + first_row + {}u)", form.rows()),
        false => "p.size.y".into(),
    };
    let splat = |_: &str, texts: &[&str]| match width {
        1 => texts[0].to_string(),
        _ => format!("vec{width}({})", texts.join(", ")),
    };
    skeleton
        .with("width", width)
        .with("vector", vector)
        .with("bits", bits)
        .with("seen", seen)
        .with("columns", form.columns())
        .function(&splat)
        .fill()
}
