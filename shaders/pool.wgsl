// The gradient of a pooling by its input. Every element of the input gathers from the windows that
// it is in, so that nothing is added up by two invocations; one takes four neighbouring elements.

//# frame
struct Params {
  planes: vec4<u32>,   // samples times channels, height and width of x, height of y
  kernel: vec4<u32>,   // width of y, height and width of the kernel, stride down
  margin: vec4<u32>,   // stride across, padding above, to the left, where x starts
  rest: vec4<u32>,     // where the gradient starts
}

fn element(index: u32) -> f32 {
  let across = index % p.planes.z;
  let down = index / p.planes.z % p.planes.y;
  let plane = index / (p.planes.z * p.planes.y);
  let y = down + p.margin.y;
  let x = across + p.margin.z;
  // The first window that reaches to here, and the last.
  let first_y = (max(y + 1u, p.kernel.y) - p.kernel.y + p.kernel.w - 1u) / p.kernel.w;
  let first_x = (max(x + 1u, p.kernel.z) - p.kernel.z + p.margin.x - 1u) / p.margin.x;
  let end_y = min(y / p.kernel.w + 1u, p.planes.w);
  let end_x = min(x / p.margin.x + 1u, p.kernel.x);
  var sum = 0.0;
  for (var wy = first_y; wy < end_y; wy++) {
    for (var wx = first_x; wx < end_x; wx++) {
      let g = g_get(p.rest.x + (plane * p.planes.w + wy) * p.kernel.x + wx);
      sum += share(plane, vec2(wy, wx), vec2(down, across), g);
    }
  }
  return sum;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  let elements = p.planes.x * p.planes.y * p.planes.z;
  if (first >= elements) { return; }
  let at = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(elements - 1u));
  y_put4(first, vec4(element(at.x), element(at.y), element(at.z), element(at.w)));
}

//# avg
fn share(plane: u32, window: vec2<u32>, own: vec2<u32>, g: f32) -> f32 {
  return g / f32(p.kernel.y * p.kernel.z);
}

//# max
// All of a window's gradient goes to its maximum: the first of several, the last NaN.
fn share(plane: u32, window: vec2<u32>, own: vec2<u32>, g: f32) -> f32 {
  let stride = vec2(p.kernel.w, p.margin.x);
  let padding = vec2(p.margin.y, p.margin.z);
  var highest = 0u;
  var at = vec2(0u);
  for (var ky = 0u; ky < p.kernel.y; ky++) {
    for (var kx = 0u; kx < p.kernel.z; kx++) {
      // Above and to the left of the plane it wraps, and so is beyond its end.
      let place = window * stride + vec2(ky, kx) - padding;
      if (place.x >= p.planes.y || place.y >= p.planes.z) { continue; }
      let bits = bitcast<u32>(x_get(p.margin.w + (plane * p.planes.y + place.x) * p.planes.z + place.y));
      let is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
      // Floats in the order of unsigned numbers: zeros are one, and NaN is above all.
      var key = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
      key = select(key, 0x80000000u, bits == 0x80000000u);
      key = select(key, 0xffffffffu, is_nan);
      if (key > highest || is_nan) {
        highest = key;
        at = place;
      }
    }
  }
  return select(0.0, g, all(at == own));
}
