// Picks slices of a view along an axis. y is contiguous, [before, indices, after]. x has up to four
// dimensions on either side of the axis, innermost first. An index outside of the axis gives zeros
// and reads nothing. Negative indices are outside too, because they become large unsigned numbers.
// One invocation writes one vec4.

//# params
struct Params {
  before_dims: vec4<u32>,
  before_strides: vec4<u32>,
  after_dims: vec4<u32>,
  after_strides: vec4<u32>,
  offset: u32,
  // The size and the stride of the axis of x.
  size: u32,
  stride: u32,
  // The number of indices, their start and their stride.
  indices: u32,
  index_offset: u32,
  index_stride: u32,
  // The number of elements after the axis, and of y.
  after: u32,
  elements: u32,
}

fn offset_before(index: u32) -> u32 {
  var i = index;
  var at = 0u;
  if (BEFORE > 1u) {
    at += (i % p.before_dims.x) * p.before_strides.x;
    i /= p.before_dims.x;
  }
  if (BEFORE > 2u) {
    at += (i % p.before_dims.y) * p.before_strides.y;
    i /= p.before_dims.y;
  }
  if (BEFORE > 3u) {
    at += (i % p.before_dims.z) * p.before_strides.z;
    i /= p.before_dims.z;
  }
  return at + i * p.before_strides[BEFORE - 1u];
}

fn offset_after(index: u32) -> u32 {
  var i = index;
  var at = 0u;
  if (AFTER > 1u) {
    at += (i % p.after_dims.x) * p.after_strides.x;
    i /= p.after_dims.x;
  }
  if (AFTER > 2u) {
    at += (i % p.after_dims.y) * p.after_strides.y;
    i /= p.after_dims.y;
  }
  if (AFTER > 3u) {
    at += (i % p.after_dims.z) * p.after_strides.z;
    i /= p.after_dims.z;
  }
  return at + i * p.after_strides[AFTER - 1u];
}

// The element of x for element `e` of y, and whether it exists.
struct Source {
  at: u32,
  exists: bool,
}

fn source(e: u32) -> Source {
  let slice = e / p.after;
  let before = slice / p.indices;
  let index = u32(i_get(p.index_offset + (slice - before * p.indices) * p.index_stride));
  let at = p.offset + offset_before(before) + index * p.stride + offset_after(e - slice * p.after);
  return Source(at, index < p.size);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) {
    return;
  }
  y_put4(first, fetch(first));
}

//# vec4s
// The four elements are contiguous in x and aligned to a vec4.
fn fetch(first: u32) -> vec4<T> {
  let from_x = source(first);
  if (!from_x.exists) {
    return vec4<T>();
  }
  return x_get4(from_x.at);
}

//# elements
fn fetch(first: u32) -> vec4<T> {
  var v = vec4<T>();
  for (var lane = 0u; lane < min(4u, p.elements - first); lane += 1u) {
    let from_x = source(first + lane);
    if (from_x.exists) {
      v = select(v, vec4<T>(x_get(from_x.at)), is_lane(lane));
    }
  }
  return v;
}
