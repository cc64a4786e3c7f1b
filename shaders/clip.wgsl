// Folds many tensors into one number, or multiplies them by one. Their elements are row-major and
// begin at 0. `members` tensors x0, x1, … share a launch.

//# params
struct Params {
  // Elements of each tensor.
  lens: vec4<u32>,
  more_lens: vec4<u32>,
  // Elements from one vec4 of an invocation to its next.
  step: u32,
  // The largest norm.
  most: f32,
}

//# fold
// An invocation folds every `step`-th vec4 of each tensor into its own element of y. A loop over
// vec4s needs no workgroup memory, which software adapters are slow at.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let first = 4u * id.x;
  if (first >= p.step) {
    return;
  }
  var sum = vec4<f32>(0.0);
//% for j in 0..members
  for (var at = first; at < $len(${j}); at += p.step) {
    sum = folded(sum, inside(x${j}_get4(at), at, $len(${j})));
  }
//% end
  y_put(id.x, joined(y_get(id.x), sum));
}

// Elements beyond the end count as 0.
fn inside(v: vec4<f32>, at: u32, len: u32) -> vec4<f32> {
  return select(vec4<f32>(0.0), v, vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(len));
}

//# squares
fn folded(sum: vec4<f32>, v: vec4<f32>) -> vec4<f32> {
  return fma(v, v, sum);
}

fn joined(before: f32, sum: vec4<f32>) -> f32 {
  return before + ((sum.x + sum.y) + (sum.z + sum.w));
}

//# not_finite
// 1 if an element is infinite or NaN.
fn folded(sum: vec4<f32>, v: vec4<f32>) -> vec4<f32> {
  return select(vec4<f32>(1.0), sum, is_finite(v));
}

fn joined(before: f32, sum: vec4<f32>) -> f32 {
  return max(before, max(max(sum.x, sum.y), max(sum.z, sum.w)));
}

//# scale
// One invocation multiplies one vec4. The tensors follow each other in whole vec4s.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let by = vec4<f32>(factor(c_get(0u)));
  var at = 4u * (id.x + id.y * groups.x * 64u);
//% for j in 0..members
  if (at < $len(${j})) {
    x${j}_put4(at, x${j}_get4(at) * by);
    return;
  }
  at -= ($len(${j}) + 3u) & 0xfffffffcu;
//% end
}

//# clip
// At most 1. A NaN stays: it is tested by bits, as a compiler may make the choice a minimum.
fn factor(norm: f32) -> f32 {
  let by = p.most / (norm + 1e-6);
  let is_number = (bitcast<u32>(by) & 0x7fffffffu) <= 0x7f800000u;
  return select(by, 1.0, by > 1.0 && is_number);
}

//# inverse
fn factor(scale: f32) -> f32 {
  return 1.0 / scale;
}
