// The shared beginning of all variants: C[b, i, j] = sum over k of A[b, i, k] * B[b, k, j]. All
// sizes and strides are in elements. The six batch dimensions are numbered from the innermost.

struct Params {
  size: vec4<u32>,     // rows m, columns n, inner k, matrices
  dims: vec4<u32>,     // batch dimensions 0 to 3
  a: vec4<u32>,        // strides of A over them
  b: vec4<u32>,        // strides of B over them
  outer: vec4<u32>,    // strides of A over batch dimensions 4 and 5, and of B
  strides: vec4<u32>,  // A by row, A by column, B by row, B by column
  rest: vec4<u32>,     // batch dimension 4, C's row stride, starts of A and B
  more: vec4<u32>,     // bits of the scale; starts of bias, residual and scales
}

// One dimension of the dispatch holds too few workgroups, so they are spread over three.
fn linear(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return (group.z * groups.y + group.y) * groups.x + group.x;
}

// The offset of a matrix of the batch from the first.
fn step_over(inner: vec4<u32>, outer: vec2<u32>, matrix: u32) -> u32 {
  ${step_over}
}

fn start_a(matrix: u32) -> u32 { return p.rest.z + step_over(p.a, p.outer.xy, matrix); }
fn start_b(matrix: u32) -> u32 { return p.rest.w + step_over(p.b, p.outer.zw, matrix); }
fn start_c(matrix: u32) -> u32 { return matrix * p.size.x * p.rest.y; }
