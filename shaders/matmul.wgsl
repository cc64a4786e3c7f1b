// What every variant of matmul begins with: C[b, i, j] = sum over k of A[b, i, k] * B[b, k, j].
// All numbers are elements.

struct Params {
  size: vec4<u32>,     // rows m, columns n, inner k, matrices
  batch: vec4<u32>,    // the inner two of three batch dimensions, C's row stride, C's matrix stride
  a: vec4<u32>,        // A's strides over the batch dimensions, its start
  b: vec4<u32>,        // B's strides over the batch dimensions, its start
  strides: vec4<u32>,  // A by row, A by column, B by row, B by column
}

// Workgroups are spread over three dimensions, because one holds too few.
fn linear(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return (group.z * groups.y + group.y) * groups.x + group.x;
}

// Where a matrix of the batch starts.
fn start(operand: vec4<u32>, matrix: u32) -> u32 {
  let outer = matrix / p.batch.y;
  return operand.w + (outer / p.batch.x) * operand.x + (outer % p.batch.x) * operand.y
    + (matrix % p.batch.y) * operand.z;
}
