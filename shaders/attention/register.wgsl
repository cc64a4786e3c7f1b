// Attention in registers, without barriers, by the online softmax (Milakov and
// Gimelshein, 2018) in the order of FlashAttention (Dao et al., 2022): keys come in tiles of
// ${keys}; of each row of queries there is kept the maximum so far, the sum of exponentials below
// it, and the weighted sum of the values, which shrink when a tile brings a larger maximum.
//
// An invocation owns ${width} rows of queries, side by side in the components of a vector, so that
// nothing has to be folded across lanes. Where lanes can broadcast, they are the workgroup: each
// loads a share of the keys and of the values for all.

// Each invocation's own, for what is indexed by a loop. An array in registers would be looked through
// one by one, and takes several times as long to compile. Nobody reads what another wrote.
var<workgroup> weights: array<${vector}, ${places}>;

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(${lane_builtin}) lane: u32,
) {
  let row_tiles = (p.size.x + ${rows}u - 1u) / ${rows}u;
  let blocks = (p.rest.y + ${columns}u - 1u) / ${columns}u;
  let index = linear(group, groups);
  let column = index % blocks * ${columns}u;
  let tile = index / blocks;
  let head = tile / row_tiles;
  if (head >= p.batch.z) { return; }
  // The last rows see the most keys where the mask is causal, and so they begin.
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
${prepare}
  var highest = ${vector}(-3.4028234663852886e+38);
  var sum = ${vector}();
  for (var key = 0u; key < keys; key += ${keys}u) {
${tile_starts}
    for (var d = 0u; d < p.size.z; d += 4u) {
${scores}
    }
${mask}
${softmax}
${values}
  }
  // A row that sees no key has the sum of nothing, which is 0.
  let share = select(1.0 / sum, ${vector}(), sum == ${vector}());
  let y_start = (head * p.size.x + row) * p.rest.y + column;
${finish}
}

// WGSL leaves it to the adapter what its own makes of NaN.
fn exp_kept(x: ${vector}) -> ${vector} {
  let size = bitcast<${bits}>(x) & ${bits}(0x7fffffffu);
  return select(exp(x), x, size > ${bits}(0x7f800000u));
}

fn store(at: u32, row: u32, column: u32, v: vec4<f32>) {
  if (row < p.size.x && column < p.rest.y) { y_put4(at, v); }
}
