// The reference: one thread computes four neighbouring elements of C, one after the other, from
// operands of any strides and any type.

fn element(index: u32) -> ${kind} {
  let i = min(index, p.size.x * p.size.y * p.size.w - 1u);
  let row = i / p.size.y % p.size.x;
  let column = i % p.size.y;
  let matrix = i / (p.size.x * p.size.y);
  var at_a = start_a(matrix) + row * p.strides.x;
  var at_b = start_b(matrix) + column * p.strides.w;
  var sum = ${kind}();
  for (var k = 0u; k < p.size.z; k++) {
    sum += a_get(at_a) * b_get(at_b);
    at_a += p.strides.y;
    at_b += p.strides.z;
  }
  return sum;
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let first = (linear(group, groups) * 64u + local) * 4u;
  if (first >= p.size.x * p.size.y * p.size.w) { return; }
  c_put4(first, vec4<${kind}>(
    element(first), element(first + 1u), element(first + 2u), element(first + 3u)
  ));
}
