// Functions of a quad that kernels call, whatever their family. Adapters disagree about NaN,
// infinities and zero, and about the last bits; these agree.

//# is_nan
// This and the next two by the bits: compilers may take it for granted that every float is finite.
fn is_nan(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

//# is_infinite
fn is_infinite(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>(0x7f800000u);
}

//# is_finite
fn is_finite(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) < vec4<u32>(0x7f800000u);
}

//# nan_of
// NaN. WGSL refuses to spell it or infinity out, so that they are made of bits which are only known
// when the kernel runs.
fn nan_of(x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | vec4<u32>(0x7fc00000u));
}

//# infinity_of
// +∞, whatever x is.
fn infinity_of(x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) & vec4<u32>(0u)) | vec4<u32>(0x7f800000u));
}

//# truth
fn truth(v: vec4<bool>) -> vec4<u32> {
  return select(vec4<u32>(0u), vec4<u32>(1u), v);
}

//# exp_of
// WGSL leaves it to the adapter what its own makes of NaN, and on some that is infinity.
fn exp_of(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, is_nan(x));
}

//# log_of
// The adapter's own is only to be trusted with what is finite and above 0.
fn log_of(x: vec4<f32>) -> vec4<f32> {
  let v = select(log(x), -infinity_of(x), x == vec4<f32>(0.0));
  return select(select(x, v, is_finite(x)), nan_of(x), x < vec4<f32>(0.0));
}

//# sine_of
// sin(r + turns · π/2) for |r| ≤ π/4, to 1e-7: WGSL asks only 2^-11 of its own.
fn sine_of(r: vec4<f32>, turns: vec4<i32>) -> vec4<f32> {
  let z = r * r;
  let s2 = fma(z, vec4<f32>(-1.9515296e-4), vec4<f32>(8.3321609e-3));
  let s = fma(fma(s2, z, vec4<f32>(-1.6666655e-1)) * z, r, r);
  let c2 = fma(z, vec4<f32>(2.4433157e-5), vec4<f32>(-1.3887316e-3));
  let c = fma(fma(c2, z, vec4<f32>(4.1666646e-2)), z * z, fma(z, vec4<f32>(-0.5), vec4<f32>(1.0)));
  let v = select(s, c, (turns & vec4<i32>(1)) != vec4<i32>(0));
  return select(v, -v, (turns & vec4<i32>(2)) != vec4<i32>(0));
}

//# sine
// sin(x + quarter · π/2). The quarter turns in x are taken off in three steps, the first two of
// which are exact, so that it holds to 1e-6 for |x| up to 30,000; far out the adapter's own has
// to do.
fn sine(x: vec4<f32>, quarter: i32, own: vec4<f32>) -> vec4<f32> {
  let turns = round(x * 0.636619772);
  var r = fma(turns, vec4<f32>(-1.5703125), x);
  r = fma(turns, vec4<f32>(-4.837512969970703125e-4), r);
  r = fma(turns, vec4<f32>(-7.54978995489188e-8), r);
  let near = abs(x) < vec4<f32>(65536.0);
  let whole = vec4<i32>(select(vec4<f32>(0.0), turns, near));
  let v = select(own, sine_of(r, whole + quarter), near);
  // Infinity has no sine, and the adapter's own may give NaN one.
  return select(nan_of(x), v, is_finite(x));
}

//# tanh_of
// Exact to a few units in the last place on both sides of 0.625, and ±1 far out, where a
// quotient of exponentials would overflow.
fn tanh_of(x: vec4<f32>) -> vec4<f32> {
  let z = x * x;
  var s = fma(z, vec4<f32>(-5.70498873e-3), vec4<f32>(2.06390888e-2));
  s = fma(s, z, vec4<f32>(-5.37397156e-2));
  s = fma(s, z, vec4<f32>(1.33314422e-1));
  s = fma(s, z, vec4<f32>(-3.33332819e-1));
  let small = fma(s * z, x, x);
  let size = min(abs(x), vec4<f32>(10.0));
  let large = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
  let v = select(select(large, -large, x < vec4<f32>(0.0)), small, abs(x) < vec4<f32>(0.625));
  return select(v, x, is_nan(x));
}

//# erf_of
// To 2e-7 everywhere (N. Juffa's two polynomials).
fn erf_of(x: vec4<f32>) -> vec4<f32> {
  let t = min(abs(x), vec4<f32>(4.0));
  let z = t * t;
  var r = fma(t, vec4<f32>(-1.72853470e-5), vec4<f32>(3.83197126e-4));
  let u = fma(t, vec4<f32>(-3.88396438e-3), vec4<f32>(2.42546219e-2));
  r = fma(r, z, u);
  r = fma(r, t, vec4<f32>(-1.06777877e-1));
  r = fma(r, t, vec4<f32>(-6.34846687e-1));
  r = fma(r, t, vec4<f32>(-1.28717512e-1));
  r = fma(r, t, -t);
  let large = 1.0 - exp(r);
  var s = fma(z, vec4<f32>(-5.96761703e-4), vec4<f32>(4.99119423e-3));
  s = fma(s, z, vec4<f32>(-2.67681349e-2));
  s = fma(s, z, vec4<f32>(1.12819925e-1));
  s = fma(s, z, vec4<f32>(-3.76125336e-1));
  s = fma(s, z, vec4<f32>(1.28379166e-1));
  let small = fma(s, t, t);
  let v = select(small, large, t > vec4<f32>(0.927734375));
  return select(select(v, -v, x < vec4<f32>(0.0)), x, is_nan(x));
}

//# sigmoid_of
// By the exponential of −|x|, which never overflows.
fn sigmoid_of(x: vec4<f32>) -> vec4<f32> {
  let t = exp_of(-abs(x));
  return select(vec4<f32>(1.0), t, x < vec4<f32>(0.0)) / (1.0 + t);
}
