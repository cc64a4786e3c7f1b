//! The text of the variant for packed operands, and of the kernel that packs one.

use std::fmt::Write;

use super::grouped::{Rest, block};
use super::{LANES, Side, fill, place};
use crate::ops::matmul::form::Spread;

const PACK: &str = include_str!("../../../../shaders/matmul/pack.wgsl");
const PACKED: &str = include_str!("../../../../shaders/matmul/packed.wgsl");

/// What packs an operand for subgroups of `lanes`; `whole` says that k is a multiple of four.
pub(super) fn pack(side: Side, lanes: u32, whole: bool) -> String {
    let width = lanes * 4;
    let text = fill(
        PACK,
        &[
            ("lanes", &lanes.to_string()),
            ("width", &width.to_string()),
            ("step_size", &(width * 4).to_string()),
            ("steps_of_group", &(64 / lanes).to_string()),
        ],
    );
    let rest = match whole {
        true => Rest::Nothing,
        false => Rest::Loop,
    };
    text + &block(side, rest)
}

/// The variant whose operands are packed.
pub(super) fn packed(
    [rows, vec4s, lanes]: [u32; 3],
    b: Side,
    spread: Spread,
    store: &str,
) -> String {
    let width = lanes * 4;
    let (mut prepare, mut step, mut finish) = (String::new(), String::new(), String::new());
    let panel = |name: char, first: &str, index: u32, tiles: &str| {
        format!(
            "  let {name}_{index} = (matrix * p.{name}.x + min({first} / {width}u + {index}u, \
             ({tiles} - 1u) / {width}u) * steps) * {}u + lane * 4u;",
            width * 4
        )
    };
    for h in 0..rows / width {
        push!(prepare, "{}", panel('a', "row", h, "p.size.x"));
        for t in 0..4 {
            push!(
                step,
                "    let g_{h}_{t} = a_get4(a_{h} + k * {}u + {}u);",
                width * 4,
                t * width
            );
        }
    }
    for q in 0..vec4s {
        push!(prepare, "{}", panel('b', "column", q, "p.size.y"));
        load_b(b, q, width, &mut prepare, &mut step);
    }
    for r in 0..rows {
        let (h, in_panel) = (r / width, r % width);
        push!(
            step,
            "    let x_{r} = subgroupBroadcast(g_{h}_{}, {}u);",
            in_panel % 4,
            in_panel / 4
        );
        push!(finish, "  let c_{r} = c_start + (row + {r}u) * p.rest.y;");
        for q in 0..vec4s {
            push!(prepare, "  var acc_{r}_{q} = vec4<f32>();");
            push!(
                step,
                "    acc_{r}_{q} += (x_{r}.x * y_{q}_x + x_{r}.y * y_{q}_y) \
                 + (x_{r}.z * y_{q}_z + x_{r}.w * y_{q}_w);"
            );
            push!(
                finish,
                "  store(c_{r}, row + {r}u, column + {}u, acc_{r}_{q});",
                q * width
            );
        }
    }
    fill(
        PACKED,
        &[
            ("rows", &rows.to_string()),
            ("vec4s", &vec4s.to_string()),
            ("lanes", &lanes.to_string()),
            ("place", &place(spread, rows, width * vec4s)),
            ("tile_n", &(width * vec4s).to_string()),
            ("prepare", &prepare),
            ("step", &step),
            ("finish", &finish),
            ("store", store),
        ],
    )
}

/// `y_q_x` to `y_q_w`: the vec4 of columns `q` at each of four steps of k.
fn load_b(b: Side, q: u32, width: u32, prepare: &mut String, step: &mut String) {
    for c in 0..4 {
        let at = format!("b_{q} + k * {}u + {}u", width * 4, c * width);
        let vec4 = b.scaled(format!("b_get4({at})"), &format!("of_{q}_{c}"), "k * 4u");
        push!(step, "    let w_{q}_{c} = {vec4};");
        if b.group_log2 > 0 {
            let column = q * width + c;
            push!(
                prepare,
                "  let of_{q}_{c} = scale_line(column + {column}u);"
            );
        }
    }
    for lane in LANES {
        push!(
            step,
            "    let y_{q}_{lane} = vec4(w_{q}_0.{lane}, w_{q}_1.{lane}, w_{q}_2.{lane}, \
             w_{q}_3.{lane});"
        );
    }
}
