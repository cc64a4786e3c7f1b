// Writes the elements of blocks one after the other. One invocation writes one or two groups of 32,
// as many as the format reads at once. Rows consist of whole blocks, so the elements follow one
// another as the blocks do.

struct Params {
  // Invocations, and the first byte of w.
  count: u32,
  start: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let number = id.x + id.y * groups.x * 64u;
  if (number >= p.count) { return; }
  let g = number % ${spans}u;
  let at = p.start + number / ${spans}u * ${bytes}u;
  $group
  //% for j in 0..span / 4
  y_put4(${span}u * number + ${4 * j}u, worth(q_${j}${units}, by_${j / 4}));
  //% end
}

// A sum of exact products is rounded once. If a product may not be exact, it is rounded once.
//% if zero > 0
fn worth(q: vec4<f32>, by: vec2<f32>) -> vec4<f32> { return (q - ${zero}.0) * by.x; }
//% else
fn worth(q: vec4<f32>, by: vec2<f32>) -> vec4<f32> { return q * by.x + by.y; }
//% end
