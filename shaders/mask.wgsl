// Operations that keep an element or make it 0, depending on its position. `k` is the number of a
// vec4's first element in the output. $0 and $1 stand for the scalars after those in p.w0.

//# tril
// Keeps the diagonal $0 and what is below it. Matrices have p.w0.z columns and p.w0.w rows.
fn op(k: u32, x: A) -> Y { return select(Y(E(0)), x, diagonal(k) <= vec4<i32>(bitcast<i32>($0))); }

//# triu
fn op(k: u32, x: A) -> Y { return select(Y(E(0)), x, diagonal(k) >= vec4<i32>(bitcast<i32>($0))); }

//# diagonal
// The diagonals of four elements. The main diagonal is 0, and those above it are positive.
fn diagonal(k: u32) -> vec4<i32> {
  let i = vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u);
  let line = i / p.w0.z;
  let column = i - line * p.w0.z;
  return vec4<i32>(column) - vec4<i32>(line % p.w0.w);
}

//# dropout
// Makes elements 0 where 24 random bits are below $0, and scales the others by $1.
fn op(k: u32, x: A) -> Y {
  let drawn = philox(k >> 2u) >> vec4<u32>(8u);
  return select(x * bitcast<f32>($1), A(0.0), drawn < vec4<u32>($0));
}
