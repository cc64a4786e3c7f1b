//! Textbook kernels: one element for each invocation, tiles of 16 × 16 and reduction trees in
//! workgroup memory. Sizes are constants in the text.

use lapidary_harness::{BATCH, CLASSES, RATE};

/// WGSL and the number of workgroups.
pub(crate) type Kernel = (String, [u32; 3]);

/// Elements that one workgroup sums.
pub(crate) const SUMMED: usize = 4096;

const LANES: usize = 256;
const TILE: usize = 16;
/// Most workgroups in one dimension.
const MOST_GROUPS: usize = 65_535;

/// The bindings of `out` and of `inputs` inputs, named from a to d.
fn bindings(inputs: usize) -> String {
    let mut text = "@group(0) @binding(0) var<storage, read_write> out: array<f32>;\n".to_owned();
    for (index, name) in ["a", "b", "c", "d"].iter().take(inputs).enumerate() {
        let binding = index + 1;
        text += &format!("@group(0) @binding({binding}) var<storage, read> {name}: array<f32>;\n");
    }
    text
}

pub(crate) fn elementwise(len: usize, inputs: usize, expression: &str) -> Kernel {
    let groups = len.div_ceil(LANES);
    let rows = groups.div_ceil(MOST_GROUPS);
    let across = groups.div_ceil(rows);
    let wgsl = format!(
        "{}
fn erf(x: f32) -> f32 {{
    let t = 1.0 / (1.0 + 0.3275911 * abs(x));
    let sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return sign(x) * (1.0 - sum * exp(-x * x));
}}
@compute @workgroup_size({LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {{
    let i = id.x + id.y * {}u;
    if i < {len}u {{ out[i] = {expression}; }}
}}",
        bindings(inputs),
        across * LANES
    );
    (wgsl, [across as u32, rows as u32, 1])
}

pub(crate) fn gelu(len: usize) -> Kernel {
    elementwise(len, 1, "0.5 * a[i] * (1.0 + erf(a[i] * 0.70710678))")
}

pub(crate) fn descend(len: usize) -> Kernel {
    elementwise(len, 1, &format!("out[i] - {RATE:?} * a[i]"))
}

/// `out[i] = a[index[i]]`
pub(crate) fn gather(len: usize) -> Kernel {
    elementwise(len, 2, "a[bitcast<u32>(b[i])]")
}

/// C = A · B; either operand may be stored transposed.
pub(crate) fn matmul(batch: usize, [m, n, k]: [usize; 3], is_transposed: [bool; 2]) -> Kernel {
    let at =
        |is_transposed, row: &str, column: &str, rows: usize, columns: usize| match is_transposed {
            true => format!("{column} * {rows}u + {row}"),
            false => format!("{row} * {columns}u + {column}"),
        };
    let of_a = at(is_transposed[0], "row", "(step + local.x)", m, k);
    let of_b = at(is_transposed[1], "(step + local.y)", "column", k, n);
    let (size_a, size_b, size) = (m * k, k * n, m * n);
    let wgsl = format!(
        "{}
var<workgroup> tile_a: array<array<f32, {TILE}>, {TILE}>;
var<workgroup> tile_b: array<array<f32, {TILE}>, {TILE}>;
@compute @workgroup_size({TILE}, {TILE})
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) local: vec3u) {{
    let row = id.y;
    let column = id.x;
    var sum = 0.0;
    for (var step = 0u; step < {k}u; step += {TILE}u) {{
        tile_a[local.y][local.x] = 0.0;
        tile_b[local.y][local.x] = 0.0;
        if row < {m}u && step + local.x < {k}u {{ tile_a[local.y][local.x] = a[id.z * {size_a}u + {of_a}]; }}
        if column < {n}u && step + local.y < {k}u {{ tile_b[local.y][local.x] = b[id.z * {size_b}u + {of_b}]; }}
        workgroupBarrier();
        for (var i = 0u; i < {TILE}u; i++) {{ sum += tile_a[local.y][i] * tile_b[i][local.x]; }}
        workgroupBarrier();
    }}
    if row < {m}u && column < {n}u {{ out[id.z * {size}u + row * {n}u + column] = sum; }}
}}",
        bindings(2)
    );
    let groups = [n.div_ceil(TILE), m.div_ceil(TILE), batch];
    (wgsl, groups.map(|count| count as u32))
}

/// A reduction tree in workgroup memory, over the values `mine` of all invocations.
fn tree(lanes: usize, join: &str) -> String {
    format!(
        "shared_values[lane] = mine;
    workgroupBarrier();
    for (var half = {}u; half > 0u; half /= 2u) {{
        if lane < half {{
            let other = shared_values[lane + half];
            let own = shared_values[lane];
            shared_values[lane] = {join};
        }}
        workgroupBarrier();
    }}",
        lanes / 2
    )
}

pub(crate) fn sum(len: usize) -> Kernel {
    let wgsl = format!(
        "{}
var<workgroup> shared_values: array<f32, {LANES}>;
@compute @workgroup_size({LANES})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {{
    var mine = 0.0;
    for (var i = lane; i < {SUMMED}u; i += {LANES}u) {{
        let at = group.x * {SUMMED}u + i;
        if at < {len}u {{ mine += a[at]; }}
    }}
    {}
    if lane == 0u {{ out[group.x] = shared_values[0]; }}
}}",
        bindings(1),
        tree(LANES, "own + other")
    );
    (wgsl, [len.div_ceil(SUMMED) as u32, 1, 1])
}

pub(crate) fn softmax(rows: usize, columns: usize) -> Kernel {
    let wgsl = format!(
        "{}
var<workgroup> shared_values: array<f32, {LANES}>;
@compute @workgroup_size({LANES})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {{
    let first = group.x * {columns}u;
    var mine = -3.0e38;
    for (var i = lane; i < {columns}u; i += {LANES}u) {{ mine = max(mine, a[first + i]); }}
    {}
    let largest = shared_values[0];
    workgroupBarrier();
    mine = 0.0;
    for (var i = lane; i < {columns}u; i += {LANES}u) {{ mine += exp(a[first + i] - largest); }}
    {}
    let total = shared_values[0];
    for (var i = lane; i < {columns}u; i += {LANES}u) {{ out[first + i] = exp(a[first + i] - largest) / total; }}
}}",
        bindings(1),
        tree(LANES, "max(own, other)"),
        tree(LANES, "own + other")
    );
    (wgsl, [rows as u32, 1, 1])
}

pub(crate) fn transpose(rows: usize, columns: usize) -> Kernel {
    let wgsl = format!(
        "{}
var<workgroup> tile: array<array<f32, {}>, {TILE}>;
@compute @workgroup_size({TILE}, {TILE})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) local: vec3u) {{
    let source = group.xy * {TILE}u + local.xy;
    if source.x < {columns}u && source.y < {rows}u {{ tile[local.y][local.x] = a[source.y * {columns}u + source.x]; }}
    workgroupBarrier();
    let place = group.yx * {TILE}u + local.xy;
    if place.x < {rows}u && place.y < {columns}u {{ out[place.y * {rows}u + place.x] = tile[local.x][local.y]; }}
}}",
        bindings(1),
        TILE + 1
    );
    let groups = [columns.div_ceil(TILE), rows.div_ceil(TILE), 1];
    (wgsl, groups.map(|count| count as u32))
}

/// Adds the bias `a` to a row of outputs, and writes the gradient of the mean cross entropy for the
/// classes `b`.
pub(crate) fn loss_gradient() -> Kernel {
    let wgsl = format!(
        "{}
@compute @workgroup_size({BATCH})
fn main(@builtin(global_invocation_id) id: vec3u) {{
    let first = id.x * {CLASSES}u;
    var largest = -3.0e38;
    for (var i = 0u; i < {CLASSES}u; i++) {{
        out[first + i] += a[i];
        largest = max(largest, out[first + i]);
    }}
    var sum = 0.0;
    for (var i = 0u; i < {CLASSES}u; i++) {{ sum += exp(out[first + i] - largest); }}
    for (var i = 0u; i < {CLASSES}u; i++) {{
        out[first + i] = (exp(out[first + i] - largest) / sum - b[first + i]) / {BATCH}.0;
    }}
}}",
        bindings(2)
    );
    (wgsl, [1, 1, 1])
}

/// Updates a bias with the sum over the batch.
pub(crate) fn descend_bias(len: usize) -> Kernel {
    let wgsl = format!(
        "{}
@compute @workgroup_size({LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {{
    if id.x >= {len}u {{ return; }}
    var sum = 0.0;
    for (var row = 0u; row < {BATCH}u; row++) {{ sum += a[row * {len}u + id.x]; }}
    out[id.x] -= {RATE:?} * sum;
}}",
        bindings(1)
    );
    (wgsl, [len.div_ceil(LANES) as u32, 1, 1])
}
