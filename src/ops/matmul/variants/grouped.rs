//! The text of the variants for GPUs, whose threads meet in workgroup memory.

use std::fmt::Write;

use super::{LANES, Side, fill};

const TILE: &str = include_str!("../../../../shaders/matmul/tile.wgsl");
const SKINNY: &str = include_str!("../../../../shaders/matmul/skinny.wgsl");

/// How a block reads the last steps of k, which are fewer than four.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// k is a multiple of four.
    Nothing,
    /// Software adapters skip a loop that nobody enters.
    Loop,
    /// FXC takes minutes for a loop within a loop that has barriers.
    Branches,
}

/// `x_block(base, edge, k)`: a vec4 of the edge for each of four steps of k, zero past the end.
pub(super) fn block(side: Side, rest: Rest) -> String {
    let (name, line) = (side.name, side.line());
    let last = if name == 'a' { "p.size.x" } else { "p.size.y" };
    let k = side.along("k");
    let mut out = format!(
        "\nfn {name}_block(base: u32, edge: u32, k: u32) -> mat4x4<f32> {{\n  let line = {line};\n"
    );
    let scaled = |elements, j| side.scaled(elements, &format!("scale_line(edge + {j}u)"), "k");
    let vec4 = |at: &str| match side.along_k {
        true => side.vec4(at),
        false => side.vec4_within(at, "at_over"),
    };
    let lines = [0, 1, 2, 3].map(|i| scaled(vec4(&format!("at_{i}")), i));
    let whole = format!(
        "mat4x4<f32>(\n      {},\n      {},\n      {},\n      {}\n    )",
        lines[0], lines[1], lines[2], lines[3]
    );
    let body = if side.along_k {
        for j in 0..4 {
            push!(
                out,
                "  let at_{j} = base + min(edge + {j}u, {last} - 1u) * line + {k};"
            );
        }
        format!("transpose({whole})")
    } else {
        push!(
            out,
            "  let at_0 = base + min(edge, ({last} - 1u) & ~3u) + k * line;"
        );
        side.push_over(&mut out, "at", "edge", &format!("({last} - 1u)"));
        for i in 1..4 {
            push!(out, "  let at_{i} = at_{} + line;", i - 1);
        }
        whole
    };
    let step = |i: &str| {
        if !side.along_k {
            return vec4(&format!("(at_0 + {i} * line)"));
        }
        let i = side.along(i);
        let get: Vec<String> = (0..4)
            .map(|j| scaled(format!("{name}_get(at_{j} + {i})"), j))
            .collect();
        format!("vec4({})", get.join(", "))
    };
    if rest == Rest::Nothing {
        push!(out, "  return {body};\n}}");
        return out;
    }
    push!(
        out,
        "  if (k + 4u <= p.size.z) {{\n    return {body};\n  }}"
    );
    match rest {
        // The last step comes in first and is pushed on, since FXC refuses a row that is written by
        // a running index.
        Rest::Loop => {
            let last = step("(left - 1u)");
            push!(
                out,
                "  var v = mat4x4<f32>();\n  \
                 for (var left = max(p.size.z, k) - k; left > 0u; left--) {{\n    \
                 v = mat4x4<f32>({last}, v[0], v[1], v[2]);\n  }}\n  return v;\n}}"
            );
        }
        _ => {
            for i in 0..3 {
                let step = step(&format!("{i}u"));
                push!(
                    out,
                    "  var v_{i} = vec4<f32>();\n  if (k + {i}u < p.size.z) {{ v_{i} = {step}; }}"
                );
            }
            push!(out, "  return mat4x4<f32>(v_0, v_1, v_2, vec4<f32>());\n}}");
        }
    }
    out
}

/// The variant whose tile lies in workgroup memory, with `rows` by `rows` elements of C a thread.
pub(super) fn workgroup(a: Side, b: Side, rows: u32, store: &str) -> String {
    let (tile, depth) = (rows * 16, if rows == 8 { 16 } else { 32 });
    let (edge_vec4s, halves) = (tile / 4, rows / 4);
    let (mut prepare, mut step, mut finish) = (String::new(), String::new(), String::new());
    for h in 0..halves {
        let at = h * 16;
        push!(
            step,
            "      let x_{h} = a_tile[line + ((x_vec4 + {at}u) ^ swap)];"
        );
        push!(
            step,
            "      let y_{h} = b_tile[line + ((y_vec4 + {at}u) ^ swap)];"
        );
    }
    for r in 0..rows {
        let (h, lane) = (r / 4, LANES[r as usize % 4]);
        push!(
            finish,
            "  let row_{r} = tile_row + x_vec4 * 4u + {}u;",
            h * 64 + r % 4
        );
        push!(finish, "  let c_{r} = c_start + row_{r} * p.rest.y;");
        for q in 0..halves {
            push!(prepare, "  var acc_{r}_{q} = vec4<f32>();");
            push!(
                step,
                "      acc_{r}_{q} = fma(vec4(x_{h}.{lane}), y_{q}, acc_{r}_{q});"
            );
            push!(
                finish,
                "  store(c_{r}, row_{r}, tile_column + y_vec4 * 4u + {}u, acc_{r}_{q});",
                q * 64
            );
        }
    }
    let place = |side: Side| match side.along_k {
        true => (
            format!("block / {}u", depth / 4),
            format!("block % {}u", depth / 4),
        ),
        false => (
            format!("block % {edge_vec4s}u"),
            format!("block / {edge_vec4s}u"),
        ),
    };
    let ((a_edge, a_deep), (b_edge, b_deep)) = (place(a), place(b));
    let text = fill(
        TILE,
        &[
            ("tile", &tile.to_string()),
            ("depth", &depth.to_string()),
            ("rows", &rows.to_string()),
            ("tile_vec4s", &(edge_vec4s * depth).to_string()),
            ("edge_vec4s", &edge_vec4s.to_string()),
            ("a_edge", &a_edge),
            ("a_deep", &a_deep),
            ("b_edge", &b_edge),
            ("b_deep", &b_deep),
            ("prepare", &prepare),
            ("step", &step),
            ("finish", &finish),
            ("store", store),
        ],
    );
    text + &block(a, Rest::Branches) + &block(b, Rest::Branches)
}

/// The variant for few rows on a GPU.
pub(super) fn skinny(a: Side, b: Side, rows: u32, store: &str) -> String {
    // Neighbours along k where B is contiguous along k, else along the columns.
    let (across, part, place, part_step) = match b.along_k {
        true => (4, "local % 64u", "local / 64u", 1),
        false => (16, "local / 16u", "local % 16u", 16),
    };
    let (mut prepare, mut step, mut finish) = (String::new(), String::new(), String::new());
    for r in 0..rows {
        push!(prepare, "  var acc_{r} = vec4<f32>();");
        push!(step, "    acc_{r} += y * a_run(a_start, row + {r}u, k);");
        push!(finish, "  let sum_{r} = total(acc_{r}, local, part);");
        push!(
            finish,
            "  if (part == 0u) {{ store(c_start + (row + {r}u) * p.rest.y, row + {r}u, column, \
             sum_{r}); }}"
        );
    }
    let run = match a.along_k && !a.stepped {
        true => a.vec4("at"),
        false => "vec4(a_get(at), a_get(at + p.strides.y), a_get(at + 2u * p.strides.y), \
                  a_get(at + 3u * p.strides.y))"
            .to_string(),
    };
    let text = fill(
        SKINNY,
        &[
            ("rows", &rows.to_string()),
            ("across", &across.to_string()),
            ("part", part),
            ("place", place),
            ("parts", &(256 / across).to_string()),
            ("part_step", &part_step.to_string()),
            ("prepare", &prepare),
            ("step", &step),
            ("finish", &finish),
            ("a_run", &run),
            ("store", store),
        ],
    );
    text + &block(b, Rest::Branches)
}
