// What every elementwise kernel is made of: the frame, into which the Rust side puts the loads,
// and which calls an `op` of the family's own file.
//
// `A` is a vec4 of the input, `T` an element of it, `Y` a vec4 of the output; `k` is the number of
// an element of the output, and `i` names the element of each input that goes with it. `p.w0` holds the number of
// elements, the output's first element, and two scalars.

//# vec4
fn put_vec4(k: u32, i: vec4<u32>) {
  $LOADS
  $STORE
}

//# main
@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let thread = (group.y * groups.x + group.x) * 64u + lane;
  // The last vec4 may pass the end: the padding of a storage belongs to it.
  let vec4s = (p.w0.x + 3u) >> 2u;
  $VEC4S
}

//# store_all
y_put4(k, v);

//# store_part
let o = p.w0.y + k;
  let n = p.w0.x;
  if (n - k >= 4u) {
    y_put4(o, v);
  } else {
    // The last vec4 holds elements that are not the view's: they stay as they are.
    y_put4(o, select(y_get4(o), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n - k)));
  }
