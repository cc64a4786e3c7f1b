// Softmax and its logarithm: `s` is a row's maximum, `t` the sum of exp(x − s).

//# stats
const EMPTY_S: f32 = -3.4028234663852886e+38f;

fn fold_s(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  return max(a, b);
}

fn settle_s(a: vec4<f32>) -> f32 {
  return max(max(a.x, a.y), max(a.z, a.w));
}

// NaN must reach the sum, which spreads it to every element of the row: `s` may have lost it.
fn lift_t(v: vec4<f32>, s: vec4<f32>) -> vec4<f32> {
  return exp_of(v - s);
}

//# softmax
fn settle_t(total: vec4<f32>) -> vec4<f32> {
  return total;
}

fn finish(v: vec4<f32>, s: vec4<f32>, t: vec4<f32>, at: vec4<u32>) -> vec4<f32> {
  return exp(v - s) / t;
}

//# log_softmax
fn settle_t(total: vec4<f32>) -> vec4<f32> {
  return log_of(total);
}

fn finish(v: vec4<f32>, s: vec4<f32>, t: vec4<f32>, at: vec4<u32>) -> vec4<f32> {
  return (v - s) - t;
}
