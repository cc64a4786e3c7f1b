// Elements written, or added, in place where indices say. `k` holds the keys of a line of indices
// in order and `o` their places. One invocation has one key and one element after the axis; of
// those with the same key one writes, so no two invocations write one word. `s` is row-major,
// [before, indices, after], and so is y, [before, axis, after].

//# params
struct Params {
  // Keys, each with what comes after the axis; the size of y along the axis; what comes after it.
  elements: u32,
  size: u32,
  after: u32,
  // How many indices along the axis.
  indices: u32,
  // Where y and s start.
  y_offset: u32,
  s_offset: u32,
  // All lines along the axis have the same indices.
  shared_indices: u32,
  // What makes an index of a key.
  sign: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let e = id.x + id.y * groups.x * 64u;
  if (e >= p.elements) {
    return;
  }
  let line = e / p.after;
  let before = line / p.indices;
  let m = line - before * p.indices;
  let after = e - line * p.after;
  let row = select((before * p.after + after) * p.indices, 0u, p.shared_indices != 0u);
  let key = k_get(row + m);
  let index = key ^ p.sign;
  if (index >= p.size) {
    return;
  }
  let to = p.y_offset + (before * p.size + index) * p.after + after;
  settle(to, row, m, key, p.s_offset + before * p.indices * p.after + after);
}

//# add
// The first with this key adds all of them, in the order in which the indices come.
fn settle(to: u32, row: u32, m: u32, key: u32, from_s: u32) {
  if (m > 0u) {
    if (k_get(row + m - 1u) == key) {
      return;
    }
  }
  var v = y_get(to);
  for (var n = m; n < p.indices; n += 1u) {
    if (k_get(row + n) != key) {
      break;
    }
    v += s_get(from_s + o_get(row + n) * p.after);
  }
  y_put(to, v);
}

//# write
// The last with this key stays.
fn settle(to: u32, row: u32, m: u32, key: u32, from_s: u32) {
  if (m + 1u < p.indices) {
    if (k_get(row + m + 1u) == key) {
      return;
    }
  }
  y_put(to, s_get(from_s + o_get(row + m) * p.after));
}
