// Functions of vec4s for kernels of all families. Adapters disagree about NaN, infinities and zero,
// and about the last bits. These functions agree on all adapters.

//# is_lane
// Tells which component `lane` is. Components are never written as `v[lane]`: FXC unrolls the
// surrounding loop with all its calls, or rejects it.
fn is_lane(lane: u32) -> vec4<bool> {
  return vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(lane);
}

//# is_nan
// This and the next two test bits, because compilers may assume that every float is finite.
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

//# is_negative
// Below 0, and neither −0 nor NaN. By bits as well: compilers turn the choice of 0 for x < 0 into a
// maximum, which may drop NaN and the sign of −0.
fn is_negative(x: vec4<f32>) -> vec4<bool> {
  return bitcast<vec4<u32>>(x) - vec4<u32>(0x80000001u) < vec4<u32>(0x7f800000u);
}

//# quotient_of
// a / b for every b. Some adapters multiply by 1 / b, which is 0 to them beyond 2^126.
fn quotient_of(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  let scale = select(vec4<f32>(1.0), vec4<f32>(0.25), abs(b) > vec4<f32>(8.507059e37));
  return (a * scale) / (b * scale);
}

//# nan_of
// NaN. WGSL rejects NaN and infinity as constants, so both are computed from bits that are known
// only at run time.
fn nan_of(x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | vec4<u32>(0x7fc00000u));
}

//# infinity_of
// +∞ for every x.
fn infinity_of(x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) & vec4<u32>(0u)) | vec4<u32>(0x7f800000u));
}

//# truth
fn truth(v: vec4<bool>) -> vec4<u32> {
  return select(vec4<u32>(0u), vec4<u32>(1u), v);
}

//# exp_of
// WGSL does not define `exp` of NaN, and on some adapters it is infinity.
fn exp_of(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, is_nan(x));
}

//# log_of
// The adapter's `log` is reliable only for finite numbers above 0.
fn log_of(x: vec4<f32>) -> vec4<f32> {
  let v = select(log(x), -infinity_of(x), x == vec4<f32>(0.0));
  return select(select(x, v, is_finite(x)), nan_of(x), x < vec4<f32>(0.0));
}

//# sine_of
// sin(r + turns · π/2) for |r| ≤ π/4, to 1e-7. WGSL requires only 2^-11 of its `sin`.
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
// sin(x + quarter · π/2). The quarter turns in x are subtracted in three steps, of which the first
// two are exact. So the error is at most 1e-6 for |x| up to 30,000. Far beyond, the adapter's
// result `own` is used.
fn sine(x: vec4<f32>, quarter: i32, own: vec4<f32>) -> vec4<f32> {
  let turns = round(x * 0.636619772);
  var r = fma(turns, vec4<f32>(-1.5703125), x);
  r = fma(turns, vec4<f32>(-4.837512969970703125e-4), r);
  r = fma(turns, vec4<f32>(-7.54978995489188e-8), r);
  let near = abs(x) < vec4<f32>(65536.0);
  let whole = vec4<i32>(select(vec4<f32>(0.0), turns, near));
  let v = select(own, sine_of(r, whole + quarter), near);
  // The sine of infinity is NaN; the adapter may give a number.
  return select(nan_of(x), v, is_finite(x));
}

//# tanh_rest
// tanh(x) / x − 1 for |x| up to 0.625.
fn tanh_rest(x: vec4<f32>) -> vec4<f32> {
  let z = x * x;
  var s = fma(z, vec4<f32>(-5.70498873e-3), vec4<f32>(2.06390888e-2));
  s = fma(s, z, vec4<f32>(-5.37397156e-2));
  s = fma(s, z, vec4<f32>(1.33314422e-1));
  s = fma(s, z, vec4<f32>(-3.33332819e-1));
  return s * z;
}

//# tanh_of
// Exact to a few units in the last place on both sides of 0.625. Far out, where a quotient of
// exponentials would overflow, it is ±1.
fn tanh_of(x: vec4<f32>) -> vec4<f32> {
  let small = fma(tanh_rest(x), x, x);
  let size = min(abs(x), vec4<f32>(10.0));
  let large = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
  let v = select(select(large, -large, x < vec4<f32>(0.0)), small, abs(x) < vec4<f32>(0.625));
  return select(v, x, is_nan(x));
}

//# erf_of
// The relative error is at most 4e-7 everywhere. A quotient of polynomials (Eigen's) takes less
// time than an exponential. Beyond 3.744 the result is 1 except for the last bit.
fn erf_of(x: vec4<f32>) -> vec4<f32> {
  let t = clamp(x, vec4<f32>(-3.74392116), vec4<f32>(3.74392116));
  let z = t * t;
  var p = fma(z, vec4<f32>(2.29050659e-4), vec4<f32>(3.40829101e-3));
  p = fma(p, z, vec4<f32>(5.09556951e-2));
  p = fma(p, z, vec4<f32>(1.85208322e-1));
  p = fma(p, z, vec4<f32>(1.12837914));
  var q = fma(z, vec4<f32>(-1.17916030e-7), vec4<f32>(2.35479665e-5));
  q = fma(q, z, vec4<f32>(1.01796256e-3));
  q = fma(q, z, vec4<f32>(1.40704702e-2));
  q = fma(q, z, vec4<f32>(1.10985051e-1));
  q = fma(q, z, vec4<f32>(4.97469251e-1));
  q = fma(q, z, vec4<f32>(1.0));
  let v = select(t * p / q, sign(x), abs(x) > vec4<f32>(3.74392116));
  return select(v, x, is_nan(x));
}

//# erfc_of
// 1 − erf(x) without the difference: exp(−x²) times a polynomial in (x − 2) / (x + 2), divided by 1
// + 2x. The square is computed in two parts, and the first one is exact. So large x lose no
// precision either.
fn erfc_of(x: vec4<f32>) -> vec4<f32> {
  let a = min(abs(x), vec4<f32>(12.0));
  let q = (a - 2.0) / (a + 2.0);
  var r = fma(q, vec4<f32>(-4.13666392e-4), vec4<f32>(-1.24964328e-3));
  r = fma(r, q, vec4<f32>(1.31939491e-3));
  r = fma(r, q, vec4<f32>(8.64857435e-3));
  r = fma(r, q, vec4<f32>(-8.05942342e-3));
  r = fma(r, q, vec4<f32>(-5.42089492e-2));
  r = fma(r, q, vec4<f32>(1.64055020e-1));
  r = fma(r, q, vec4<f32>(-1.66031003e-1));
  r = fma(r, q, vec4<f32>(-9.27639678e-2));
  r = fma(r, q, vec4<f32>(2.76978374e-1));
  let most = bitcast<vec4<f32>>(bitcast<vec4<u32>>(a) & vec4<u32>(0xfffff000u));
  let bell = exp(-most * most) * exp((most - a) * (most + a));
  let v = bell * ((1.0 + r) / fma(a, vec4<f32>(2.0), vec4<f32>(1.0)));
  return select(select(v, 2.0 - v, x < vec4<f32>(0.0)), x, is_nan(x));
}

//# erfinv_of
// The inverse of erf, with a relative error of 3e-7 (Giles, 2010). It is a polynomial in the
// logarithm of 1 − x², or in its root near ±1.
fn erfinv_of(x: vec4<f32>) -> vec4<f32> {
  let w = -log_of((1.0 - x) * (1.0 + x));
  let t = w - 2.5;
  var r = fma(t, vec4<f32>(2.81022636e-8), vec4<f32>(3.43273939e-7));
  r = fma(r, t, vec4<f32>(-3.52338770e-6));
  r = fma(r, t, vec4<f32>(-4.39150654e-6));
  r = fma(r, t, vec4<f32>(2.18580870e-4));
  r = fma(r, t, vec4<f32>(-1.25372503e-3));
  r = fma(r, t, vec4<f32>(-4.17768164e-3));
  r = fma(r, t, vec4<f32>(2.46640727e-1));
  r = fma(r, t, vec4<f32>(1.50140941));
  let u = sqrt(max(w, vec4<f32>(0.0))) - 3.0;
  var s = fma(u, vec4<f32>(-2.00214257e-4), vec4<f32>(1.00950558e-4));
  s = fma(s, u, vec4<f32>(1.34934322e-3));
  s = fma(s, u, vec4<f32>(-3.67342844e-3));
  s = fma(s, u, vec4<f32>(5.73950773e-3));
  s = fma(s, u, vec4<f32>(-7.62246130e-3));
  s = fma(s, u, vec4<f32>(9.43887047e-3));
  s = fma(s, u, vec4<f32>(1.00167406));
  s = fma(s, u, vec4<f32>(2.83297682));
  let inside = abs(x) < vec4<f32>(1.0);
  let v = select(with_sign(infinity_of(x), x), select(s, r, w < vec4<f32>(5.0)) * x, inside);
  return select(v, nan_of(x), (abs(x) > vec4<f32>(1.0)) | is_nan(x));
}

//# tail_of
// The part of a normal distribution beyond |x|: half of erfc(|x| / √2), to 3e-7 / max(|x|, 1). It
// is the fourth power of a polynomial whose zero is at 5.66, without a division or an exponential.
fn tail_of(x: vec4<f32>) -> vec4<f32> {
  let u = min(abs(x), vec4<f32>(6.0));
  var p = fma(u, vec4<f32>(-3.32380910e-6), vec4<f32>(5.72357894e-5));
  p = fma(p, u, vec4<f32>(-3.00197426e-4));
  p = fma(p, u, vec4<f32>(-5.77236206e-5));
  p = fma(p, u, vec4<f32>(3.83351021e-3));
  p = fma(p, u, vec4<f32>(4.61605983e-3));
  p = fma(p, u, vec4<f32>(-5.01835309e-2));
  p = fma(p, u, vec4<f32>(-1.67736232e-1));
  p = max(fma(p, u, vec4<f32>(8.40896487e-1)), vec4<f32>(0.0));
  p *= p;
  return p * p;
}

//# sigmoid_of
// Uses the exponential of −|x|, which never overflows.
fn sigmoid_of(x: vec4<f32>) -> vec4<f32> {
  let t = exp_of(-abs(x));
  return select(vec4<f32>(1.0), t, x < vec4<f32>(0.0)) / (1.0 + t);
}

//# log1p_of
// ln(1 + x), by the series of atanh where 1 + x would lose digits; -∞ at -1, NaN below. Tiny x are
// returned unchanged: the function halves them, and adapters that flush subnormal numbers would
// give 0.
fn log1p_of(x: vec4<f32>) -> vec4<f32> {
  let s = x / (x + 2.0);
  let z = s * s;
  var r = fma(z, vec4<f32>(0.0909090909), vec4<f32>(0.111111111));
  r = fma(r, z, vec4<f32>(0.142857143));
  r = fma(r, z, vec4<f32>(0.2));
  r = fma(r, z, vec4<f32>(0.333333333));
  let small = 2.0 * fma(s * z, r, s);
  let near = select(small, x, abs(x) < vec4<f32>(1e-30));
  return select(log_of(1.0 + x), near, abs(x) < vec4<f32>(0.33));
}

//# expm1_of
// exp(x) − 1, by Taylor's series where the difference would lose digits.
fn expm1_of(x: vec4<f32>) -> vec4<f32> {
  var r = fma(x, vec4<f32>(2.48015873e-5), vec4<f32>(1.98412698e-4));
  r = fma(r, x, vec4<f32>(1.38888889e-3));
  r = fma(r, x, vec4<f32>(8.33333333e-3));
  r = fma(r, x, vec4<f32>(4.16666667e-2));
  r = fma(r, x, vec4<f32>(1.66666667e-1));
  r = fma(r, x, vec4<f32>(0.5));
  let small = fma(r * x, x, x);
  return select(exp_of(x) - 1.0, small, abs(x) < vec4<f32>(0.4));
}

//# asin_of
// Exact to a few units in the last place (Cephes): a polynomial up to a half, and by the square
// root above. `from_one` selects the root of (1 − |x|) / 2 as the argument.
fn asin_of(x: vec4<f32>, from_one: vec4<bool>) -> vec4<f32> {
  let z = select(x * x, 0.5 * (1.0 - x), from_one);
  let t = select(x, sqrt(z), from_one);
  var r = fma(z, vec4<f32>(4.2163199e-2), vec4<f32>(2.4181311e-2));
  r = fma(r, z, vec4<f32>(4.5470026e-2));
  r = fma(r, z, vec4<f32>(7.4953003e-2));
  r = fma(r, z, vec4<f32>(1.6666752e-1));
  return fma(r * z, t, t);
}

//# arctangent
// The arc tangent of numbers from 0 to 1, to a few units in the last place (Cephes).
fn arctangent(x: vec4<f32>) -> vec4<f32> {
  let far = x > vec4<f32>(0.414213562);
  let t = select(x, (x - 1.0) / (x + 1.0), far);
  let z = t * t;
  var r = fma(z, vec4<f32>(8.05374450e-2), vec4<f32>(-1.38776856e-1));
  r = fma(r, z, vec4<f32>(1.99777106e-1));
  r = fma(r, z, vec4<f32>(-3.33329492e-1));
  let v = fma(r * z, t, t);
  return select(v, v + 0.785398163, far);
}

//# atan2_of
// The angle of the point (x, y). The signs of zeros and infinities count.
fn atan2_of(y: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
  let low = min(abs(x), abs(y));
  let high = max(abs(x), abs(y));
  // Equal magnitudes include two zeros and two infinities, whose quotient is NaN.
  var r = arctangent(select(quotient_of(low, high), vec4<f32>(1.0), low == high));
  r = select(r, vec4<f32>(0.0), (high == vec4<f32>(0.0)) | (is_infinite(high) & (low < high)));
  r = select(r, 1.57079633 - r, abs(y) > abs(x));
  r = select(r, 3.14159265 - r, bitcast<vec4<i32>>(x) < vec4<i32>(0));
  r = with_sign(r, y);
  return select(r, nan_of(x), is_nan(x) | is_nan(y));
}

//# with_sign
// The magnitude of x with the sign of y.
fn with_sign(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
  let sign = bitcast<vec4<u32>>(y) & vec4<u32>(0x80000000u);
  return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) | sign);
}

//# log1p_exp
// ln(1 + exp(x)), without intermediate overflow.
fn log1p_exp(x: vec4<f32>) -> vec4<f32> {
  let v = select(vec4<f32>(0.0), x, x > vec4<f32>(0.0)) + log1p_of(exp_of(-abs(x)));
  return select(v, x, is_nan(x));
}

//# held
// Clamps x to between two numbers; NaN stays.
fn held(x: vec4<f32>, low: f32, high: f32) -> vec4<f32> {
  return select(clamp(x, vec4<f32>(low), vec4<f32>(high)), x, is_nan(x));
}

//# log_of_sum
// The logarithm of the sum of two powers with the exponents a and b. `less` is the smaller power
// divided by the larger one, and `unit` the natural logarithm of the base.
fn log_of_sum(a: vec4<f32>, b: vec4<f32>, less: vec4<f32>, unit: f32) -> vec4<f32> {
  let v = max(a, b) + log1p_of(less) / unit;
  // The difference of two infinities of one sign is NaN.
  return select(select(v, a, (a == b) & is_infinite(a)), nan_of(a), is_nan(a) | is_nan(b));
}

//# lerp_of
// Interpolates from the nearer end, so that both ends are exact.
fn lerp_of(a: vec4<f32>, b: vec4<f32>, weight: vec4<f32>) -> vec4<f32> {
  let far = abs(weight) >= vec4<f32>(0.5);
  return select(fma(weight, b - a, a), fma(weight - 1.0, b - a, b), far);
}

//# gcd_of
// Euclid's algorithm, which takes at most 47 steps.
fn gcd_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  var x = a;
  var y = b;
  for (var step = 0u; step < 48u && any(y != vec4<u32>(0u)); step++) {
    let over = y == vec4<u32>(0u);
    let rest = x % max(y, vec4<u32>(1u));
    x = select(y, x, over);
    y = rest;
  }
  return x;
}

//# rest_of
// The exact remainder of x / y with the sign of x, as C's fmod. WGSL's own is wrong where the
// quotient is rounded. This is a long division of the two numbers' 24 bits, with eight bits of the
// quotient in each round. Exponents of floats, including subnormal ones, differ by at most 276.
fn rest_of(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
  let a = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
  let b = bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu);
  let exponent_a = exponent_of(a);
  let exponent = exponent_of(b);
  let divisor = digits_of(b);
  let inverse = vec4<f32>(1.0) / vec4<f32>(divisor);
  var r = digits_of(a);
  r -= select(vec4<u32>(0u), divisor, r >= divisor);
  var left = vec4<u32>(max(exponent_a - exponent, vec4<i32>(0)));
  for (var round = 0u; round < 35u; round += 1u) {
    if (all(left == vec4<u32>(0u))) { break; }
    let bits = min(left, vec4<u32>(8u));
    r <<= bits;
    // Quotients below 256 have an error far below one, so the result is right or one off.
    r -= vec4<u32>(vec4<f32>(r) * inverse) * divisor;
    r += select(vec4<u32>(0u), divisor, r >= vec4<u32>(0x80000000u));
    r -= select(vec4<u32>(0u), divisor, r >= divisor);
    left -= bits;
  }
  // Moves the leading bit to its place, or as far as the exponent allows.
  let up = max(countLeadingZeros(r), vec4<u32>(8u)) - vec4<u32>(8u);
  let e = exponent - vec4<i32>(up) - vec4<i32>(1);
  let down = vec4<u32>(min(max(-e, vec4<i32>(0)), vec4<i32>(31)));
  let normal = (vec4<u32>(max(e, vec4<i32>(0))) << vec4<u32>(23u)) + ((r << up) >> down);
  var v = select(normal, vec4<u32>(0u), r == vec4<u32>(0u));
  v = select(v, a, a < b);
  v |= bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
  let infinity = vec4<u32>(0x7f800000u);
  let is_none = (a >= infinity) | (b > infinity) | (b == vec4<u32>(0u));
  return bitcast<vec4<f32>>(select(v, vec4<u32>(0x7fc00000u), is_none));
}

//# digits_of
// The 24 bits of a float without its sign. The first one is set, except for zero.
fn digits_of(a: vec4<u32>) -> vec4<u32> {
  let low = a & vec4<u32>(0x7fffffu);
  let up = max(countLeadingZeros(low), vec4<u32>(8u)) - vec4<u32>(8u);
  let leading = vec4<u32>(0x800000u);
  return select(low << min(up, vec4<u32>(31u)), low | leading, a >= leading);
}

//# exponent_of
// The exponent that belongs to these digits. It continues downwards below the least normal number.
fn exponent_of(a: vec4<u32>) -> vec4<i32> {
  let low = a & vec4<u32>(0x7fffffu);
  let up = vec4<i32>(max(countLeadingZeros(low), vec4<u32>(8u)) - vec4<u32>(8u));
  let leading = vec4<u32>(0x800000u);
  return select(vec4<i32>(1) - up, vec4<i32>(a >> vec4<u32>(23u)), a >= leading);
}

//# power_of
// a to the power of b, as C's pow. WGSL's own takes no negative base.
fn power_of(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  // Infinity and zero take any exponent; other negative numbers take only whole ones. Adapters
  // differ in the logarithms of infinity and zero, and so in the products.
  let far = (a == vec4<f32>(0.0)) | is_infinite(a);
  let grows = (abs(a) > vec4<f32>(1.0)) == (b > vec4<f32>(0.0));
  let edge = select(vec4<f32>(0.0), infinity_of(a), grows);
  let m = select(exp2(b * log2(abs(a))), edge, far | is_infinite(b));
  let whole = trunc(b) == b;
  let odd = whole & (abs(b) < vec4<f32>(16777216.0)) & (trunc(b * 0.5) * 2.0 != b);
  var v = select(m, select(m, -m, odd), bitcast<vec4<i32>>(a) < vec4<i32>(0));
  v = select(v, nan_of(a), (a < vec4<f32>(0.0)) & !whole & !far);
  v = select(v, a + b, is_nan(a) | is_nan(b));
  let one = (b == vec4<f32>(0.0)) | (a == vec4<f32>(1.0)) | ((a == vec4<f32>(-1.0)) & is_infinite(b));
  return select(v, vec4<f32>(1.0), one);
}
