// Attention over pages as in `attention.wgsl`, for software adapters: a workgroup is one subgroup
// of ${lanes} lanes, and there are no barriers. Keys come in tiles of ${tile}.
//
// A lane computes the scores of ${keys} keys; the lanes broadcast queries to each other. Then it
// takes ${columns} units of the values' columns, and the lanes broadcast weights.

// Private to each invocation, for arrays that loops index.
var<workgroup> weights: array<f32, ${keys * queries * lanes}>;

@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(subgroup_invocation_id) lane: u32,
) {
$task
  //% for i in 0..query_loads
  let query_${i} = min(lane + ${i * lanes}u, ${queries - 1}u);
  let q_at_${i} = p.rest.x + ((first_row + min(query_${i} / ${heads}u, last_row)) * p.heads.x
    + min(first_head + query_${i} % ${heads}u, last_head)) * ${size}u;
  //% end
  //% for m in 0..queries
  let state_${m} = state_at(group.x, ${m}u, first_head, last_head);
  let own_${m} = position + min(${m / heads}u, last_row);
  var highest_${m} = -3.4028234663852886e+38;
  var sum_${m} = 0.0;
  //%   for c in 0..columns
  //%     for v in 0..vec4s
  var o_${m}_${c}_${v} = vec4<f32>();
  //%     end
  //%   end
  if (!is_first && state_${m} != ${absent}u) {
    let numbers = s_get4(state_${m} + ${size}u);
    highest_${m} = numbers.x;
    sum_${m} = numbers.y;
  //%   for c in 0..columns
  //%     for v in 0..vec4s
    if (lane * ${4 * vec4s}u + ${c * lanes * 4 * vec4s + 4 * v}u < ${size}u) {
      o_${m}_${c}_${v} = s_get4(state_${m} + lane * ${4 * vec4s}u + ${c * lanes * 4 * vec4s + 4 * v}u);
    }
  //%     end
  //%   end
  }
  //% end
  for (var tile = 0u; tile < p.part.z; tile++) {
    let tile_key = first_key + tile * ${tile}u;
    // All of the tile's pages are in one round.
    let tile_page = first_page + tile * ${tile / tokens}u;
    if (tile_key >= end_key) { break; }
    //% for n in 0..tile / tokens
    let entry_${n} = entry_of(min(tile_page + ${n}u, last_page));
    //% end
    if (tile_key + ${tile}u <= begin_key || entry_0.x == ${absent}u) { continue; }
    //% for i in 0..keys
    //%   let n = i * lanes / tokens
    let k_at_${i} = entry_${n}.y + block + (${i * lanes % tokens}u + lane) * ${units}u;
    //%   for m in 0..queries
    var s_${i}_${m} = 0.0;
    //%   end
    //% end
    for (var u = 0u; u < ${units}u; u++) {
      //% for i in 0..keys
      let k_${i} = g_load(entry_${i * lanes / tokens}.x, k_at_${i} + u);
      //% end
      //% for v in 0..vec4s
      //%   for i in 0..query_loads
      //%     if is_padded
      let at_${v}_${i} = min(u * ${4 * vec4s}u + ${4 * v}u, ${size - 4}u);
      //%     else
      let at_${v}_${i} = u * ${4 * vec4s}u + ${4 * v}u;
      //%     end
      let q_${v}_${i} = q_get4(q_at_${i} + at_${v}_${i});
      //%   end
      //%   for i in 0..keys
      let k_${v}_${i} = $floats(k_${i}, ${v});
      //%   end
      //%   for m in 0..queries
      let b_${v}_${m} = subgroupBroadcast(q_${v}_${m / lanes}, ${m % lanes}u);
      //%     for i in 0..keys
      s_${i}_${m} += dot(b_${v}_${m}, k_${v}_${i});
      //%     end
      //%   end
      //% end
    }
    //% for i in 0..keys
    let key_${i} = tile_key + ${i * lanes}u + lane;
    //%   if is_i8
    let scales_${i} = entry_${i * lanes / tokens}.y + block + ${2 * tokens * units}u + (${i * lanes % tokens}u + lane) / 4u;
    let k_scale_${i} = bitcast<f32>(g_load(entry_${i * lanes / tokens}.x, scales_${i})[lane % 4u]);
    let v_scale_${i} = bitcast<f32>(g_load(entry_${i * lanes / tokens}.x, scales_${i} + ${tokens / 4}u)[lane % 4u]);
    //%   end
    //%   for m in 0..queries
    s_${i}_${m} *= p.numbers.x;
    //%     if is_i8
    s_${i}_${m} *= k_scale_${i};
    //%     end
    //%     if is_capped
    s_${i}_${m} = capped(s_${i}_${m});
    //%     end
    s_${i}_${m} = select(below, s_${i}_${m}, key_${i} <= own_${m} && own_${m} - key_${i} <= p.rest.z);
    //%   end
    //% end
    //% for m in 0..queries
    var peak_${m} = s_0_${m};
    //%   for i in 1..keys
    peak_${m} = max(peak_${m}, s_${i}_${m});
    //%   end
    peak_${m} = max(highest_${m}, subgroupMax(peak_${m}));
    let shrink_${m} = exp_kept(highest_${m} - peak_${m});
    highest_${m} = peak_${m};
    var add_${m} = 0.0;
    //%   for i in 0..keys
    s_${i}_${m} = exp_kept(s_${i}_${m} - peak_${m});
    add_${m} += s_${i}_${m};
    //%     if is_i8
    // A weight of 0 belongs to a key that is hidden, or absent.
    s_${i}_${m} = select(s_${i}_${m} * v_scale_${i}, 0.0, s_${i}_${m} == 0.0);
    //%     end
    weights[${(i * queries + m) * lanes}u + lane] = s_${i}_${m};
    //%   end
    sum_${m} = fma(sum_${m}, shrink_${m}, subgroupAdd(add_${m}));
    //%   for c in 0..columns
    //%     for v in 0..vec4s
    o_${m}_${c}_${v} *= shrink_${m};
    //%     end
    //%   end
    //% end
    let last_key = min(end_key - 1u - tile_key, ${tile - 1}u);
    for (var i = 0u; i < ${keys}u; i++) {
      let from_key = i * ${lanes}u;
      if (from_key > last_key) { break; }
      //% if tile > tokens
      let entry = select(entry_0, entry_1, vec2(from_key >= ${tokens}u));
      //% else
      let entry = entry_0;
      //% end
      let v_at = entry.y + block + ${tokens * units}u;
      //% for m in 0..queries
      let w_${m} = weights[(i * ${queries}u + ${m}u) * ${lanes}u + lane];
      //% end
      //% for l in 0..lanes
      {
        let row = v_at + min(from_key + ${l}u, last_key) % ${tokens}u * ${units}u;
        //% for c in 0..columns
        let x_${c} = g_load(entry.x, row + min(lane + ${c * lanes}u, ${units - 1}u));
        //%   for v in 0..vec4s
        let x_${c}_${v} = $floats(x_${c}, ${v});
        //%   end
        //% end
        //% for m in 0..queries
        let b_${m} = vec4(subgroupBroadcast(w_${m}, ${l}u));
        //%   for c in 0..columns
        //%     for v in 0..vec4s
        o_${m}_${c}_${v} = fma(b_${m}, x_${c}_${v}, o_${m}_${c}_${v});
        //%     end
        //%   end
        //% end
      }
      //% end
    }
  }
  //% for m in 0..queries
  if (state_${m} != ${absent}u) {
  //%   for c in 0..columns
  //%     for v in 0..vec4s
    if (lane * ${4 * vec4s}u + ${c * lanes * 4 * vec4s + 4 * v}u < ${size}u) {
      s_put4(state_${m} + lane * ${4 * vec4s}u + ${c * lanes * 4 * vec4s + 4 * v}u, o_${m}_${c}_${v});
    }
  //%     end
  //%   end
    if (lane == 0u) { s_put4(state_${m} + ${size}u, vec4(highest_${m}, sum_${m}, 0.0, 0.0)); }
  }
  //% end
}
