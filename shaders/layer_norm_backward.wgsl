// The gradient of the input of layer normalization, row by row: n is the row without its mean, over
// its standard deviation. h is the gradient of the result times the weight. The gradient of the
// input is (h - mean(h) - n * mean(h * n)) / deviation. RMS normalization has no means but those of
// the squares and of h * n. All operands are f32, and rows are whole vec4s.

//# params
struct Params {
  // The starts of x, g and w.
  x: u32,
  g: u32,
  w: u32,
  rows: u32,
  length: u32,
  eps: f32,
}

//# thread
// One invocation takes a row.
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let row = id.x + id.y * groups.x * 32u;
  if (row < p.rows) {
    go_back(row, p.length, 0u);
  }
}

const LANES: u32 = 1u;

fn total(v: vec4<f32>, lane: u32) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

//# group
// One workgroup takes a row: each invocation every `LANES`th vec4.
var<workgroup> tree: array<vec4<f32>, LANES>;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  // Workgroups past the last row only take part in the barriers.
  let row = group.x + group.y * groups.x;
  go_back(row, select(0u, p.length, row < p.rows), lane);
}

fn total(v: vec4<f32>, lane: u32) -> f32 {
  tree[lane] = v;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      tree[lane] += tree[lane + half];
    }
    workgroupBarrier();
  }
  let sum = tree[0];
  workgroupBarrier();
  return (sum.x + sum.y) + (sum.z + sum.w);
}

//# row
// Also writes the mean and the reciprocal of the deviation of the row. The row is measured from its
// first element, as in `layer_norm.wgsl`.
fn go_back(row: u32, length: u32, lane: u32) {
  let start = row * p.length;
  let count = f32(p.length);
  var origin = vec4<f32>(0.0);
  var a = vec4<f32>(0.0);
  if (CENTRED) {
    if (length > 0u) {
      origin = vec4<f32>(x_get4(p.x + start).x);
    }
    for (var k = 4u * lane; k < length; k += 4u * LANES) {
      a += x_get4(p.x + start + k) - origin;
    }
    a = vec4<f32>(total(a, lane) / count);
  }
  let mean = a;
  a = vec4<f32>(0.0);
  for (var k = 4u * lane; k < length; k += 4u * LANES) {
    let d = (x_get4(p.x + start + k) - origin) - mean;
    a += d * d;
  }
  let scale = inverseSqrt(total(a, lane) / count + p.eps);
  a = vec4<f32>(0.0);
  var b = a;
  for (var k = 4u * lane; k < length; k += 4u * LANES) {
    let h = g_get4(p.g + start + k) * weight(k);
    a += h;
    b += h * (((x_get4(p.x + start + k) - origin) - mean) * scale);
  }
  let along = total(b, lane) / count;
  var shift = 0.0;
  if (CENTRED) {
    shift = total(a, lane) / count;
  }
  for (var k = 4u * lane; k < length; k += 4u * LANES) {
    let h = g_get4(p.g + start + k) * weight(k);
    let n = ((x_get4(p.x + start + k) - origin) - mean) * scale;
    y_put4(start + k, ((h - shift) - n * along) * scale);
  }
  if (4u * lane < min(length, 4u)) {
    s_put(row, mean.x);
    t_put(row, scale);
  }
}

//# weight
fn weight(k: u32) -> vec4<f32> {
  return w_get4(p.w + k);
}

//# no_weight
fn weight(k: u32) -> vec4<f32> {
  return vec4<f32>(1.0);
}
