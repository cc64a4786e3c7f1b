// Elements that depend only on their number. `k` is the number of a vec4's first element.

//# full
fn op(k: u32) -> Y { return Y(bitcast<E>(p.w0.z)); }

//# arange
// Starts at p.w0.z, in steps of p.w0.w; integers wrap.
fn op(k: u32) -> Y {
  let i = vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u);
  return bitcast<Y>(vec4<u32>(p.w0.z) + i * p.w0.w);
}

//# arange.f32
fn op(k: u32) -> Y {
  let i = vec4<f32>(vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u));
  return fma(i, Y(bitcast<f32>(p.w0.w)), Y(bitcast<f32>(p.w0.z)));
}

//# eye
// Ones where row and column are equal. There are p.w0.z columns.
fn op(k: u32) -> Y {
  let i = vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u);
  return select(Y(E(0)), Y(E(1)), i / p.w0.z == i % p.w0.z);
}
