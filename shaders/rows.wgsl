// The shared parts of kernels that work row by row. The kept axes of a view name a row, the folded
// axes a position in it. `OUTER` and `INNER` are the numbers of dimensions of each. The vectors
// hold them innermost first.

//# params
struct Params {
  outer_dims: vec4<u32>,
  outer_strides: vec4<u32>,
  inner_dims: vec4<u32>,
  inner_strides: vec4<u32>,
  offset: u32,
  rows: u32,
  length: u32,
  // A row is folded in `parts` parts of `chunk` elements each; the last one may be shorter.
  parts: u32,
  chunk: u32,
  // A number for the operation: a divisor or an epsilon.
  scalar: f32,
  // The starts of a second and a third operand.
  second: u32,
  third: u32,
}

// The first element of a row.
fn row_start(row: u32) -> u32 {
  var i = row;
  var at = p.offset;
  if (OUTER > 1u) {
    at += (i % p.outer_dims.x) * p.outer_strides.x;
    i /= p.outer_dims.x;
  }
  if (OUTER > 2u) {
    at += (i % p.outer_dims.y) * p.outer_strides.y;
    i /= p.outer_dims.y;
  }
  if (OUTER > 3u) {
    at += (i % p.outer_dims.z) * p.outer_strides.z;
    i /= p.outer_dims.z;
  }
  return at + i * p.outer_strides[OUTER - 1u];
}

//# runs
// Position `k` of a row: its element relative to the row's start, and how many positions from there
// on have the stride `inner_strides.x`.
fn run_at(k: u32) -> vec2<u32> {
  if (INNER == 1u) {
    return vec2<u32>(k * p.inner_strides.x, p.length - k);
  }
  var i = k / p.inner_dims.x;
  let within = k - i * p.inner_dims.x;
  var at = within * p.inner_strides.x;
  if (INNER > 2u) {
    at += (i % p.inner_dims.y) * p.inner_strides.y;
    i /= p.inner_dims.y;
  }
  if (INNER > 3u) {
    at += (i % p.inner_dims.z) * p.inner_strides.z;
    i /= p.inner_dims.z;
  }
  return vec2<u32>(at + i * p.inner_strides[INNER - 1u], p.inner_dims.x - within);
}

// The range of positions in a part of a row.
fn part_range(part: u32) -> vec2<u32> {
  let from_k = part * p.chunk;
  return vec2<u32>(from_k, from_k + min(p.chunk, p.length - from_k));
}

//# load_aligned
// Four neighbouring rows start at a vec4: one load fetches an element of each.
const ALIGNED: bool = true;
fn load(at: vec4<u32>) -> vec4<T> {
  return x_get4(at.x);
}

//# load_apart
const ALIGNED: bool = false;
fn load(at: vec4<u32>) -> vec4<T> {
  return vec4<T>(x_get(at.x), x_get(at.y), x_get(at.z), x_get(at.w));
}

//# from_zero
fn origin(start: u32) -> f32 {
  return 0.0;
}

//# from_first
// A row is measured from its first element. Such distances are exact if all elements lie close
// together, however far from 0.
fn origin(start: u32) -> f32 {
  return x_get(start);
}

//# vec4s
// Rows start at vec4s and consist of whole vec4s.
struct Row {
  start: u32,
  // What its elements are measured from.
  origin: vec4<f32>,
}

fn part(row: Row, k: u32) -> vec4<f32> {
  return x_get4(row.start + k) - row.origin;
}

fn part_s(row: Row, k: u32) -> vec4<f32> {
  return part(row, k);
}

fn part_t(row: Row, k: u32, s: vec4<f32>) -> vec4<f32> {
  return lift_t(part(row, k), s);
}

fn finish_part(row: Row, out: u32, k: u32, s: vec4<f32>, t: vec4<f32>) {
  let at = vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u);
  y_put4(out + k, finish(part(row, k), s, t, at));
}

//# ragged
// Rows of any length and start. Elements past a row's end are ignored. An element of y is a word,
// so no two rows share one.
struct Row {
  start: u32,
  // What its elements are measured from.
  origin: vec4<f32>,
}

fn part(row: Row, k: u32) -> vec4<f32> {
  let at = row.start + k;
  return vec4<f32>(x_get(at), x_get(at + 1u), x_get(at + 2u), x_get(at + 3u)) - row.origin;
}

// The positions of four elements; past the end, the last one.
fn places(k: u32) -> vec4<u32> {
  return min(vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.length - 1u));
}

fn part_within(row: Row, k: u32) -> vec4<f32> {
  let at = vec4<u32>(row.start) + places(k);
  return vec4<f32>(x_get(at.x), x_get(at.y), x_get(at.z), x_get(at.w)) - row.origin;
}

fn is_within(k: u32) -> vec4<bool> {
  return vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(p.length);
}

fn part_s(row: Row, k: u32) -> vec4<f32> {
  return select(vec4<f32>(EMPTY_S), part_within(row, k), is_within(k));
}

fn part_t(row: Row, k: u32, s: vec4<f32>) -> vec4<f32> {
  return select(vec4<f32>(0.0), lift_t(part_within(row, k), s), is_within(k));
}

fn finish_part(row: Row, out: u32, k: u32, s: vec4<f32>, t: vec4<f32>) {
  let v = finish(part_within(row, k), s, t, places(k));
  let is = is_within(k);
  y_put(out + k, v.x);
  if (is.y) {
    y_put(out + k + 1u, v.y);
  }
  if (is.z) {
    y_put(out + k + 2u, v.z);
  }
  if (is.w) {
    y_put(out + k + 3u, v.w);
  }
}

//# normalize_thread
// Softmax and layer normalization: computes two numbers for a row, `s` and `t`, then every element
// by `finish`. One invocation takes a row.
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.x + id.y * groups.x * 32u;
  if (index >= p.rows) {
    return;
  }
  let start = row_start(index);
  let row = Row(start, vec4<f32>(origin(start)));
  let unrolled = p.length & ~15u;
  var a = vec4<f32>(EMPTY_S);
  var b = a;
  var c = a;
  var d = a;
  for (var k = 0u; k < unrolled; k += 16u) {
    a = fold_s(a, part(row, k));
    b = fold_s(b, part(row, k + 4u));
    c = fold_s(c, part(row, k + 8u));
    d = fold_s(d, part(row, k + 12u));
  }
  for (var k = unrolled; k < p.length; k += 4u) {
    a = fold_s(a, part_s(row, k));
  }
  let s = vec4<f32>(settle_s(fold_s(fold_s(a, b), fold_s(c, d))));
  a = vec4<f32>(0.0);
  b = a;
  c = a;
  d = a;
  for (var k = 0u; k < unrolled; k += 16u) {
    a += lift_t(part(row, k), s);
    b += lift_t(part(row, k + 4u), s);
    c += lift_t(part(row, k + 8u), s);
    d += lift_t(part(row, k + 12u), s);
  }
  for (var k = unrolled; k < p.length; k += 4u) {
    a += part_t(row, k, s);
  }
  let t = settle_t(sum4((a + b) + (c + d)));
  let out = index * p.length;
  for (var k = 0u; k < p.length; k += 4u) {
    finish_part(row, out, k, s, t);
  }
}

//# normalize_group
// The same with one workgroup for a row: each invocation takes every `LANES`th vec4.
var<workgroup> tree: array<vec4<f32>, LANES>;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  // Workgroups past the last row only take part in the barriers.
  let index = group.x + group.y * groups.x;
  let start = row_start(min(index, p.rows - 1u));
  let row = Row(start, vec4<f32>(origin(start)));
  let length = select(0u, p.length, index < p.rows);
  var a = vec4<f32>(EMPTY_S);
  for (var k = 4u * lane; k < length; k += 4u * LANES) {
    a = fold_s(a, part_s(row, k));
  }
  tree[lane] = a;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      tree[lane] = fold_s(tree[lane], tree[lane + half]);
    }
    workgroupBarrier();
  }
  let s = vec4<f32>(settle_s(tree[0]));
  workgroupBarrier();
  a = vec4<f32>(0.0);
  for (var k = 4u * lane; k < length; k += 4u * LANES) {
    a += part_t(row, k, s);
  }
  tree[lane] = a;
  workgroupBarrier();
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    if (lane < half) {
      tree[lane] += tree[lane + half];
    }
    workgroupBarrier();
  }
  let t = settle_t(sum4(tree[0]));
  let out = index * p.length;
  for (var k = 4u * lane; k < length; k += 4u * LANES) {
    finish_part(row, out, k, s, t);
  }
}

//# normalize_apply
// The last step alone, for rows of any length along any axis of a contiguous x. Reductions have
// computed `s` of every row, and `t` before `settle_t`. `chunk` is the stride of the axis.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  let elements = p.rows * p.length;
  if (first >= elements) {
    return;
  }
  let e = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(elements - 1u));
  let row = row_of(e);
  let at = vec4<u32>(p.offset) + e;
  let starts = at - row.at * p.chunk;
  let origins =
    vec4<f32>(origin(starts.x), origin(starts.y), origin(starts.z), origin(starts.w));
  y_put4(first, finish(load(at) - origins, row.s, settle_t(row.t), row.at));
}

struct Row {
  s: vec4<f32>,
  t: vec4<f32>,
  // Positions in the row.
  at: vec4<u32>,
}

//# row_last
// The axis is the last, and has at least four elements: a vec4 covers one row or two neighbours.
fn row_of(e: vec4<u32>) -> Row {
  let row = e.x / p.length;
  let at = e - vec4<u32>(row * p.length);
  let next = min(row + 1u, p.rows - 1u);
  let is_next = at >= vec4<u32>(p.length);
  return Row(
    select(vec4<f32>(s_get(row)), vec4<f32>(s_get(next)), is_next),
    select(vec4<f32>(t_get(row)), vec4<f32>(t_get(next)), is_next),
    select(at, at - vec4<u32>(p.length), is_next),
  );
}

//# row_vec4s
// The stride of the axis is a multiple of four: a vec4 covers four neighbouring rows.
fn row_of(e: vec4<u32>) -> Row {
  let above = e.x / p.chunk;
  let outer = above / p.length;
  let row = outer * p.chunk + (e.x - above * p.chunk);
  return Row(s_get4(row), t_get4(row), vec4<u32>(above - outer * p.length));
}

//# row_any
fn row_of(e: vec4<u32>) -> Row {
  let step = vec4<u32>(p.chunk);
  let above = e / step;
  let outer = above / vec4<u32>(p.length);
  let row = outer * step + (e - above * step);
  return Row(
    vec4<f32>(s_get(row.x), s_get(row.y), s_get(row.z), s_get(row.w)),
    vec4<f32>(t_get(row.x), t_get(row.y), t_get(row.z), t_get(row.w)),
    above - outer * p.length,
  );
}

//# normalize_sum
fn sum4(v: vec4<f32>) -> vec4<f32> {
  return vec4<f32>((v.x + v.y) + (v.z + v.w));
}
