// The position of the extreme of every row of a view; the first one if several are equal. `T` is
// the type of x. One invocation (in `tree`: one workgroup) computes one vec4 of y. That has the
// positions of four rows, or of four parts of rows, among which `pick` chooses.
//
// Elements are compared by keys: integers in the order of the elements, reversed for the minimum.
// Every NaN has the highest key. Both zeros have the same key.

//# key_float
fn key_of(v: vec4<T>) -> vec4<i32> {
  let bits = bitcast<vec4<i32>>(v);
  let magnitude = bits & vec4<i32>(0x7fffffff);
  let key = select(magnitude, -magnitude, (bits < vec4<i32>(0)) != vec4<bool>(LEAST));
  return select(key, vec4<i32>(0x7fc00000), magnitude > vec4<i32>(0x7f800000));
}

//# key_signed
fn key_of(v: vec4<T>) -> vec4<i32> {
  return select(v, ~v, LEAST);
}

//# key_unsigned
fn key_of(v: vec4<T>) -> vec4<i32> {
  let key = bitcast<vec4<i32>>(v ^ vec4<u32>(0x80000000u));
  return select(key, ~key, LEAST);
}

//# best
// The best of four rows, or of four interleaved shares of one.
struct Best {
  key: vec4<i32>,
  at: vec4<u32>,
}

// For candidates in order of position: the first of equal ones wins.
fn offer(best: Best, key: vec4<i32>, at: vec4<u32>) -> Best {
  let better = key > best.key;
  return Best(select(best.key, key, better), select(best.at, at, better));
}

// For candidates in any order.
fn join(a: Best, b: Best) -> Best {
  let better = (b.key > a.key) | ((b.key == a.key) & (b.at < a.at));
  return Best(select(a.key, b.key, better), select(a.at, b.at, better));
}

fn join_lanes(best: Best) -> Best {
  let pairs = join(best, Best(best.key.zwxy, best.at.zwxy));
  return join(pairs, Best(pairs.key.yxwz, pairs.at.yxwz));
}

fn key_at(element: u32) -> i32 {
  return key_of(vec4<T>(x_get(element))).x;
}

//# along
// Rows with contiguous elements: one invocation searches four rows, one by one.
fn search(row: u32, from_k: u32, to_k: u32) -> u32 {
  let start = row_start(row);
  var best = Best(vec4<i32>(key_at(start + from_k)), vec4<u32>(from_k));
  var k = from_k + 1u;
  for (; k < to_k && ((start + k) & 3u) != 0u; k += 1u) {
    best = offer(best, vec4<i32>(key_at(start + k)), vec4<u32>(k));
  }
  var at = vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u);
  for (; to_k - k >= 4u; k += 4u) {
    best = offer(best, key_of(x_get4(start + k)), at);
    at += vec4<u32>(4u);
  }
  for (; k < to_k; k += 1u) {
    best = offer(best, vec4<i32>(key_at(start + k)), vec4<u32>(k));
  }
  return join_lanes(best).at.x;
}

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let item = 4u * (id.x + id.y * groups.x * 32u);
  let items = p.rows * p.parts;
  if (item >= items) {
    return;
  }
  var result = vec4<u32>(0u);
  for (var lane = 0u; lane < min(4u, items - item); lane += 1u) {
    let row = (item + lane) / p.parts;
    let range = part_range(item + lane - row * p.parts);
    let at = search(row, range.x, range.y);
    result = select(result, vec4<u32>(at), is_lane(lane));
  }
  y_put4(item, result);
}

//# across
// Rows with strided elements: one invocation searches four rows side by side. In y, parts come
// first. Each part holds all rows, rounded up to a vec4.
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let vec4_index = id.x + id.y * groups.x * 32u;
  let vec4s = (p.rows + 3u) / 4u;
  if (vec4_index >= vec4s * p.parts) {
    return;
  }
  let part = vec4_index / vec4s;
  let rows = min(vec4<u32>(4u * (vec4_index - part * vec4s)) + vec4<u32>(0u, 1u, 2u, 3u),
                 vec4<u32>(p.rows - 1u));
  var at = vec4<u32>(row_start(rows.x));
  if (!ALIGNED) {
    at = vec4<u32>(at.x, row_start(rows.y), row_start(rows.z), row_start(rows.w));
  }
  let range = part_range(part);
  let stride = vec4<u32>(p.inner_strides.x);
  at += range.x * stride;
  var best = Best(key_of(load(at)), vec4<u32>(range.x));
  var k = range.x + 1u;
  at += stride;
  for (; range.y - k >= 4u; k += 4u) {
    let a = key_of(load(at));
    let b = key_of(load(at + stride));
    let c = key_of(load(at + 2u * stride));
    let d = key_of(load(at + 3u * stride));
    best = offer(best, a, vec4<u32>(k));
    best = offer(best, b, vec4<u32>(k + 1u));
    best = offer(best, c, vec4<u32>(k + 2u));
    best = offer(best, d, vec4<u32>(k + 3u));
    at += 4u * stride;
  }
  for (; k < range.y; k += 1u) {
    best = offer(best, key_of(load(at)), vec4<u32>(k));
    at += stride;
  }
  y_put4(4u * vec4_index, best.at);
}

//# tree
// Long rows on a GPU: 64 invocations search a row together, and neighbours read neighbouring vec4s.
// A workgroup searches four rows.
var<workgroup> tree: array<vec2<u32>, 256>;

fn packed(best: Best) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(best.key.x), best.at.x);
}

fn unpacked(v: vec2<u32>) -> Best {
  return Best(vec4<i32>(bitcast<i32>(v.x)), vec4<u32>(v.y));
}

fn search(row: u32, from_k: u32, to_k: u32, lane: u32) -> Best {
  let start = row_start(row);
  var best = Best(vec4<i32>(key_at(start + from_k)), vec4<u32>(from_k));
  let head = min(to_k, from_k + ((4u - ((start + from_k) & 3u)) & 3u));
  let vec4s = (to_k - head) / 4u;
  let tail = head + 4u * vec4s;
  if (from_k + lane < head) {
    best = offer(best, vec4<i32>(key_at(start + from_k + lane)), vec4<u32>(from_k + lane));
  }
  for (var vec4_index = lane; vec4_index < vec4s; vec4_index += 64u) {
    let k = head + 4u * vec4_index;
    best = offer(best, key_of(x_get4(start + k)), vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u));
  }
  if (tail + lane < to_k) {
    best = offer(best, vec4<i32>(key_at(start + tail + lane)), vec4<u32>(tail + lane));
  }
  return join_lanes(best);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let lane = local & 63u;
  let first_item = 4u * (group.x + group.y * groups.x);
  let items = p.rows * p.parts;
  let item = min(first_item + local / 64u, items - 1u);
  let row = item / p.parts;
  let range = part_range(item - row * p.parts);
  tree[local] = packed(search(row, range.x, range.y, lane));
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (lane < half) {
      tree[local] = packed(join(unpacked(tree[local]), unpacked(tree[local + half])));
    }
    workgroupBarrier();
  }
  if (local == 0u && first_item < items) {
    y_put4(first_item, vec4<u32>(tree[0].y, tree[64].y, tree[128].y, tree[192].y));
  }
}

//# pick
// Chooses the best of the candidates that a first launch found, one for each part. Candidate `j` of
// row `r` is element `r · second + j · third` of c.
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first_row = 4u * (id.x + id.y * groups.x * 32u);
  if (first_row >= p.rows) {
    return;
  }
  let rows = min(vec4<u32>(first_row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
  let starts = vec4<u32>(row_start(rows.x), row_start(rows.y), row_start(rows.z), row_start(rows.w));
  var best = candidate(rows, starts, 0u);
  for (var j = 1u; j < p.parts; j += 1u) {
    let next = candidate(rows, starts, j);
    best = offer(best, next.key, next.at);
  }
  y_put4(first_row, best.at);
}

fn candidate(rows: vec4<u32>, starts: vec4<u32>, j: u32) -> Best {
  let c = rows * p.second + vec4<u32>(j * p.third);
  let at = vec4<u32>(c_get(c.x), c_get(c.y), c_get(c.z), c_get(c.w));
  let element = starts + at * p.inner_strides.x;
  let v = vec4<T>(x_get(element.x), x_get(element.y), x_get(element.z), x_get(element.w));
  return Best(key_of(v), at);
}
