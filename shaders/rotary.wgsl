// Rotary position embedding: rotates pairs of elements of the last axis. The angle depends on the
// position (the axis before) and on the pair. x and y are row-major. c and s hold the cosine and
// the sine of [position, pair]. One invocation writes one vec4.

//# params
struct Params {
  elements: u32,
  // Size of the last axis, and of the one before.
  width: u32,
  positions: u32,
  pairs: u32,
  x_offset: u32,
  c_offset: u32,
  s_offset: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) {
    return;
  }
  var v = vec4<f32>(0.0);
  for (var lane = 0u; lane < min(4u, p.elements - first); lane += 1u) {
    v = select(v, vec4<f32>(turned(first + lane)), is_lane(lane));
  }
  y_put4(first, v);
}

fn turned(e: u32) -> f32 {
  let line = e / p.width;
  let at = e - line * p.width;
  let own = x_get(p.x_offset + e);
  // Elements after the pairs stay unchanged.
  if (at >= 2u * p.pairs) {
    return own;
  }
  let pair = pair_of(at);
  let angle = (line % p.positions) * p.pairs + pair.x;
  let other = x_get(p.x_offset + line * p.width + pair.y);
  let sine = s_get(p.s_offset + angle);
  return fma(own, c_get(p.c_offset + angle), other * select(sine, -sine, pair.y > at));
}

//# halves
// The pair of an element, and the position of the other element, half the width apart.
fn pair_of(at: u32) -> vec2<u32> {
  let is_first = at < p.pairs;
  return vec2<u32>(select(at - p.pairs, at, is_first), select(at - p.pairs, at + p.pairs, is_first));
}

//# neighbours
fn pair_of(at: u32) -> vec2<u32> {
  return vec2<u32>(at / 2u, at ^ 1u);
}
