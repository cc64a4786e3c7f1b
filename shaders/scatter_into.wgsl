// Writes or folds elements in place at indices. `k` holds the keys of a line of indices in order
// and `o` their places. `s` is row-major, [before, indices, after], and so is y, [before, axis,
// after]. An invocation takes a key, and one or four elements after the axis. Only one of several
// equal keys writes, so no two invocations write one word. The parameters and the folding are those
// of `scatter.wgsl`; `elements` counts those of `s`.

//# place
// The target of a source, if the source's key is the one that writes.
struct Place {
  is_named: bool,
  // The element of y, the start of the line's keys, and the position among them.
  to: u32,
  row: u32,
  m: u32,
  key: u32,
  from_s: u32,
}

fn place_of(e: u32) -> Place {
  let line = e / p.after;
  let before = line / p.indices;
  let m = line - before * p.indices;
  let after = e - line * p.after;
  let row = select((before * p.after + after) * p.indices, 0u, p.shared_indices != 0u);
  let key = k_get(row + m);
  let index = key ^ p.sign;
  let to = (before * p.size + index) * p.after + after;
  let from_s = p.s_offset + before * p.indices * p.after + after;
  return Place(index < p.size && is_chosen(row, m, key), to, row, m, key, from_s);
}

fn own_of(e: u32) -> T {
  return y_get(p.x_offset + e);
}

//# words
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let e = id.x + id.y * groups.x * 64u;
  if (e >= p.elements) {
    return;
  }
  let one = place_of(e);
  if (one.is_named) {
    y_put(p.x_offset + one.to, settle(one.to, one.row, one.m, one.key, one.from_s));
  }
}

//# vec4s
// Elements that share a word: the number of elements after the axis is a multiple of four, so one
// invocation owns each vec4 of y.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) {
    return;
  }
  for (var lane = 0u; lane < 4u; lane += 1u) {
    let one = place_of(first + lane);
    if (one.is_named) {
      let v = vec4<T>(settle(one.to, one.row, one.m, one.key, one.from_s));
      let vec4_index = p.x_offset + one.to - lane;
      y_put4(vec4_index, select(y_get4(vec4_index), v, is_lane(lane)));
    }
  }
}

//# fold
// The first of equal keys folds all of them.
fn is_chosen(row: u32, m: u32, key: u32) -> bool {
  return m == 0u || k_get(row + max(m, 1u) - 1u) != key;
}

//# write
// The last of equal keys wins.
fn is_chosen(row: u32, m: u32, key: u32) -> bool {
  return m + 1u >= p.indices || k_get(row + min(m + 1u, p.indices - 1u)) != key;
}

fn settle(e: u32, row: u32, m: u32, key: u32, from_s: u32) -> T {
  return s_get(from_s + o_get(row + m) * p.after);
}
