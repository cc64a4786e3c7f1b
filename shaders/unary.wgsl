// Operations on one element. The section `name.kind`, if there is one, replaces `name` for inputs
// that are computed as `kind`.

//# neg
fn op(x: A) -> Y { return -x; }

//# neg.u32
fn op(x: A) -> Y { return A(0u) - x; }

//# abs
fn op(x: A) -> Y { return abs(x); }

//# sign
fn op(x: A) -> Y { return sign(x); }

//# sign.f32
fn op(x: A) -> Y { return select(sign(x), x, is_nan(x)); }

//# sign.u32
fn op(x: A) -> Y { return min(x, A(1u)); }

//# square
fn op(x: A) -> Y { return x * x; }

//# relu
fn op(x: A) -> Y { return max(x, A(0)); }

//# relu.f32
fn op(x: A) -> Y { return select(x, A(0.0), is_negative(x)); }

//# exp
fn op(x: A) -> Y { return exp_of(x); }

//# log
fn op(x: A) -> Y { return log_of(x); }

//# sqrt
fn op(x: A) -> Y { return sqrt(x); }

//# rsqrt
fn op(x: A) -> Y { return inverseSqrt(x); }

//# recip
fn op(x: A) -> Y { return 1.0 / x; }

//# sin
fn op(x: A) -> Y { return sine(x, 0, sin(x)); }

//# cos
fn op(x: A) -> Y { return sine(x, 1, cos(x)); }

//# tanh
fn op(x: A) -> Y { return tanh_of(x); }

//# erf
fn op(x: A) -> Y { return erf_of(x); }

//# sigmoid
fn op(x: A) -> Y { return sigmoid_of(x); }

//# silu
fn op(x: A) -> Y { return x * sigmoid_of(x); }

//# gelu
fn op(x: A) -> Y {
  let tail = tail_of(x);
  return x * select(1.0 - tail, tail, x < A(0.0));
}

//# gelu_tanh
fn op(x: A) -> Y {
  return 0.5 * x * (1.0 + tanh_of(0.797884561 * fma(x * x * x, A(0.044715), x)));
}

//# floor
fn op(x: A) -> Y { return floor(x); }

//# ceil
fn op(x: A) -> Y { return ceil(x); }

//# round
fn op(x: A) -> Y { return round(x); }

//# trunc
fn op(x: A) -> Y { return trunc(x); }

//# logical_not
fn op(x: A) -> Y { return truth(x == A(T(0))); }

//# is_nan
fn op(x: A) -> Y { return truth(is_nan(x)); }

//# is_finite
fn op(x: A) -> Y { return truth(is_finite(x)); }

//# clamp
fn op(x: A) -> Y { return min(max(x, A(bitcast<T>(p.w0.z))), A(bitcast<T>(p.w0.w))); }

//# clamp.f32
fn op(x: A) -> Y {
  let low = A(bitcast<f32>(p.w0.z));
  let high = A(bitcast<f32>(p.w0.w));
  let raised = select(x, low, (x < low) | is_nan(low));
  let v = select(raised, high, (raised > high) | is_nan(high));
  return select(v, x, is_nan(x));
}

//# exp2
fn op(x: A) -> Y { return select(exp2(x), x, is_nan(x)); }

//# expm1
fn op(x: A) -> Y { return expm1_of(x); }

//# log2
fn op(x: A) -> Y {
  // The edges come from `log_of`, and everything in between from the adapter.
  let inside = is_finite(x) & (x > A(0.0));
  return select(log_of(x), log2(select(A(1.0), x, inside)), inside);
}

//# log10
fn op(x: A) -> Y { return log_of(x) * 0.434294482; }

//# log1p
fn op(x: A) -> Y { return log1p_of(x); }

//# frac
fn op(x: A) -> Y { return select(x - trunc(x), nan_of(x), is_infinite(x)); }

//# tan
fn op(x: A) -> Y { return sine(x, 0, sin(x)) / sine(x, 1, cos(x)); }

//# asin
fn op(x: A) -> Y {
  let size = abs(x);
  let far = size > A(0.5);
  let r = asin_of(min(size, A(1.0)), far);
  let v = with_sign(select(r, 1.57079633 - 2.0 * r, far), x);
  return select(v, nan_of(x), !(size <= A(1.0)) | is_nan(x));
}

//# acos
fn op(x: A) -> Y {
  let size = abs(x);
  let far = size > A(0.5);
  let r = asin_of(min(size, A(1.0)), far);
  let right = select(1.57079633 - r, 2.0 * r, far);
  let v = select(right, 3.14159265 - right, x < A(0.0));
  return select(v, nan_of(x), !(size <= A(1.0)) | is_nan(x));
}

//# atan
fn op(x: A) -> Y { return atan2_of(x, A(1.0)); }

//# sinh
fn op(x: A) -> Y {
  let z = x * x;
  var r = fma(z, A(2.03721913e-4), A(8.33028376e-3));
  r = fma(r, z, A(1.66667160e-1));
  let small = fma(r * z, x, x);
  // Half of the exponential, without its overflow.
  let half = exp_of(abs(x) - 0.693147181);
  let large = with_sign(half - 0.25 / half, x);
  return select(select(large, small, abs(x) < A(1.0)), x, is_nan(x) | is_infinite(x));
}

//# cosh
fn op(x: A) -> Y {
  let half = exp_of(abs(x) - 0.693147181);
  return select(half + 0.25 / half, abs(x), is_nan(x) | is_infinite(x));
}

//# asinh
fn op(x: A) -> Y {
  let size = abs(x);
  let z = size * size;
  let near = log1p_of(size + z / (1.0 + sqrt(z + 1.0)));
  let v = select(near, log_of(size) + 0.693147181, size > A(1e8));
  return select(with_sign(v, x), x, is_nan(x));
}

//# acosh
fn op(x: A) -> Y {
  let t = x - 1.0;
  let near = log1p_of(t + sqrt(t * (t + 2.0)));
  let v = select(near, log_of(x) + 0.693147181, x > A(1e8));
  return select(v, nan_of(x), (x < A(1.0)) | is_nan(x));
}

//# atanh
fn op(x: A) -> Y {
  let size = abs(x);
  let v = 0.5 * log1p_of(2.0 * size / (1.0 - size));
  let edge = select(v, infinity_of(x), size == A(1.0));
  return select(with_sign(edge, x), nan_of(x), (size > A(1.0)) | is_nan(x));
}

//# softplus
fn op(x: A) -> Y { return log1p_exp(x); }

//# log_sigmoid
fn op(x: A) -> Y { return -log1p_exp(-x); }

//# softsign
fn op(x: A) -> Y { return quotient_of(x, 1.0 + abs(x)); }

//# mish
fn op(x: A) -> Y { return x * tanh_of(log1p_exp(x)); }

//# hardsigmoid
fn op(x: A) -> Y { return held(fma(x, A(0.166666667), A(0.5)), 0.0, 1.0); }

//# hardswish
fn op(x: A) -> Y { return x * (held(x + 3.0, 0.0, 6.0) * 0.166666667); }

//# leaky_relu
// Below 0 the slope is p.w0.z.
fn op(x: A) -> Y { return select(x, x * bitcast<f32>(p.w0.z), x < A(0.0)); }

//# elu
// Below 0 it is the exponential times p.w0.z. Everything is scaled by p.w0.w.
fn op(x: A) -> Y {
  let below = bitcast<f32>(p.w0.z) * expm1_of(x);
  return bitcast<f32>(p.w0.w) * select(x, below, x < A(0.0));
}

//# bitwise_not
fn op(x: A) -> Y { return ~x; }

//# is_inf
fn op(x: A) -> Y { return truth(is_infinite(x)); }

//# erfc
fn op(x: A) -> Y { return erfc_of(x); }

//# erfinv
fn op(x: A) -> Y { return erfinv_of(x); }

//# ndtr
fn op(x: A) -> Y {
  let tail = tail_of(x);
  return select(select(1.0 - tail, tail, x < A(0.0)), x, is_nan(x));
}

//# sinc
// The quarter turns are subtracted before the product with π, which is exact. So the result is 0 at
// every whole number except 0.
fn op(x: A) -> Y {
  let near = abs(x) < A(8388608.0);
  let turns = select(A(0.0), round(2.0 * x), near);
  let wave = sine_of(fma(turns, A(-0.5), x) * 3.14159265, vec4<i32>(turns)) / (3.14159265 * x);
  let v = select(select(A(0.0), wave, near), A(1.0), abs(x) < A(1e-20));
  return select(nan_of(x), v, is_finite(x));
}

//# logit
// Near a half, where the result is 0, it uses log1p of the odds minus 1.
fn op(x: A) -> Y {
  let half = log1p_of(fma(x, A(2.0), A(-1.0)) / (1.0 - x));
  let v = select(log_of(x / (1.0 - x)), half, abs(x - 0.5) < A(0.25));
  let edge = select(v, infinity_of(x), x == A(1.0));
  return select(edge, nan_of(x), (x < A(0.0)) | (x > A(1.0)) | is_nan(x));
}

//# celu
// Below 0 it is p.w0.z times the exponential of x / p.w0.z, minus 1.
fn op(x: A) -> Y {
  let alpha = bitcast<f32>(p.w0.z);
  return select(x, alpha * expm1_of(x / alpha), x < A(0.0));
}

//# signbit
fn op(x: A) -> Y { return truth(x < A(0)); }

//# signbit.u32
fn op(x: A) -> Y { return Y(); }

//# signbit.f32
fn op(x: A) -> Y { return bitcast<vec4<u32>>(x) >> vec4<u32>(31u); }

//# tanhshrink
fn op(x: A) -> Y { return select(x - tanh_of(x), -x * tanh_rest(x), abs(x) < A(0.625)); }

//# deg2rad
fn op(x: A) -> Y { return x * 0.0174532925; }

//# rad2deg
fn op(x: A) -> Y { return x * 57.2957795; }
