// Elements written, or added, where indices say. Adapters have no atomic additions of floats, and
// with them the order would differ from run to run: so each element of the result looks for the
// indices that name it, of which `k` holds the keys in order and `o` the places. All operands but
// these are row-major, [before, axis, after]. One invocation writes one quad.

//# params
struct Params {
  // Elements of y, its size along the axis, and what comes after the axis.
  elements: u32,
  size: u32,
  after: u32,
  // How many indices along the axis.
  indices: u32,
  // Where x and s start.
  x_offset: u32,
  s_offset: u32,
  // All lines along the axis have the same indices.
  shared_indices: u32,
  // What makes a key of an index.
  sign: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) {
    return;
  }
  var v = vec4<T>();
  for (var lane = 0u; lane < min(4u, p.elements - first); lane += 1u) {
    v = select(v, vec4<T>(element(first + lane)), is_lane(lane));
  }
  y_put4(first, v);
}

// The first of the keys from `row` on that is not below `key`.
fn lower_bound(row: u32, key: u32) -> u32 {
  var low = 0u;
  var high = p.indices;
  while (low < high) {
    let middle = (low + high) / 2u;
    if (k_get(row + middle) < key) {
      low = middle + 1u;
    } else {
      high = middle;
    }
  }
  return low;
}

fn element(e: u32) -> T {
  let line = e / p.after;
  let before = line / p.size;
  let after = e - line * p.after;
  let key = (line - before * p.size) ^ p.sign;
  let row = select((before * p.after + after) * p.indices, 0u, p.shared_indices != 0u);
  let from_s = p.s_offset + before * p.indices * p.after + after;
  let from_m = lower_bound(row, key);
  return settle(e, row, from_m, key, from_s);
}

//# add
// Added in the order in which the indices come.
fn settle(e: u32, row: u32, from_m: u32, key: u32, from_s: u32) -> T {
  var v = x_get(p.x_offset + e);
  for (var m = from_m; m < p.indices && k_get(row + m) == key; m += 1u) {
    v += s_get(from_s + o_get(row + m) * p.after);
  }
  return v;
}

//# write
// The last one stays.
fn settle(e: u32, row: u32, from_m: u32, key: u32, from_s: u32) -> T {
  // The last is the one before the first that is above.
  if (from_m >= p.indices || k_get(row + from_m) != key) {
    return x_get(p.x_offset + e);
  }
  var last = p.indices;
  if (key != 0xffffffffu) {
    last = lower_bound(row, key + 1u);
  }
  return s_get(from_s + o_get(row + last - 1u) * p.after);
}
