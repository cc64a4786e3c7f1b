// Attention in workgroup memory, by the online softmax as in `register.wgsl`. 8 by 16 invocations
// take 32 rows of queries and tiles of 64 keys. Each computes the scores of 4 rows and 4 keys, from
// 16 elements of the head at a time. Then it computes 4 rows of ${vec4s} vec4s of the result.
// Workgroup memory holds the tiles and the scores of one tile: 16 KiB together, which every device
// has.
//
// The weights of a tile are stored by vec4s of rows. Their places are permuted by the last bit of
// the vec4's index, so that the two vec4s that 32 neighbours access lie in different banks.

var<workgroup> q_tile: array<vec4<f32>, 128>;
var<workgroup> k_tile: array<vec4<f32>, 256>;
var<workgroup> weights: array<vec4<f32>, 512>;
var<workgroup> meeting: array<vec4<f32>, 128>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let row_tiles = (p.size.x + 31u) / 32u;
  let blocks = (p.rest.y + ${columns}u - 1u) / ${columns}u;
  let index = linear(group, groups);
  let column = index % blocks * ${columns}u;
  let tile = index / blocks;
  let head = tile / row_tiles;
  if (head >= p.batch.z) { return; }
  // With a causal mask the last rows see the most keys, so they start first.
  let first_row = (row_tiles - 1u - tile % row_tiles) * 32u;
  let down = local / 16u;
  let across = local % 16u;
  let row = first_row + down * 4u;
  let last_row = p.size.x - 1u;
  let last_key = p.size.y - 1u;
  let keys = ${seen};
  let scale = bitcast<f32>(p.batch.w);
  let q_start = p.starts.x + step_over(p.q, head);
  let k_start = p.starts.y + step_over(p.k, head);
  let v_start = p.starts.z + step_over(p.v, head);
  let m_start = p.starts.w + step_over(p.m, head);
  let below = nothing();
  let swap = down & 1u;
  //% for n in 0..vec4s
  let column_${n} = column + ${n * 64}u + across * 4u;
  let v_at_${n} = v_start + min(column_${n}, p.rest.y - 4u);
  //%   for r in 0..4
  var o_${r}_${n} = vec4<f32>();
  //%   end
  //% end
  var highest = vec4<f32>(-3.4028234663852886e+38);
  var sum = vec4<f32>();
  for (var tile_key = 0u; tile_key < keys; tile_key += 64u) {
    let key = tile_key + across * 4u;
    var s_0 = vec4<f32>();
    var s_1 = vec4<f32>();
    var s_2 = vec4<f32>();
    var s_3 = vec4<f32>();
    for (var d = 0u; d < p.size.z; d += 16u) {
      workgroupBarrier();
      load_k(k_start, tile_key, d, local);
      load_q(q_start, first_row, d, local);
      workgroupBarrier();
      for (var i = 0u; i < 16u; i++) {
        let x = q_tile[i * 8u + down];
        let y = k_tile[i * 16u + across];
        s_0 = fma(x, vec4(y.x), s_0);
        s_1 = fma(x, vec4(y.y), s_1);
        s_2 = fma(x, vec4(y.z), s_2);
        s_3 = fma(x, vec4(y.w), s_3);
      }
    }
${mask}
    meeting[local] = max(max(s_0, s_1), max(s_2, s_3));
    workgroupBarrier();
    var peak = highest;
    for (var i = 0u; i < 16u; i++) { peak = max(peak, meeting[down * 16u + i]); }
    let shrink = exp_of(highest - peak);
    highest = peak;
    sum *= shrink;
    //% for n in 0..vec4s
    //%   for r in 0..4
    o_${r}_${n} *= shrink.$lane(r);
    //%   end
    //% end
    s_0 = exp_of(s_0 - peak);
    s_1 = exp_of(s_1 - peak);
    s_2 = exp_of(s_2 - peak);
    s_3 = exp_of(s_3 - peak);
    sum += (s_0 + s_1) + (s_2 + s_3);
    let place = down * 64u + (across ^ swap);
    weights[place] = s_0;
    weights[place + 16u] = s_1;
    weights[place + 32u] = s_2;
    weights[place + 48u] = s_3;
    workgroupBarrier();
    for (var i = 0u; i < 64u; i++) {
      let w = weights[down * 64u + (i ^ swap)];
      let at = min(tile_key + i % 16u * 4u + i / 16u, last_key) * p.v.w;
      //% for n in 0..vec4s
      let v_${n} = v_get4(v_at_${n} + at);
      //%   for r in 0..4
      o_${r}_${n} = fma(vec4(w.$lane(r)), v_${n}, o_${r}_${n});
      //%   end
      //% end
    }
  }
  workgroupBarrier();
  meeting[local] = sum;
  workgroupBarrier();
  sum = vec4<f32>();
  for (var i = 0u; i < 16u; i++) { sum += meeting[down * 16u + i]; }
  // The sum of a row that sees no key is 0, and so is its result.
  let share = select(1.0 / sum, vec4<f32>(), sum == vec4<f32>());
  let y_start = (head * p.size.x + row) * p.rest.y;
  //% for n in 0..vec4s
  //%   for r in 0..4
  store(y_start + ${r}u * p.rest.y + column_${n}, row + ${r}u, column_${n}, o_${r}_${n} * share.$lane(r));
  //%   end
  //% end
}

// Loads 64 keys by 16 elements of the head, as vec4s of keys, with zeros past the head's end.
fn load_k(start: u32, key: u32, d: u32, local: u32) {
  let edge = local % 16u;
  let deep = local / 16u;
  if (deep >= 4u) { return; }
  var a = vec4<f32>();
  var b = a;
  var c = a;
  var e = a;
  if (d + deep * 4u < p.size.z) {
    let at = start + d + deep * 4u;
    let first = key + edge * 4u;
    let last = p.size.y - 1u;
    a = k_get4(at + min(first, last) * p.k.w);
    b = k_get4(at + min(first + 1u, last) * p.k.w);
    c = k_get4(at + min(first + 2u, last) * p.k.w);
    e = k_get4(at + min(first + 3u, last) * p.k.w);
  }
  let to = deep * 64u + edge;
  k_tile[to] = vec4(a.x, b.x, c.x, e.x);
  k_tile[to + 16u] = vec4(a.y, b.y, c.y, e.y);
  k_tile[to + 32u] = vec4(a.z, b.z, c.z, e.z);
  k_tile[to + 48u] = vec4(a.w, b.w, c.w, e.w);
}

// Loads 32 rows of queries by 16 elements. The invocations that load no keys do it.
fn load_q(start: u32, row: u32, d: u32, local: u32) {
  if (local < 96u) { return; }
  let edge = local % 8u;
  let deep = (local - 96u) / 8u;
  var a = vec4<f32>();
  var b = a;
  var c = a;
  var e = a;
  if (d + deep * 4u < p.size.z) {
    let at = start + d + deep * 4u;
    let first = row + edge * 4u;
    let last = p.size.x - 1u;
    a = q_get4(at + min(first, last) * p.q.w);
    b = q_get4(at + min(first + 1u, last) * p.q.w);
    c = q_get4(at + min(first + 2u, last) * p.q.w);
    e = q_get4(at + min(first + 3u, last) * p.q.w);
  }
  let to = deep * 32u + edge;
  q_tile[to] = vec4(a.x, b.x, c.x, e.x);
  q_tile[to + 8u] = vec4(a.y, b.y, c.y, e.y);
  q_tile[to + 16u] = vec4(a.z, b.z, c.z, e.z);
  q_tile[to + 24u] = vec4(a.w, b.w, c.w, e.w);
}

fn store(at: u32, row: u32, column: u32, v: vec4<f32>) {
  if (row < p.size.x && column < p.rest.y) { y_put4(at, v); }
}
