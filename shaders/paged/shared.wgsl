// The shared beginning of the kernels over pages. A page holds the keys and values of ${tokens}
// tokens for all layers. For each layer and each head of keys it has a block, in units of 16 bytes:
//
//   keys of all tokens │ values of all tokens │ scales of keys │ of values (int8 only)
//
// A row is the key or value of one token: ${units} units, padded with zeros.

struct Params {
  heads: vec4<u32>,    // heads of queries, of keys, of a group, blocks of a group
  page: vec4<u32>,     // start of the layer, units of a block, start of the tasks, of the table
  part: vec4<u32>,     // first task, first row, tiles of a task, rows
  rest: vec4<u32>,     // start of q or k, of v, tokens that a window hides from none, unused
  numbers: vec4<f32>,  // scale, softcap, its inverse
}

// The entry of a page in the table: its window, and its offset.
fn entry_of(page: u32) -> vec2<u32> {
  let at = p.page.w + 4u + 2u * page;
  return vec2(t_get(at), t_get(at + 1u));
}

// One dimension of the dispatch holds too few workgroups, so they are spread over two.
fn linear(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return group.y * groups.x + group.x;
}
