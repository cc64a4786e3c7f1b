// Writes or folds elements at indices. Adapters have no atomic additions of floats, and the order
// of atomics would vary. So each element of the result searches for the indices that name it: `k`
// holds their keys in order and `o` their places. All other operands are row-major, [before, axis,
// after]. One invocation writes one vec4.

//# params
struct Params {
  // The number of elements of y, its size along the axis, and the number of elements after the
  // axis.
  elements: u32,
  size: u32,
  after: u32,
  // The number of indices along the axis.
  indices: u32,
  // The starts of s, and of x (or of y, if it is written in place).
  x_offset: u32,
  s_offset: u32,
  // Whether all lines along the axis have the same indices.
  shared_indices: u32,
  // The bits that are flipped to make a key of an index.
  sign: u32,
}

//# whole
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

// The first key from `row` on that is not below `key`.
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

fn own_of(e: u32) -> T {
  return x_get(p.x_offset + e);
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

//# fold
// Folds in the order of the indices. `ALONE` excludes the old element from the fold.
fn settle(e: u32, row: u32, from_m: u32, key: u32, from_s: u32) -> T {
  let own = own_of(e);
  var m = from_m;
  var folded = lift(own);
  for (; m < p.indices && k_get(row + m) == key; m += 1u) {
    let next = lift(s_get(from_s + o_get(row + m) * p.after));
    folded = select(fold(folded, next), next, ALONE && m == from_m);
  }
  let count = m - from_m + select(1u, 0u, ALONE);
  return select(lower(folded, count), own, m == from_m);
}

//# sum
fn fold(a: A, b: A) -> A {
  return a + b;
}

//# product
fn fold(a: A, b: A) -> A {
  return a * b;
}

//# max
fn fold(a: A, b: A) -> A {
  return max(a, b);
}

//# min
fn fold(a: A, b: A) -> A {
  return min(a, b);
}

//# plain
fn lift(x: T) -> A {
  return x;
}

fn lower(a: A, count: u32) -> T {
  return a;
}

//# mean
fn lift(x: T) -> A {
  return x;
}

fn lower(a: A, count: u32) -> T {
  return a / T(max(count, 1u));
}

//# mean_signed
fn lift(x: T) -> A {
  return x;
}

// Rounds down.
fn lower(a: A, count: u32) -> T {
  let divisor = i32(max(count, 1u));
  let quotient = a / divisor;
  return quotient - select(0, 1, a - quotient * divisor < 0);
}

//# keys
// Floats are compared as integers of the same order, as in `reduce.wgsl`. Each NaN has the key that
// wins, so that it propagates.
fn lift(x: T) -> A {
  let bits = bitcast<i32>(x);
  let key = bits ^ ((bits >> 31u) & 0x7fffffff);
  return select(key, NAN_KEY, (bits & 0x7fffffff) > 0x7f800000);
}

fn lower(a: A, count: u32) -> T {
  return bitcast<f32>(a ^ ((a >> 31u) & 0x7fffffff));
}

//# write
// The last one wins.
fn settle(e: u32, row: u32, from_m: u32, key: u32, from_s: u32) -> T {
  // The last index is the one before the first index with a greater key.
  if (from_m >= p.indices || k_get(row + from_m) != key) {
    return own_of(e);
  }
  var last = p.indices;
  if (key != 0xffffffffu) {
    last = lower_bound(row, key + 1u);
  }
  return s_get(from_s + o_get(row + last - 1u) * p.after);
}
