// Reduces every row of a view to one element. `T` is the type of x, `A` of the accumulator, `R` of
// y. One invocation (in `tree`: one workgroup) computes one vec4 of y: four rows, or four parts of
// rows that a second pass combines.
//
// `lift` converts elements for the accumulator, and may measure them from the `middle` of a row.
// `fold` combines two accumulators, and `lower` gives the result. Sums are blocked: an accumulator
// takes at most a block of terms before it is added to the next level. So the rounding error does
// not grow with the length of a row.

//# sum
const EMPTY: A = A(0);
fn fold(a: vec4<A>, b: vec4<A>) -> vec4<A> {
  return a + b;
}

//# product
const EMPTY: A = A(1);
fn fold(a: vec4<A>, b: vec4<A>) -> vec4<A> {
  return a * b;
}

//# max
const EMPTY: A = LOWEST;
fn fold(a: vec4<A>, b: vec4<A>) -> vec4<A> {
  return max(a, b);
}

//# min
const EMPTY: A = HIGHEST;
fn fold(a: vec4<A>, b: vec4<A>) -> vec4<A> {
  return min(a, b);
}

//# lift
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return v;
}

//# lift_exp
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return exp_of(v - m);
}

//# lift_from_first
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return v - m;
}

//# lift_distance
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  let d = (v - m[0]) - m[1];
  return d * d;
}

//# lift_truth
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return truth(v != vec4<T>(0));
}

//# lift_truth_of_float
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return truth((v != vec4<f32>(0.0)) | is_nan(v));
}

//# lift_size
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return abs(v);
}

//# lift_square
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return v * v;
}

//# lift_power
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  return power_of(abs(v), vec4<f32>(p.scalar));
}

//# lower
fn lower(a: vec4<A>) -> vec4<R> {
  return a;
}

//# lower_divide
fn lower(a: vec4<A>) -> vec4<R> {
  return a / p.scalar;
}

//# lower_divide_root
fn lower(a: vec4<A>) -> vec4<R> {
  return sqrt(a / p.scalar);
}

//# lower_root
fn lower(a: vec4<A>) -> vec4<R> {
  return sqrt(a);
}

//# lower_power_root
fn lower(a: vec4<A>) -> vec4<R> {
  return power_of(a, vec4<f32>(1.0 / p.scalar));
}

//# keys
// Floats are compared as integers of the same order, because WGSL lets a compiler assume that there
// is no NaN. Every NaN gets the key that wins, so that it propagates. `KEPT` masks the bits that
// count: all of them, or all except the sign.
fn lift(v: vec4<T>, m: M) -> vec4<A> {
  let bits = bitcast<vec4<i32>>(v) & vec4<i32>(KEPT);
  let magnitude = bits & vec4<i32>(0x7fffffff);
  let key = bits ^ ((bits >> vec4<u32>(31u)) & vec4<i32>(0x7fffffff));
  return select(key, vec4<i32>(NAN_KEY), magnitude > vec4<i32>(0x7f800000));
}

fn lower(a: vec4<A>) -> vec4<R> {
  return bitcast<vec4<f32>>(a ^ ((a >> vec4<u32>(31u)) & vec4<i32>(0x7fffffff)));
}

//# middle
alias M = vec4<f32>;
fn middle(rows: vec4<u32>, starts: vec4<u32>) -> M {
  return vec4<f32>(m_get(rows.x), m_get(rows.y), m_get(rows.z), m_get(rows.w));
}

//# first
// Distances from the first element of a row are exact if all elements lie close together, however
// far from 0.
alias M = vec4<f32>;
fn middle(rows: vec4<u32>, starts: vec4<u32>) -> M {
  return load(starts);
}

//# middle_from_first
alias M = mat2x4<f32>;
fn middle(rows: vec4<u32>, starts: vec4<u32>) -> M {
  let m = vec4<f32>(m_get(rows.x), m_get(rows.y), m_get(rows.z), m_get(rows.w));
  return mat2x4<f32>(load(starts), m);
}

//# no_middle
alias M = f32;
fn middle(rows: vec4<u32>, starts: vec4<u32>) -> M {
  return 0.0;
}

//# lanes
// All lanes belong to one row.
fn load(at: vec4<u32>) -> vec4<T> {
  return vec4<T>(x_get(at.x));
}

fn one_lane(v: T, m: M) -> vec4<A> {
  return vec4<A>(lift(vec4<T>(v), m).x, EMPTY, EMPTY, EMPTY);
}

fn join_lanes(a: vec4<A>) -> A {
  let pairs = fold(a, a.zwxy);
  return fold(pairs, pairs.yxwz).x;
}

//# along
// Rows with contiguous elements: one invocation reduces four rows, one by one.
const BLOCK: u32 = 1024u;

fn fold_span(first: u32, end: u32, m: M) -> vec4<A> {
  var total = vec4<A>(EMPTY);
  var i = first;
  for (; i < end && (i & 3u) != 0u; i += 1u) {
    total = fold(total, one_lane(x_get(i), m));
  }
  while (end - i >= 16u) {
    let stop = i + min((end - i) & ~15u, BLOCK);
    var a = vec4<A>(EMPTY);
    var b = a;
    var c = a;
    var d = a;
    for (; i < stop; i += 16u) {
      a = fold(a, lift(x_get4(i), m));
      b = fold(b, lift(x_get4(i + 4u), m));
      c = fold(c, lift(x_get4(i + 8u), m));
      d = fold(d, lift(x_get4(i + 12u), m));
    }
    total = fold(total, fold(fold(a, b), fold(c, d)));
  }
  for (; end - i >= 4u; i += 4u) {
    total = fold(total, lift(x_get4(i), m));
  }
  for (; i < end; i += 1u) {
    total = fold(total, one_lane(x_get(i), m));
  }
  return total;
}

fn fold_row(row: u32, from_k: u32, to_k: u32) -> A {
  let start = row_start(row);
  let m = middle(vec4<u32>(row), vec4<u32>(start));
  var total = vec4<A>(EMPTY);
  for (var k = from_k; k < to_k;) {
    let run = run_at(k);
    let count = min(to_k - k, run.y);
    total = fold(total, fold_span(start + run.x, start + run.x + count, m));
    k += count;
  }
  return join_lanes(total);
}

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let item = 4u * (id.x + id.y * groups.x * 32u);
  let items = p.rows * p.parts;
  if (item >= items) {
    return;
  }
  var result = vec4<A>(EMPTY);
  for (var lane = 0u; lane < min(4u, items - item); lane += 1u) {
    let row = (item + lane) / p.parts;
    let range = part_range(item + lane - row * p.parts);
    let folded = fold_row(row, range.x, range.y);
    result = select(result, vec4<A>(folded), is_lane(lane));
  }
  y_put4(item, lower(result));
}

//# across
// Rows with strided elements: one invocation reduces four rows side by side. In y, parts come
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
  var starts = vec4<u32>(row_start(rows.x));
  if (!ALIGNED) {
    starts = vec4<u32>(starts.x, row_start(rows.y), row_start(rows.z), row_start(rows.w));
  }
  let m = middle(rows, starts);
  let range = part_range(part);
  let stride = vec4<u32>(p.inner_strides.x);
  var total = vec4<A>(EMPTY);
  for (var k = range.x; k < range.y;) {
    let run = run_at(k);
    let count = min(range.y - k, run.y);
    var at = starts + vec4<u32>(run.x);
    var left = count;
    while (left >= 4u) {
      let steps = min(left / 4u, 64u);
      var a = vec4<A>(EMPTY);
      var b = a;
      var c = a;
      var d = a;
      for (var step = 0u; step < steps; step += 1u) {
        a = fold(a, lift(load(at), m));
        b = fold(b, lift(load(at + stride), m));
        c = fold(c, lift(load(at + 2u * stride), m));
        d = fold(d, lift(load(at + 3u * stride), m));
        at += 4u * stride;
      }
      total = fold(total, fold(fold(a, b), fold(c, d)));
      left -= 4u * steps;
    }
    for (; left > 0u; left -= 1u) {
      total = fold(total, lift(load(at), m));
      at += stride;
    }
    k += count;
  }
  y_put4(4u * vec4_index, lower(total));
}

//# tree
// Long rows on a GPU: 64 invocations reduce a row together, and neighbours read neighbouring vec4s.
// A workgroup reduces four rows.
var<workgroup> tree: array<A, 256>;

fn fold_span(first: u32, end: u32, m: M, lane: u32) -> vec4<A> {
  var total = vec4<A>(EMPTY);
  let head = min(end, (first + 3u) & ~3u);
  let tail = head + ((end - head) & ~3u);
  if (first + lane < head) {
    total = fold(total, one_lane(x_get(first + lane), m));
  }
  for (var vec4_index = lane; vec4_index < (tail - head) / 4u; vec4_index += 64u) {
    total = fold(total, lift(x_get4(head + 4u * vec4_index), m));
  }
  if (tail + lane < end) {
    total = fold(total, one_lane(x_get(tail + lane), m));
  }
  return total;
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let lane = local & 63u;
  let first_item = 4u * (group.x + group.y * groups.x);
  let item = first_item + local / 64u;
  let items = p.rows * p.parts;
  var total = vec4<A>(EMPTY);
  if (item < items) {
    let row = item / p.parts;
    let start = row_start(row);
    let m = middle(vec4<u32>(row), vec4<u32>(start));
    let range = part_range(item - row * p.parts);
    for (var k = range.x; k < range.y;) {
      let run = run_at(k);
      let count = min(range.y - k, run.y);
      total = fold(total, fold_span(start + run.x, start + run.x + count, m, lane));
      k += count;
    }
  }
  tree[local] = join_lanes(total);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (lane < half) {
      tree[local] = fold(vec4<A>(tree[local]), vec4<A>(tree[local + half])).x;
    }
    workgroupBarrier();
  }
  if (local == 0u && first_item < items) {
    y_put4(first_item, lower(vec4<A>(tree[0], tree[64], tree[128], tree[192])));
  }
}
