// The negative logarithm of a class's probability, for every row of x. The row's target `i` names
// the class. The element of x is subtracted from what `m` holds for the row. Targets are read from
// `second` on. If `parts` is 1, targets equal to `third` are ignored and give 0. One invocation
// writes one vec4.

//# main
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.rows) {
    return;
  }
  // Targets that are not a class give NaN.
  var v = nan_of(vec4<f32>(0.0));
  for (var lane = 0u; lane < min(4u, p.rows - first); lane += 1u) {
    let row = first + lane;
    let target_class = u32(i_get(p.second + row));
    if (p.parts == 1u && target_class == p.third) {
      v = select(v, vec4<f32>(0.0), is_lane(lane));
    } else if (target_class < p.length) {
      let loss = total(row) - x_get(row_start(row) + target_class * p.inner_strides.x);
      v = select(v, vec4<f32>(loss), is_lane(lane));
    }
  }
  y_put4(first, v);
}

//# probabilities
// x holds logarithms of probabilities.
fn total(row: u32) -> f32 {
  return 0.0;
}

//# logits
// m holds the logarithm of the sum of a row's exponentials.
fn total(row: u32) -> f32 {
  return m_get(row);
}
