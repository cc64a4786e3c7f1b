// Stable sorting of rows by merging. Elements are sorted by keys: words whose unsigned order is
// that of the elements, reversed for a descending sort. Every NaN has the highest key. Both zeros
// have the same key. Beside the keys `k` of a row goes its order `o`: the original position of each
// key.

//# key_float
fn key_of(v: T) -> u32 {
  let bits = bitcast<u32>(v);
  let magnitude = bits & 0x7fffffffu;
  var key = select(magnitude | 0x80000000u, ~bits, bits > 0x80000000u);
  key = select(key, 0xffffffffu, magnitude > 0x7f800000u);
  return select(key, ~key, DESCENDING);
}

//# key_signed
fn key_of(v: T) -> u32 {
  let key = bitcast<u32>(v) ^ 0x80000000u;
  return select(key, ~key, DESCENDING);
}

//# key_unsigned
fn key_of(v: T) -> u32 {
  return select(v, ~v, DESCENDING);
}

//# blocks
// Sorts eight neighbours of a row: counts for each how many come before it.
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let item = id.x + id.y * groups.x * 32u;
  if (item >= p.rows * p.parts) {
    return;
  }
  let row = item / p.parts;
  let from_k = (item - row * p.parts) * 8u;
  let count = min(8u, p.length - from_k);
  let first = row_start(row) + from_k * p.inner_strides.x;
  var keys: array<u32, 8>;
  for (var i = 0u; i < count; i += 1u) {
    keys[i] = key_of(x_get(first + i * p.inner_strides.x));
  }
  let out = row * p.length + from_k;
  for (var i = 0u; i < count; i += 1u) {
    let key = keys[i];
    var rank = 0u;
    for (var j = 0u; j < count; j += 1u) {
      rank += select(0u, 1u, keys[j] < key || (keys[j] == key && j < i));
    }
    k_put(out + rank, key);
    o_put(out + rank, from_k + i);
  }
}

//# merge
// Merges two neighbouring runs of a row, and keeps at most `keep` elements. One invocation writes
// `piece` elements, and searches for their start in both runs.
struct Params {
  rows: u32,
  // The number of elements of a row in k, and in l.
  length: u32,
  kept: u32,
  // The number of elements of a run in k, and in l. The last run of a row may be shorter.
  run: u32,
  keep: u32,
  // The number of pairs of runs in a row, pieces of a pair, and elements of a piece.
  pairs: u32,
  pieces: u32,
  piece: u32,
}

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let item = id.x + id.y * groups.x * 32u;
  let line = item / p.pieces;
  let row = line / p.pairs;
  if (row >= p.rows) {
    return;
  }
  let pair = line - row * p.pairs;
  let within = pair * 2u * p.run;
  let a_count = min(p.run, p.length - within);
  let b_count = min(p.run, p.length - within - a_count);
  let a = row * p.length + within;
  let b = a + a_count;
  let from_d = (item - line * p.pieces) * p.piece;
  let end_d = min(from_d + p.piece, min(a_count + b_count, p.keep));
  if (from_d >= end_d) {
    return;
  }
  // The first `from_d` elements are `low` of the first run and the rest of the second.
  var low = from_d - min(from_d, b_count);
  var high = min(from_d, a_count);
  while (low < high) {
    let middle = (low + high) / 2u;
    if (k_get(a + middle) <= k_get(b + from_d - 1u - middle)) {
      low = middle + 1u;
    } else {
      high = middle;
    }
  }
  var i = low;
  var j = from_d - low;
  let out = row * p.kept + pair * p.keep;
  for (var d = from_d; d < end_d; d += 1u) {
    // Keys past a run are never taken. Without a second run, `b_key` is the last key of the first.
    let a_key = k_get(a + min(i, a_count - 1u));
    let b_key = k_get(b + min(j + 1u, b_count) - 1u);
    let takes_a = j >= b_count || (i < a_count && a_key <= b_key);
    l_put(out + d, select(b_key, a_key, takes_a));
    q_put(out + d, o_get(select(b + j, a + i, takes_a)));
    i += select(0u, 1u, takes_a);
    j += select(1u, 0u, takes_a);
  }
}
