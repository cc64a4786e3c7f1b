// Operations on one element. `name.kind` stands before `name` for inputs that are computed in
// that kind.

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
fn op(x: A) -> Y { return select(x, A(0.0), x < A(0.0)); }

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
fn op(x: A) -> Y { return 0.5 * x * (1.0 + erf_of(x * 0.707106781)); }

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
