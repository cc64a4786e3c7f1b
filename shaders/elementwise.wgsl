// The frame of every elementwise kernel. Rust inserts the loads, and the frame calls an `op` from
// the family's own file.
//
// `A` is a vec4 of the input, `T` an element of it, `Y` a vec4 of the output. `k` is the number of
// an element of the output, and `i` has the matching element of each input. `p.w0` holds the number
// of elements, the output's first element, and two scalars.

//# vec4
fn put_vec4(k: u32, i: vec4<u32>) {
  $LOADS
  $STORE
}

//# index
alias C = array<u32, ${rank}>;
fn coordinates(k: u32) -> C {
  var c: C;
  var r = k;
  //% for e in 1..rank
  //%   let d = rank - e
  let q${d} = r / $word(dims + d); c[${d}] = r - q${d} * $word(dims + d); r = q${d};
  //% end
  c[0] = r;
  return c;
}
fn next(from_c: C) -> C {
  var c = from_c;
  //% for e in 1..rank
  //%   let d = rank - e
  c[${d}] += 1u; if (c[${d}] < $word(dims + d)) { return c; } c[${d}] = 0u;
  //% end
  c[0] += 1u;
  return c;
}
fn at(c: C) -> vec4<u32> {
  return vec4<u32>($join(operand in 0..4, $at(${operand})));
}
fn step() -> vec4<u32> { return vec4<u32>($join(operand in 0..4, $step(${operand}))); }
//# main
@compute @workgroup_size(${group})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let thread = (group.y * groups.x + group.x) * ${group}u + lane;
  // The last vec4 may pass the end, into the storage's padding.
  let vec4s = (p.w0.x + 3u) >> 2u;
  //% if is_together
  let i = at(coordinates(thread * ${4 * each}u));
  //% end
  //% if vec8s
  //%   for v in 0..each / 2
  if (thread * ${4 * each}u + ${8 * v}u < p.w0.x) { put_vec8(thread * ${4 * each}u + ${8 * v}u, i + ${2 * v}u * step()); }
  //%   end
  //% else
  //%   for v in 0..each
  //%     if is_together
  if ((thread * ${each}u + ${v}u) < vec4s) { put_vec4(((thread * ${each}u + ${v}u) << 2u), i + ${v}u * step()); }
  //%     else if is_whole
  if ((thread * ${each}u + ${v}u) < vec4s) { put_vec4(((thread * ${each}u + ${v}u) << 2u), at(coordinates(((thread * ${each}u + ${v}u) << 2u)))); }
  //%     else
  if ((thread * ${each}u + ${v}u) < vec4s) { put_vec4(((thread * ${each}u + ${v}u) << 2u), vec4<u32>()); }
  //%     end
  //%   end
  //% end
}

//# store_all
y_put4(k, v);

//# store_part
let o = p.w0.y + k;
  let n = p.w0.x;
  if (n - k >= 4u) {
    y_put4(o, v);
  } else {
    // Elements of the last vec4 that do not belong to the view stay unchanged.
    y_put4(o, select(y_get4(o), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n - k)));
  }
