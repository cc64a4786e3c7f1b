// Operations on two elements of one type. The section `name.kind`, if there is one, replaces `name`
// for inputs that are computed as `kind`.

//# add
fn op(a: A, b: A) -> Y { return a + b; }

//# sub
fn op(a: A, b: A) -> Y { return a - b; }

//# mul
fn op(a: A, b: A) -> Y { return a * b; }

//# div
// WGSL defines the results for integers: a / 0 is a, and the least number divided by −1 is itself.
fn op(a: A, b: A) -> Y { return a / b; }

//# div.f32
fn op(a: A, b: A) -> Y { return quotient_of(a, b); }

//# rem
// WGSL defines a % 0 as 0 for integers.
fn op(a: A, b: A) -> Y { return a % b; }

//# rem.f32
fn op(a: A, b: A) -> Y { return rest_of(a, b); }

//# remainder
// The remainder with the sign of the divisor.
fn op(a: A, b: A) -> Y {
  let r = a % b;
  return select(r, r + b, (r != A(0)) & ((r < A(0)) != (b < A(0))));
}

//# remainder.u32
fn op(a: A, b: A) -> Y { return a % b; }

//# remainder.f32
// The sign and zero are tested by bits, because some adapters treat subnormal numbers as zero.
fn op(a: A, b: A) -> Y {
  let r = rest_of(a, b);
  let is_some = (bitcast<vec4<u32>>(r) & vec4<u32>(0x7fffffffu)) != vec4<u32>(0u);
  let is_beyond = (bitcast<vec4<i32>>(r) ^ bitcast<vec4<i32>>(b)) < vec4<i32>(0);
  return select(with_sign(r, b), r + b, is_some & is_beyond);
}

//# floor_divide
// a / 0 is a.
fn op(a: A, b: A) -> Y {
  let q = a / b;
  return select(q, q - A(1), (b != A(0)) & (a % b != A(0)) & ((a < A(0)) != (b < A(0))));
}

//# floor_divide.u32
fn op(a: A, b: A) -> Y { return a / b; }

//# floor_divide.f32
// Divides what is left after the remainder is subtracted, so that both operations agree.
fn op(a: A, b: A) -> Y {
  let r = rest_of(a, b);
  let q = quotient_of(a - r, b);
  let below = select(q, q - 1.0, (r != A(0.0)) & ((r < A(0.0)) != (b < A(0.0))));
  let v = select(round(below), below, is_infinite(below));
  return select(v, quotient_of(a, b), (b == A(0.0)) | is_nan(a) | is_nan(b) | is_infinite(a));
}

//# atan2
fn op(a: A, b: A) -> Y { return atan2_of(a, b); }

//# hypot
// The larger one is factored out, so that no square overflows. Infinity wins over NaN.
fn op(a: A, b: A) -> Y {
  let low = min(abs(a), abs(b));
  let high = max(abs(a), abs(b));
  let q = quotient_of(low, select(high, A(1.0), high == A(0.0)));
  let v = select(high * sqrt(fma(q, q, A(1.0))), nan_of(a), is_nan(a) | is_nan(b));
  return select(v, infinity_of(a), is_infinite(a) | is_infinite(b));
}

//# copysign
fn op(a: A, b: A) -> Y { return with_sign(a, b); }

//# fmax
fn op(a: A, b: A) -> Y { return select(select(b, a, (a > b) | is_nan(b)), b, is_nan(a)); }

//# fmin
fn op(a: A, b: A) -> Y { return select(select(b, a, (a < b) | is_nan(b)), b, is_nan(a)); }

//# pow.f32
fn op(a: A, b: A) -> Y { return power_of(a, b); }

//# pow.i32
fn op(a: A, b: A) -> Y {
  var base = a;
  var e = vec4<u32>(max(b, A(0)));
  var v = A(1);
  for (var bit = 0u; bit < 31u; bit++) {
    v = select(v, v * base, (e & vec4<u32>(1u)) != vec4<u32>(0u));
    base = base * base;
    e = e >> vec4<u32>(1u);
  }
  let parity = select(A(1), a, (b & A(1)) != A(0));
  return select(v, select(A(0), parity, abs(a) == A(1)), b < A(0));
}

//# pow.u32
fn op(a: A, b: A) -> Y {
  var base = a;
  var e = b;
  var v = A(1u);
  for (var bit = 0u; bit < 32u; bit++) {
    v = select(v, v * base, (e & A(1u)) != A(0u));
    base = base * base;
    e = e >> A(1u);
  }
  return v;
}

//# maximum
fn op(a: A, b: A) -> Y { return max(a, b); }

//# maximum.f32
fn op(a: A, b: A) -> Y {
  return select(select(select(b, a, a > b), b, is_nan(b)), a, is_nan(a));
}

//# minimum
fn op(a: A, b: A) -> Y { return min(a, b); }

//# minimum.f32
fn op(a: A, b: A) -> Y {
  return select(select(select(b, a, a < b), b, is_nan(b)), a, is_nan(a));
}

//# eq
fn op(a: A, b: A) -> Y { return truth(a == b); }

//# eq.f32
fn op(a: A, b: A) -> Y { return truth((a == b) & !(is_nan(a) | is_nan(b))); }

//# ne
fn op(a: A, b: A) -> Y { return truth(a != b); }

//# ne.f32
fn op(a: A, b: A) -> Y { return truth((a != b) | is_nan(a) | is_nan(b)); }

//# lt
fn op(a: A, b: A) -> Y { return truth(a < b); }

//# lt.f32
fn op(a: A, b: A) -> Y { return truth((a < b) & !(is_nan(a) | is_nan(b))); }

//# le
fn op(a: A, b: A) -> Y { return truth(a <= b); }

//# le.f32
fn op(a: A, b: A) -> Y { return truth((a <= b) & !(is_nan(a) | is_nan(b))); }

//# gt
fn op(a: A, b: A) -> Y { return truth(a > b); }

//# gt.f32
fn op(a: A, b: A) -> Y { return truth((a > b) & !(is_nan(a) | is_nan(b))); }

//# ge
fn op(a: A, b: A) -> Y { return truth(a >= b); }

//# ge.f32
fn op(a: A, b: A) -> Y { return truth((a >= b) & !(is_nan(a) | is_nan(b))); }

//# logical_and
fn op(a: A, b: A) -> Y { return truth((a != A(0)) & (b != A(0))); }

//# logical_and.f32
fn op(a: A, b: A) -> Y { return truth(((a != A(0.0)) | is_nan(a)) & ((b != A(0.0)) | is_nan(b))); }

//# logical_or
fn op(a: A, b: A) -> Y { return truth((a | b) != A(0)); }

//# logical_or.f32
fn op(a: A, b: A) -> Y { return truth((a != A(0.0)) | is_nan(a) | (b != A(0.0)) | is_nan(b)); }

//# logical_xor
fn op(a: A, b: A) -> Y { return truth((a != A(0)) != (b != A(0))); }

//# logical_xor.f32
fn op(a: A, b: A) -> Y { return truth(((a != A(0.0)) | is_nan(a)) != ((b != A(0.0)) | is_nan(b))); }

//# bitwise_and
fn op(a: A, b: A) -> Y { return a & b; }

//# bitwise_or
fn op(a: A, b: A) -> Y { return a | b; }

//# bitwise_xor
fn op(a: A, b: A) -> Y { return a ^ b; }

//# left_shift
// Shifts by at least all bits, or by negative numbers, give 0.
fn op(a: A, b: A) -> Y {
  let by = bitcast<vec4<u32>>(b);
  return select(A(0), a << (by & vec4<u32>(31u)), by < vec4<u32>(32u));
}

//# right_shift
// Such shifts leave only the sign.
fn op(a: A, b: A) -> Y {
  let by = bitcast<vec4<u32>>(b);
  let last = a >> vec4<u32>(31u);
  return select(last, a >> (by & vec4<u32>(31u)), by < vec4<u32>(32u));
}

//# right_shift.u32
fn op(a: A, b: A) -> Y { return select(A(0u), a >> (b & A(31u)), b < A(32u)); }

//# bit
// Bit `b` of `a`.
fn op(a: A, b: A) -> Y { return truth(((a >> (bitcast<vec4<u32>>(b) & vec4<u32>(31u))) & A(1)) != A(0)); }

//# logaddexp
fn op(a: A, b: A) -> Y { return log_of_sum(a, b, exp_of(-abs(a - b)), 1.0); }

//# logaddexp2
fn op(a: A, b: A) -> Y { return log_of_sum(a, b, exp2(-abs(a - b)), 0.693147181); }

//# xlogy
fn op(a: A, b: A) -> Y {
  let v = select(a * log_of(b), A(0.0), a == A(0.0));
  return select(v, nan_of(a), is_nan(a) | is_nan(b));
}

//# xlog1py
fn op(a: A, b: A) -> Y {
  let v = select(a * log1p_of(b), A(0.0), a == A(0.0));
  return select(v, nan_of(a), is_nan(a) | is_nan(b));
}

//# heaviside
fn op(a: A, b: A) -> Y { return select(select(A(0), A(1), a > A(0)), b, a == A(0)); }

//# heaviside.f32
fn op(a: A, b: A) -> Y {
  let v = select(select(A(0.0), A(1.0), a > A(0.0)), b, a == A(0.0));
  return select(v, a, is_nan(a));
}

//# gcd.i32
fn op(a: A, b: A) -> Y { return A(gcd_of(vec4<u32>(abs(a)), vec4<u32>(abs(b)))); }

//# gcd.u32
fn op(a: A, b: A) -> Y { return gcd_of(a, b); }

//# lcm.i32
fn op(a: A, b: A) -> Y {
  let divisor = A(gcd_of(vec4<u32>(abs(a)), vec4<u32>(abs(b))));
  return abs(a / select(divisor, A(1), divisor == A(0)) * b);
}

//# lcm.u32
fn op(a: A, b: A) -> Y { return a / max(gcd_of(a, b), A(1u)) * b; }

//# lerp
// Interpolates from a to b with the weight p.w0.z.
fn op(a: A, b: A) -> Y { return lerp_of(a, b, A(bitcast<f32>(p.w0.z))); }

//# is_close
// The absolute tolerance is p.w0.w, and the relative one p.w0.z times b.
fn op(a: A, b: A) -> Y {
  let gap = abs(a - b);
  let allowed = bitcast<f32>(p.w0.w) + abs(bitcast<f32>(p.w0.z) * b);
  let near = is_finite(gap) & (gap <= allowed);
  return truth(((a == b) | near) & !(is_nan(a) | is_nan(b)));
}

//# glu
fn op(a: A, b: A) -> Y { return a * sigmoid_of(b); }
