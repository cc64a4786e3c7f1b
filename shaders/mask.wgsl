// Operations that keep an element or make it 0, as its place says: `k` is the number of a vec4's
// first element in the output. $0 and $1 stand for the scalars beyond those in p.w0.

//# tril
// On the diagonal $0 of matrices of p.w0.z columns and p.w0.w rows, and below.
fn op(k: u32, x: A) -> Y { return select(Y(E(0)), x, diagonal(k) <= vec4<i32>(bitcast<i32>($0))); }

//# triu
fn op(k: u32, x: A) -> Y { return select(Y(E(0)), x, diagonal(k) >= vec4<i32>(bitcast<i32>($0))); }

//# diagonal
// On which diagonal elements are: that of the matrix is 0, those above are positive.
fn diagonal(k: u32) -> vec4<i32> {
  let i = vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u);
  let line = i / p.w0.z;
  let column = i - line * p.w0.z;
  return vec4<i32>(column) - vec4<i32>(line % p.w0.w);
}

//# dropout
// Where 24 random bits are below $0; what stays is scaled by $1.
fn op(k: u32, x: A) -> Y {
  let drawn = philox(k >> 2u) >> vec4<u32>(8u);
  return select(x * bitcast<f32>($1), A(0.0), drawn < vec4<u32>($0));
}
