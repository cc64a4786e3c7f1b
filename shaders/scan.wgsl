// Running sums and products along one axis of a view: y[k] folds x[0] to x[k]. One invocation walks
// a row, or a part of one, on which the others before it have left `c`: what each part and those
// before it fold to, the parts of a row side by side. `second` is the step along the axis in y,
// which is row-major.

//# sum
const EMPTY: T = T(0);
fn fold(a: T, b: T) -> T {
  return a + b;
}

//# product
const EMPTY: T = T(1);
fn fold(a: T, b: T) -> T {
  return a * b;
}

//# whole
fn before(row: u32, part: u32) -> T {
  return EMPTY;
}

//# parts
fn before(row: u32, part: u32) -> T {
  if (part == 0u) {
    return EMPTY;
  }
  return c_get(row * p.parts + part - 1u);
}

//# main
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  // Neighbours walk neighbouring rows.
  let item = id.x + id.y * groups.x * 32u;
  if (item >= p.rows * p.parts) {
    return;
  }
  let part = item / p.rows;
  let row = item - part * p.rows;
  let from_k = part * p.chunk;
  let count = min(p.chunk, p.length - from_k);
  let outer = row / p.second;
  var from_x = row_start(row) + from_k * p.inner_strides.x;
  var to_y = (outer * p.length + from_k) * p.second + (row - outer * p.second);
  // Blocks of a row have totals of their own, so that the rounding error does not grow with it.
  var total = before(row, part);
  var block = EMPTY;
  for (var k = 0u; k < count; k += 1u) {
    if ((k & 63u) == 0u) {
      total = fold(total, block);
      block = EMPTY;
    }
    block = fold(block, x_get(from_x));
    y_put(to_y, fold(total, block));
    from_x += p.inner_strides.x;
    to_y += p.second;
  }
}
