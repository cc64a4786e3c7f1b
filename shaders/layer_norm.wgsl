// Layer normalization: `s` is a row's mean from its first element, `t` the reciprocal of its
// standard deviation. RMS normalization measures from 0 instead, and has no `s`.

//# stats
const EMPTY_S: f32 = 0.0;

fn fold_s(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  return a + b;
}

fn settle_s(a: vec4<f32>) -> f32 {
  return sum4(a).x / f32(p.length);
}

fn lift_t(v: vec4<f32>, s: vec4<f32>) -> vec4<f32> {
  let d = v - s;
  return d * d;
}

//# finish
fn settle_t(total: vec4<f32>) -> vec4<f32> {
  return inverseSqrt(total / f32(p.length) + vec4<f32>(p.scalar));
}

fn finish(v: vec4<f32>, s: vec4<f32>, t: vec4<f32>, at: vec4<u32>) -> vec4<f32> {
  return (v - s) * t * weight(at) + bias(at);
}

//# stats_rms
const EMPTY_S: f32 = 0.0;

fn fold_s(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  return a;
}

fn settle_s(a: vec4<f32>) -> f32 {
  return 0.0;
}

fn lift_t(v: vec4<f32>, s: vec4<f32>) -> vec4<f32> {
  return v * v;
}

//# finish_rms
fn settle_t(total: vec4<f32>) -> vec4<f32> {
  return inverseSqrt(total / f32(p.length) + vec4<f32>(p.scalar));
}

fn finish(v: vec4<f32>, s: vec4<f32>, t: vec4<f32>, at: vec4<u32>) -> vec4<f32> {
  return v * t * weight(at);
}

//# weight_vec4s
fn weight(at: vec4<u32>) -> vec4<f32> {
  return w_get4(p.second + at.x);
}

//# weight_apart
fn weight(at: vec4<u32>) -> vec4<f32> {
  let w = vec4<u32>(p.second) + at;
  return vec4<f32>(w_get(w.x), w_get(w.y), w_get(w.z), w_get(w.w));
}

//# weight_none
fn weight(at: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(1.0);
}

//# bias_vec4s
fn bias(at: vec4<u32>) -> vec4<f32> {
  return b_get4(p.third + at.x);
}

//# bias_apart
fn bias(at: vec4<u32>) -> vec4<f32> {
  let b = vec4<u32>(p.third) + at;
  return vec4<f32>(b_get(b.x), b_get(b.y), b_get(b.z), b_get(b.w));
}

//# bias_none
fn bias(at: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(0.0);
}
