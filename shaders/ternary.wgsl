// Operations on three elements of one type. The section `name.kind`, if there is one, replaces
// `name` for inputs that are computed as `kind`.

//# lerp
fn op(a: A, b: A, c: A) -> Y { return lerp_of(a, b, c); }

//# addcmul
fn op(a: A, b: A, c: A) -> Y { return a + A(bitcast<T>(p.w0.z)) * b * c; }

//# addcdiv
fn op(a: A, b: A, c: A) -> Y { return a + quotient_of(bitcast<f32>(p.w0.z) * b, c); }
