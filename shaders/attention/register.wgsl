// Attention in registers, without barriers, by the online softmax (Milakov and Gimelshein, 2018) in
// the order of FlashAttention (Dao et al., 2022). Keys come in tiles of ${keys}. The kernel keeps
// three things for each row of queries: the maximum so far, the sum of exponentials relative to it,
// and the weighted sum of values. It rescales both sums when a tile has a larger maximum.
//
// An invocation owns ${width} rows of queries, side by side in the components of a vector. So it
// needs no reduction across lanes. Where lanes can broadcast, they form the workgroup, and each
// loads a share of the keys and of the values for all.

// Private to each invocation, for arrays that loops index. An indexed array in registers would
// become a chain of selections, which takes several times as long to compile.
var<workgroup> weights: array<${vector}, ${keys * threads}>;

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  //% if lanes > 0
  @builtin(subgroup_invocation_id) lane: u32,
  //% else
  @builtin(local_invocation_index) lane: u32,
  //% end
) {
  let row_tiles = (p.size.x + ${rows}u - 1u) / ${rows}u;
  let blocks = (p.rest.y + ${columns}u - 1u) / ${columns}u;
  let index = linear(group, groups);
  let column = index % blocks * ${columns}u;
  let tile = index / blocks;
  let head = tile / row_tiles;
  if (head >= p.batch.z) { return; }
  // With a causal mask the last rows see the most keys, so they start first.
  let first_row = (row_tiles - 1u - tile % row_tiles) * ${rows}u;
  let row = first_row + lane * ${width}u;
  let last_row = p.size.x - 1u;
  let last_key = p.size.y - 1u;
  let keys = ${seen};
  let scale = bitcast<f32>(p.batch.w);
  let q_start = p.starts.x + step_over(p.q, head);
  let k_start = p.starts.y + step_over(p.k, head);
  let v_start = p.starts.z + step_over(p.v, head);
  let m_start = p.starts.w + step_over(p.m, head);
  let below = nothing();
  //% for r in 0..width
  let q_at_${r} = q_start + min(row + ${r}u, last_row) * p.q.w;
  //% end
  //% for e in 0..4 * vec4s
  var o_${e} = ${vector}();
  //% end
  var highest = ${vector}(-3.4028234663852886e+38);
  var sum = ${vector}();
  for (var key = 0u; key < keys; key += ${keys}u) {
    //% for i in 0..key_loads
    //%   if lanes > 0
    let k_at_${i} = k_start + min(key + ${i * lanes}u + lane, last_key) * p.k.w;
    //%   else
    let k_at_${i} = k_start + min(key + ${i}u, last_key) * p.k.w;
    //%   end
    //% end
    //% for t in 0..keys
    var s_${t} = ${vector}();
    //% end
    for (var d = 0u; d < p.size.z; d += 4u) {
      //% for r in 0..width
      let q_${r} = q_get4(q_at_${r} + d);
      //% end
      //% for i in 0..4
      let x_$lane(i) = ${vector}($join(r in 0..width, q_${r}.$lane(i)));
      //% end
      //% for i in 0..key_loads
      let g_${i} = k_get4(k_at_${i} + d);
      //% end
      //% for t in 0..keys
      //%   if lanes > 0
      let b_${t} = subgroupBroadcast(g_${t / lanes}, ${t % lanes}u);
      //%   else
      let b_${t} = g_${t};
      //%   end
      //%   for i in 0..4
      s_${t} = fma(x_$lane(i), $splat(b_${t}.$lane(i)), s_${t});
      //%   end
      //% end
    }
${mask}
    var peak = highest;
    //% for t in 0..keys
    peak = max(peak, s_${t});
    //% end
    let shrink = exp_kept(highest - peak);
    highest = peak;
    sum *= shrink;
    //% for e in 0..4 * vec4s
    o_${e} *= shrink;
    //% end
    //% for t in 0..keys
    s_${t} = exp_kept(s_${t} - peak);
    sum += s_${t};
    weights[${t} * ${threads} + lane] = s_${t};
    //% end
    //% for loop in 0..(vec4s + vec4s_of_a_loop - 1) / vec4s_of_a_loop
    //%   let first = loop * vec4s_of_a_loop
    //%   let some = min(vec4s_of_a_loop, vec4s - first)
    //%   let shares = min(lanes, 1) * ((4 * some + lanes - 1) / max(lanes, 1))
    {
    //%   for i in 0..shares
    let item_${i} = min(lane + ${i * lanes}u, ${4 * some - 1}u);
    let v_at_${i} = v_start + min(column + (${first}u + item_${i} % ${some}u) * 4u, p.rest.y - 4u);
    //%   end
    for (var t = 0u; t < ${keys}u; t += 4u) {
      //%   for j in 0..4
      let w_${j} = weights[(t + ${j}u) * ${threads} + lane];
      //%   end
      //%   for i in 0..shares
      let g_${i} = v_get4(v_at_${i} + min(key + t + item_${i} / ${some}u, last_key) * p.v.w);
      //%   end
      //%   if lanes == 0
      //%     for j in 0..4
      let row_${j} = v_start + min(key + t + ${j}u, last_key) * p.v.w;
      //%     end
      //%   end
      //%   for c in first..first + some
      //%     for j in 0..4
      //%       let item = j * some + c - first
      //%       if lanes > 0
      let b_${c}_${j} = subgroupBroadcast(g_${item / lanes}, ${item % lanes}u);
      //%       else
      let b_${c}_${j} = v_get4(row_${j} + min(column + ${4 * c}u, p.rest.y - 4u));
      //%       end
      //%     end
      //%     for i in 0..4
      //%       for j in 0..4
      o_${4 * c + i} = fma(w_${j}, $splat(b_${c}_${j}.$lane(i)), o_${4 * c + i});
      //%       end
      //%     end
      //%   end
    }
    }
    //% end
  }
  // The sum of a row that sees no key is 0, and so is its result.
  let share = select(1.0 / sum, ${vector}(), sum == ${vector}());
  let y_start = (head * p.size.x + row) * p.rest.y + column;
  //% let at_once = keys / 4
  //% for loop in 0..(vec4s + at_once - 1) / at_once
  //%   let first = loop * at_once
  //%   let some = min(at_once, vec4s - first)
  //%   for e in 0..4 * some
  weights[${e} * ${threads} + lane] = o_${4 * first + e} * share;
  //%   end
  for (var c = ${4 * first}u; c < ${4 * (first + some)}u; c += 4u) {
    //%   for e in 0..4
    let c_${e} = weights[(c - ${4 * first}u + ${e}u) * ${threads} + lane];
    //%   end
    //%   if width == 1
    store(y_start + 0u * p.rest.y + c, row + 0u, column + c, vec4(c_0, c_1, c_2, c_3));
    //%   else
    //%     for r in 0..width
    store(y_start + ${r}u * p.rest.y + c, row + ${r}u, column + c, vec4($join(e in 0..4, c_${e}.$lane(r))));
    //%     end
    //%   end
  }
  //% end
}

// WGSL does not define `exp` of NaN.
fn exp_kept(x: ${vector}) -> ${vector} {
  let size = bitcast<${bits}>(x) & ${bits}(0x7fffffffu);
  return select(exp(x), x, size > ${bits}(0x7f800000u));
}

fn store(at: u32, row: u32, column: u32, v: vec4<f32>) {
  if (row < p.size.x && column < p.rest.y) { y_put4(at, v); }
}
