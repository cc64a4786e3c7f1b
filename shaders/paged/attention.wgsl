// Attention over pages, by the online softmax (Milakov and Gimelshein, 2018). A workgroup has a
// task: ${rows} rows of one sequence and a run of its keys. For one head of keys it takes ${heads}
// heads of queries: ${queries} queries in all. Keys come in tiles of 64.
//
// An invocation computes the scores of one key with all queries. Then it takes a unit of the
// values' columns, for ${own} queries, and each ${parts}th key of the tile.
//
// The state of a query is its weighted sum of values, the highest score and the sum of weights. It
// lies in s between two rounds, which show different pages, and for the merge at the end. Each tile
// is added to it as a whole, so that rounds may begin at any tile.
//
// The words of a task: first row, rows, position of the first row, first page, pages, first key.

var<workgroup> q_tile: array<vec4<f32>, ${queries * units * vec4s}>;
var<workgroup> scores: array<f32, ${64 * queries}>;
//% if parts > 1
var<workgroup> meeting: array<vec4<f32>, ${64 * vec4s + 64}>;
//% end

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
$task
  for (var i = local; i < ${queries * units * vec4s}u; i += 64u) {
    let query = i / ${units * vec4s}u;
    let at = i % ${units * vec4s}u * 4u;
    let row = first_row + min(query / ${heads}u, last_row);
    let q_head = min(first_head + query % ${heads}u, last_head);
    var x = vec4<f32>();
    if (at < ${size}u) { x = q_get4(p.rest.x + (row * p.heads.x + q_head) * ${size}u + at); }
    q_tile[i] = x * p.numbers.x;
  }
  let unit = local % ${units}u;
  let some = local / ${units}u % ${queries / own} * ${own}u;
  let part = local / ${units * (queries / own)}u;
  let is_busy = part < ${parts}u;
  //% for i in 0..own
  let state_${i} = state_at(group.x, some + ${i}u, first_head, last_head);
  //%   for v in 0..vec4s
  var o_${i}_${v} = vec4<f32>();
  //%   end
  var highest_${i} = -3.4028234663852886e+38;
  var sum_${i} = 0.0;
  if (!is_first && is_busy && state_${i} != ${absent}u) {
    let numbers = s_get4(state_${i} + ${size}u);
    highest_${i} = numbers.x;
    sum_${i} = numbers.y;
  //%   for v in 0..vec4s
    if (unit * ${4 * vec4s}u + ${4 * v}u < ${size}u) {
      o_${i}_${v} = s_get4(state_${i} + unit * ${4 * vec4s}u + ${4 * v}u);
    }
  //%   end
  }
  //% end
  workgroupBarrier();
  for (var tile = 0u; tile < p.part.z; tile++) {
    let tile_key = first_key + tile * 64u;
    // All of the tile's pages are in one round.
    let tile_page = first_page + tile * ${64 / tokens}u;
    var is_here = tile_key < end_key && tile_key + 64u > begin_key;
    if (is_here) { is_here = entry_of(tile_page).x != ${absent}u; }
    let key = tile_key + local;
    //% for m in 0..queries
    var s_${m} = 0.0;
    //% end
    if (is_here && key < end_key) {
      let entry = entry_of(tile_page + local / ${tokens}u);
      let start = entry.y + block + local % ${tokens}u * ${units}u;
      for (var u = 0u; u < ${units}u; u++) {
        let k = g_load(entry.x, start + u);
        //% for v in 0..vec4s
        let k_${v} = $floats(k, ${v});
        //%   for m in 0..queries
        s_${m} += dot(q_tile[${m * units * vec4s}u + u * ${vec4s}u + ${v}u], k_${v});
        //%   end
        //% end
      }
      //% if is_i8
      let scales = entry.y + block + ${2 * tokens * units}u + local % ${tokens}u / 4u;
      let scale = bitcast<f32>(g_load(entry.x, scales)[local % 4u]);
      //%   for m in 0..queries
      s_${m} *= scale;
      //%   end
      //% end
    }
    //% for m in 0..queries
    //%   if is_capped
    s_${m} = capped(s_${m});
    //%   end
    let own_${m} = position + min(${m / heads}u, last_row);
    let is_seen_${m} = is_here && key <= own_${m} && own_${m} - key <= p.rest.z;
    scores[${64 * m}u + local] = select(below, s_${m}, is_seen_${m});
    //% end
    workgroupBarrier();
    //% for i in 0..own
    //%   for v in 0..vec4s
    var a_${i}_${v} = vec4<f32>();
    //%   end
    var add_${i} = 0.0;
    var shrink_${i} = 1.0;
    //% end
    if (is_here && is_busy) {
      //% for i in 0..own
      var peak_${i} = highest_${i};
      //% end
      for (var j = 0u; j < 64u; j++) {
        //% for i in 0..own
        peak_${i} = max(peak_${i}, scores[(some + ${i}u) * 64u + j]);
        //% end
      }
      //% for i in 0..own
      shrink_${i} = exp_kept(highest_${i} - peak_${i});
      highest_${i} = peak_${i};
      //% end
      let keys = min(64u, end_key - tile_key);
      for (var before = 0u; before < keys; before += ${tokens}u) {
        let entry = entry_of(tile_page + before / ${tokens}u);
        let start = entry.y + block + ${tokens * units}u + unit;
        for (var t = part; t < min(${tokens}u, keys - before); t += ${parts}u) {
          let x = g_load(entry.x, start + t * ${units}u);
          //% if is_i8
          let scales = entry.y + block + ${2 * tokens * units + tokens / 4}u + t / 4u;
          let scale = bitcast<f32>(g_load(entry.x, scales)[t % 4u]);
          //% end
          //% for v in 0..vec4s
          let x_${v} = $floats(x, ${v});
          //% end
          //% for i in 0..own
          let w_${i} = exp_kept(scores[(some + ${i}u) * 64u + before + t] - peak_${i});
          add_${i} += w_${i};
          //%   if is_i8
          let f_${i} = w_${i} * scale;
          //%   else
          let f_${i} = w_${i};
          //%   end
          //%   for v in 0..vec4s
          a_${i}_${v} = fma(vec4(f_${i}), x_${v}, a_${i}_${v});
          //%   end
          //% end
        }
      }
      //% if parts > 1
      //%   for v in 0..vec4s
      meeting[local * ${vec4s + 1}u + ${v}u] = a_0_${v};
      //%   end
      meeting[local * ${vec4s + 1}u + ${vec4s}u] = vec4(add_0, 0.0, 0.0, 0.0);
      //% end
    }
    workgroupBarrier();
    //% if parts > 1
    if (is_here && part == 0u) {
      for (var other = 1u; other < ${parts}u; other++) {
        let at = (local + other * ${units * (queries / own)}u) * ${vec4s + 1}u;
        //% for v in 0..vec4s
        a_0_${v} += meeting[at + ${v}u];
        //% end
        add_0 += meeting[at + ${vec4s}u].x;
      }
    }
    //% end
    //% for i in 0..own
    sum_${i} = fma(sum_${i}, shrink_${i}, add_${i});
    //%   for v in 0..vec4s
    o_${i}_${v} = fma(o_${i}_${v}, vec4(shrink_${i}), a_${i}_${v});
    //%   end
    //% end
  }
  if (part != 0u) { return; }
  //% for i in 0..own
  if (state_${i} != ${absent}u) {
  //%   for v in 0..vec4s
    if (unit * ${4 * vec4s}u + ${4 * v}u < ${size}u) {
      s_put4(state_${i} + unit * ${4 * vec4s}u + ${4 * v}u, o_${i}_${v});
    }
  //%   end
    if (unit == 0u) { s_put4(state_${i} + ${size}u, vec4(highest_${i}, sum_${i}, 0.0, 0.0)); }
  }
  //% end
}
