// Puts the states of a row's tasks together. An invocation computes four elements of the result.

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let index = linear(group, groups) * 64u + local;
  let at = index % ${size / 4}u * 4u;
  let head = index / ${size / 4}u % p.heads.x;
  let own_row = index / ${size / 4}u / p.heads.x;
  if (own_row >= p.part.w) { return; }
  let row = p.part.y + own_row;
  let first = t_get(8u * row) - p.part.x;
  let tasks = t_get(8u * row + 1u);
  let in_block = t_get(8u * row + 2u);
  let stride = ${rows}u * p.heads.x * ${size + 4}u;
  let start = first * stride + (in_block * p.heads.x + head) * ${size + 4}u;
  var peak = -3.4028234663852886e+38;
  for (var task = 0u; task < tasks; task++) {
    peak = max(peak, s_get4(start + task * stride + ${size}u).x);
  }
  var sum = 0.0;
  var o = vec4<f32>();
  for (var task = 0u; task < tasks; task++) {
    let numbers = s_get4(start + task * stride + ${size}u);
    let weight = exp(numbers.x - peak);
    sum = fma(numbers.y, weight, sum);
    o = fma(s_get4(start + task * stride + at), vec4(weight), o);
  }
  // The sum of a row that sees no key is 0, and so is its result.
  y_put4(((p.part.y + own_row) * p.heads.x + head) * ${size}u + at, select(o / sum, vec4<f32>(), vec4(sum == 0.0)));
}
