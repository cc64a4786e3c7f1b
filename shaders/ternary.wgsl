// Operations on three elements of one type. `name.kind` stands before `name` for inputs that are
// computed in that kind.

//# lerp
fn op(a: A, b: A, c: A) -> Y { return lerp_of(a, b, c); }

//# addcmul
fn op(a: A, b: A, c: A) -> Y { return a + A(bitcast<T>(p.w0.z)) * b * c; }

//# addcdiv
fn op(a: A, b: A, c: A) -> Y { return a + bitcast<f32>(p.w0.z) * b / c; }
