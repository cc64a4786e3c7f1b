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

//# slopes
// The gradient of logits: each row's softmax, minus 1 at the target, times the gradient `g` of the
// row's loss. That is NaN for a target that is no class. `x` is contiguous.
struct Params {
  offset: u32,
  elements: u32,
  length: u32,
  // The stride of the classes.
  step: u32,
  targets: u32,
  grads: u32,
  grads_step: u32,
  ignores: u32,
  ignored: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  if (first >= p.elements) {
    return;
  }
  let e = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.elements - 1u));
  let v = vec4<f32>(load(vec4<u32>(p.offset) + e));
  let row = row_of(e);
  let share = exp_of(v - row.total);
  y_put4(first, (share - select(vec4<f32>(0.0), vec4<f32>(1.0), row.is_target)) * row.grad);
}

struct Row {
  total: vec4<f32>,
  grad: vec4<f32>,
  is_target: vec4<bool>,
}

fn target_of(row: u32) -> u32 {
  return u32(i_get(p.targets + row));
}

fn grad_of(row: u32, target_class: u32) -> f32 {
  if (p.ignores == 1u && target_class == p.ignored) {
    return 0.0;
  }
  let g = vec4<f32>(g_get(p.grads + row * p.grads_step));
  return select(nan_of(g).x, g.x, target_class < p.length);
}

//# slopes_of_row
// The classes are the last axis, and whole vec4s.
fn row_of(e: vec4<u32>) -> Row {
  let row = e.x / p.length;
  let at = e - vec4<u32>(row * p.length);
  let class_of_row = target_of(row);
  return Row(
    vec4<f32>(m_get(row)),
    vec4<f32>(grad_of(row, class_of_row)),
    at == vec4<u32>(class_of_row),
  );
}

//# slopes_of_rows
fn row_of(e: vec4<u32>) -> Row {
  let step = vec4<u32>(p.step);
  let above = e / step;
  let outer = above / vec4<u32>(p.length);
  let row = outer * step + (e - above * step);
  let at = above - outer * p.length;
  let class_of = vec4<u32>(target_of(row.x), target_of(row.y), target_of(row.z), target_of(row.w));
  return Row(
    vec4<f32>(m_get(row.x), m_get(row.y), m_get(row.z), m_get(row.w)),
    vec4<f32>(
      grad_of(row.x, class_of.x),
      grad_of(row.y, class_of.y),
      grad_of(row.z, class_of.z),
      grad_of(row.w, class_of.w),
    ),
    at == class_of,
  );
}
