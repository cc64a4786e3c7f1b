// The shared beginning of both variants of attention. All numbers except the scale are in elements.
// Batch dimensions are numbered from the innermost; the third has all the rest.

struct Params {
  size: vec4<u32>,    // queries, keys, head size of queries and keys, of values
  batch: vec4<u32>,   // batch dimensions 0 and 1, number of heads, bits of the scale
  q: vec4<u32>,       // strides of three batch dimensions and of rows
  k: vec4<u32>,
  v: vec4<u32>,
  m: vec4<u32>,
  starts: vec4<u32>,  // starts of q, k, v and the mask
  rest: vec4<u32>,    // stride of the mask by key, elements of a row of y, first query
}

// One dimension of the dispatch holds too few workgroups, so they are spread over three.
fn linear(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return (group.z * groups.y + group.y) * groups.x + group.x;
}

fn step_over(strides: vec4<u32>, head: u32) -> u32 {
  let above = head / p.batch.x;
  return head % p.batch.x * strides.x + above % p.batch.y * strides.y
    + above / p.batch.y * strides.z;
}

// −∞. WGSL rejects it as a constant, so it is computed from bits that are known only at run time.
fn nothing() -> f32 {
  return bitcast<f32>(0xff800000u | (p.size.x & 0u));
}
