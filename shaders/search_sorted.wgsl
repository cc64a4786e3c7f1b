// Counts the elements of a sorted row that come before a value. All operands are row-major: s is
// [rows, length], v and y are [rows, values]. One invocation writes one vec4.

//# params
struct Params {
  // The number of elements of y, and how many of them belong to one row of s.
  elements: u32,
  values: u32,
  // The number of elements in a row of s.
  length: u32,
  // The starts of s and v.
  s_offset: u32,
  v_offset: u32,
  unused0: u32,
  unused1: u32,
  unused2: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) {
    return;
  }
  var found = vec4<u32>();
  for (var lane = 0u; lane < min(4u, p.elements - first); lane += 1u) {
    found = select(found, vec4<u32>(count_before(first + lane)), is_lane(lane));
  }
  y_put4(first, found);
}

fn count_before(e: u32) -> u32 {
  let row = p.s_offset + e / p.values * p.length;
  let value = v_get(p.v_offset + e);
  var low = 0u;
  var high = p.length;
  while (low < high) {
    let middle = low + (high - low) / 2u;
    if (is_before(s_get(row + middle), value)) {
      low = middle + 1u;
    } else {
      high = middle;
    }
  }
  return low;
}

//# below
fn is_before(element: T, value: T) -> bool {
  return element < value;
}

//# up_to
// Equal elements count too.
fn is_before(element: T, value: T) -> bool {
  return element <= value;
}
