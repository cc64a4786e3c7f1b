// Running sums, products and extremes along one axis of a view: y[k] folds x[0] to x[k]. One
// invocation takes a row, or a part of one. For parts, earlier launches have computed `c`: the fold
// of each part with all parts before it. The parts of a row are contiguous in `c`. `second` is the
// stride of the axis in y, which is row-major. `T` is the type of x and y, `A` of the accumulator.

//# sum
const EMPTY: A = A(0);
const IN_BLOCKS = true;
fn fold(a: A, b: A) -> A {
  return a + b;
}

//# product
const EMPTY: A = A(1);
const IN_BLOCKS = false;
fn fold(a: A, b: A) -> A {
  return a * b;
}

//# max
const EMPTY: A = LOWEST;
const IN_BLOCKS = false;
fn fold(a: A, b: A) -> A {
  return max(a, b);
}

//# min
const EMPTY: A = HIGHEST;
const IN_BLOCKS = false;
fn fold(a: A, b: A) -> A {
  return min(a, b);
}

//# plain
fn lift(x: T) -> A {
  return x;
}

fn lower(a: A) -> T {
  return a;
}

//# keys
// Floats are compared as integers of the same order, as in `reduce.wgsl`. Each NaN has the key that
// wins, so that it propagates.
fn lift(x: T) -> A {
  let bits = bitcast<i32>(x);
  let key = bits ^ ((bits >> 31u) & 0x7fffffff);
  return select(key, NAN_KEY, (bits & 0x7fffffff) > 0x7f800000);
}

fn lower(a: A) -> T {
  return bitcast<f32>(a ^ ((a >> 31u) & 0x7fffffff));
}

//# whole
fn before(row: u32, part: u32) -> A {
  return EMPTY;
}

//# parts
fn before(row: u32, part: u32) -> A {
  if (part == 0u) {
    return EMPTY;
  }
  return lift(c_get(row * p.parts + part - 1u));
}

//# main
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  // Neighbouring invocations take neighbouring rows.
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
  // Blocks of a row have their own sums, so that the rounding error does not grow with its length.
  // Products have none: that of a block may overflow where those of the row do not.
  var total = EMPTY;
  var block = before(row, part);
  for (var k = 0u; k < count; k += 1u) {
    if (IN_BLOCKS && (k & 63u) == 0u) {
      total = fold(total, block);
      block = EMPTY;
    }
    block = fold(block, lift(x_get(from_x)));
    y_put(to_y, lower(fold(total, block)));
    from_x += p.inner_strides.x;
    to_y += p.second;
  }
}
