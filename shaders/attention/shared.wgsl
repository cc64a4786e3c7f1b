// What both variants of attention begin with. All numbers but the scale are elements; batch
// dimensions are counted from the innermost, and the third takes what is left.

struct Params {
  size: vec4<u32>,    // queries, keys, head size of queries and keys, of values
  batch: vec4<u32>,   // batch dimensions 0 and 1, how many heads in all, the scale's bits
  q: vec4<u32>,       // strides over three batch dimensions, and from row to row
  k: vec4<u32>,
  v: vec4<u32>,
  m: vec4<u32>,
  starts: vec4<u32>,  // of q, k, v and the mask
  rest: vec4<u32>,    // the mask's stride from key to key, elements of a row of y, which query is the first
}

// Workgroups are spread over three dimensions, because one holds too few.
fn linear(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return (group.z * groups.y + group.y) * groups.x + group.x;
}

fn step_over(strides: vec4<u32>, head: u32) -> u32 {
  let above = head / p.batch.x;
  return head % p.batch.x * strides.x + above % p.batch.y * strides.y
    + above / p.batch.y * strides.z;
}

// −∞, which WGSL refuses to spell out: made of bits that are only known when the kernel runs.
fn nothing() -> f32 {
  return bitcast<f32>(0xff800000u | (p.size.x & 0u));
}
