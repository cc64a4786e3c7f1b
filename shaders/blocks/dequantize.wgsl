// Writes the elements of blocks one after the other. One invocation writes one vec4. Rows consist
// of whole blocks, so the elements follow one another as the blocks do.

struct Params {
  // Elements of y, and the first byte of w.
  elements: u32,
  start: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) { return; }
  let group = first / 32u;
  let g = group % ${groups}u;
  let at = p.start + group / ${groups}u * ${bytes}u;
  let j = (first / 4u) & 7u;
  let by = affine(at, g, j >> 2u);
  y_put4(first, worth(quants(at, g, j), by));
}

// A sum of exact products is rounded once. If a product may not be exact, it is rounded once.
//% if zero > 0
fn worth(q: vec4<f32>, by: vec2<f32>) -> vec4<f32> { return (q - ${zero}.0) * by.x; }
//% else
fn worth(q: vec4<f32>, by: vec2<f32>) -> vec4<f32> { return q * by.x + by.y; }
//% end
