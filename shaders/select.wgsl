// One of two elements, as a third says.

//# where
fn op(c: vec4<u32>, a: A, b: A) -> Y { return select(b, a, c != vec4<u32>(0u)); }
