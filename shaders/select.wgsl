// Selects one of two elements by a third.

//# where
fn op(c: vec4<u32>, a: A, b: A) -> Y { return select(b, a, c != vec4<u32>(0u)); }
