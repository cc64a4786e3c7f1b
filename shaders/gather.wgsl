// Picks one element for every index: y[c] = x[c], with the index at c in place of one coordinate.
// `at(c)` gives the element of the indices in x, and in y the element of x without the axis. p.w0
// holds the number of elements, and the size and stride of the axis in z and w. An index outside of
// the axis gives 0 and reads nothing. Negative indices are outside too, because they become large
// unsigned numbers. One invocation writes one vec4.

//# main
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.w0.x) {
    return;
  }
  var c = coordinates(first);
  var v = vec4<T>();
  for (var lane = 0u; lane < min(4u, p.w0.x - first); lane += 1u) {
    let from_c = at(c);
    let index = u32(i_get(from_c.x));
    if (index < p.w0.z) {
      v = select(v, vec4<T>(x_get(from_c.y + index * p.w0.w)), is_lane(lane));
    }
    c = next(c);
  }
  y_put4(first, v);
}
