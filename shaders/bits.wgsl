// Packs bools: bit k % 32 of word k / 32 is element k. Bits past the last element are 0. One
// invocation writes four words.

//# pack
struct Params {
  elements: u32,
  words: u32,
  x_offset: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.words) { return; }
  y_put4(first, vec4<u32>(word(first), word(first + 1u), word(first + 2u), word(first + 3u)));
}

fn word(at: u32) -> u32 {
  var bits = 0u;
  for (var lane = 0u; lane < 32u; lane += 4u) {
    let first = 32u * at + lane;
    if (first < p.elements) {
      let k = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u);
      let is_set = (x_get4(p.x_offset + first) != vec4<u32>(0u)) & (k < vec4<u32>(p.elements));
      let four = select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), is_set);
      bits |= (four.x | four.y | four.z | four.w) << lane;
    }
  }
  return bits;
}
