// Poolings with irregular windows, and the gradients of all poolings with respect to their input.
// Elements of the input gather from their windows, so no two invocations add to one element. One
// invocation computes four neighbouring elements. Each loop goes over rows and columns at once:
// software adapters count the tests of loops, and nested ones have more.

//# frame
struct Params {
  planes: vec4<u32>,   // samples times channels, height and width of x, height of y
  kernel: vec4<u32>,   // width of y, height and width of the kernel, stride down
  margin: vec4<u32>,   // stride across, padding above, to the left, start of x
  rest: vec4<u32>,     // start of the gradient, divisor of means, whether padding counts
  dilation: vec4<u32>, // down, across
}

// A window along one axis: its first place, the step to the next, the number of its elements in the
// plane, and the number that counts for a mean.
fn rows_of(window: u32) -> vec4<u32> {
  return span(window, p.planes.y, p.planes.w, p.kernel.y, vec3(p.kernel.w, p.margin.y, p.dilation.x));
}

fn columns_of(window: u32) -> vec4<u32> {
  return span(window, p.planes.z, p.kernel.x, p.kernel.z, vec3(p.margin.x, p.margin.z, p.dilation.y));
}

// The divisor of a window's mean. 0 stands for the number of its elements.
fn divisor(rows: u32, columns: u32) -> f32 {
  return f32(select(p.rest.y, rows * columns, p.rest.y == 0u));
}

// Maps floats to unsigned numbers of the same order. Both zeros are equal, and NaN is the greatest.
fn key_of(bits: u32) -> u32 {
  var key = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
  key = select(key, 0x80000000u, bits == 0x80000000u);
  return select(key, 0xffffffffu, (bits & 0x7fffffffu) > 0x7f800000u);
}

//# regular
// `moves` has the stride, the padding and the dilation.
fn span(window: u32, input: u32, output: u32, kernel: u32, moves: vec3<u32>) -> vec4<u32> {
  // Places count from the start of the padding.
  let base = window * moves.x;
  let first = steps(base, moves.y, kernel, moves.z);
  let end = steps(base, input + moves.y, kernel, moves.z);
  let padded = steps(base, input + 2u * moves.y, kernel, moves.z);
  let counted = select(end - first, padded, p.rest.z != 0u);
  return vec4(base + first * moves.z - moves.y, moves.z, end - first, counted);
}

// The number of elements of a window from `base` that lie before a place.
fn steps(base: u32, place: u32, kernel: u32, dilation: u32) -> u32 {
  var count = max(place, base) - base;
  if (DILATED) {
    count = (count + dilation - 1u) / dilation;
  }
  return min(count, kernel);
}

// The windows that may contain a place: the first one, and the end.
fn holders(place: u32, input: u32, output: u32, kernel: u32, moves: vec3<u32>) -> vec2<u32> {
  let at = place + moves.y;
  let reach = (kernel - 1u) * moves.z + 1u;
  let first = (max(at + 1u, reach) - reach + moves.x - 1u) / moves.x;
  return vec2(first, min(at / moves.x + 1u, output));
}

//# adaptive
// Windows of nearly equal size that cover the plane together.
fn span(window: u32, input: u32, output: u32, kernel: u32, moves: vec3<u32>) -> vec4<u32> {
  let first = window * input / output;
  let count = ((window + 1u) * input + output - 1u) / output - first;
  return vec4(first, 1u, count, count);
}

fn holders(place: u32, input: u32, output: u32, kernel: u32, moves: vec3<u32>) -> vec2<u32> {
  return vec2(place * output / input, ((place + 1u) * output + input - 1u) / input);
}

//# forward
fn element(index: u32) -> R {
  let rows = rows_of(index / p.kernel.x % p.planes.w);
  let columns = columns_of(index % p.kernel.x);
  let plane = index / (p.kernel.x * p.planes.w);
  return folded(index, p.margin.w + plane * p.planes.y * p.planes.z, rows, columns);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  let elements = p.planes.x * p.planes.w * p.kernel.x;
  if (first >= elements) { return; }
  let at = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(elements - 1u));
  y_put4(first, vec4<R>(element(at.x), element(at.y), element(at.z), element(at.w)));
}

//# mean
alias R = f32;
fn folded(window: u32, start: u32, rows: vec4<u32>, columns: vec4<u32>) -> R {
  var sum = 0.0;
  var of_row = 0.0;
  var row = start + rows.x * p.planes.z + columns.x;
  var column = 0u;
  for (var left = rows.z * columns.z; left > 0u; left--) {
    of_row += x_get(row + column * columns.y);
    column++;
    if (column == columns.z) {
      sum += of_row;
      of_row = 0.0;
      row += rows.y * p.planes.z;
      column = 0u;
    }
  }
  return sum / divisor(rows.w, columns.w);
}

//# maximum
alias R = f32;
fn folded(window: u32, start: u32, rows: vec4<u32>, columns: vec4<u32>) -> R {
  return x_get(start + place_of_maximum(start, rows, columns));
}

//# place
alias R = u32;
fn folded(window: u32, start: u32, rows: vec4<u32>, columns: vec4<u32>) -> R {
  return place_of_maximum(start, rows, columns);
}

//# position
alias R = u32;
fn folded(window: u32, start: u32, rows: vec4<u32>, columns: vec4<u32>) -> R {
  return position_of_maximum(start, rows, columns);
}

//# chosen
// The element at a position that is given.
alias R = f32;
fn folded(window: u32, start: u32, rows: vec4<u32>, columns: vec4<u32>) -> R {
  return x_get(start + place_of(g_get(p.rest.x + window), rows, columns));
}

//# places
// The place in the plane of a position in a window, which counts the window's elements in the
// plane. A window without any has the place 0.
fn place_of(position: u32, rows: vec4<u32>, columns: vec4<u32>) -> u32 {
  if (rows.z * columns.z == 0u) { return 0u; }
  let row = position / columns.z;
  let column = position - row * columns.z;
  return (rows.x + row * rows.y) * p.planes.z + columns.x + column * columns.y;
}

//# search
fn place_of_maximum(start: u32, rows: vec4<u32>, columns: vec4<u32>) -> u32 {
  return place_of(position_of_maximum(start, rows, columns), rows, columns);
}

// The position of a window's maximum: the first maximum, or the last NaN.
fn position_of_maximum(start: u32, rows: vec4<u32>, columns: vec4<u32>) -> u32 {
  var highest = 0u;
  var found = 0u;
  var row = start + rows.x * p.planes.z + columns.x;
  var column = 0u;
  for (var position = 0u; position < rows.z * columns.z; position++) {
    let key = key_of(bitcast<u32>(x_get(row + column * columns.y)));
    if (key > highest || key == 0xffffffffu) {
      highest = key;
      found = position;
    }
    column++;
    if (column == columns.z) {
      row += rows.y * p.planes.z;
      column = 0u;
    }
  }
  return found;
}

//# gradient
fn element(index: u32) -> f32 {
  let across = index % p.planes.z;
  let down = index / p.planes.z % p.planes.y;
  let plane = index / (p.planes.z * p.planes.y);
  let y = holders(down, p.planes.y, p.planes.w, p.kernel.y, vec3(p.kernel.w, p.margin.y, p.dilation.x));
  let x = holders(across, p.planes.z, p.kernel.x, p.kernel.z, vec3(p.margin.x, p.margin.z, p.dilation.y));
  var sum = 0.0;
  var wy = y.x;
  var wx = x.x;
  var rows = rows_of(wy);
  for (var left = (max(y.y, y.x) - y.x) * (max(x.y, x.x) - x.x); left > 0u; left--) {
    let columns = columns_of(wx);
    if (is_in(down, rows) && is_in(across, columns)) {
      let window = (plane * p.planes.w + wy) * p.kernel.x + wx;
      sum += share(window, rows, columns, down * p.planes.z + across, g_get(p.rest.x + window));
    }
    wx++;
    if (wx == x.y) {
      wx = x.x;
      wy++;
      rows = rows_of(wy);
    }
  }
  return sum;
}

// A dilated window skips the places between its elements.
fn is_in(place: u32, window: vec4<u32>) -> bool {
  return !DILATED || (place >= window.x && (place - window.x) % window.y == 0u);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let first = 4u * (id.x + id.y * groups.x * 64u);
  let elements = p.planes.x * p.planes.y * p.planes.z;
  if (first >= elements) { return; }
  let at = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(elements - 1u));
  y_put4(first, vec4(element(at.x), element(at.y), element(at.z), element(at.w)));
}

//# share_of_mean
fn share(window: u32, rows: vec4<u32>, columns: vec4<u32>, own: u32, g: f32) -> f32 {
  return g / divisor(rows.w, columns.w);
}

//# share_of_position
// The position that x gives gets the whole gradient of a window.
fn share(window: u32, rows: vec4<u32>, columns: vec4<u32>, own: u32, g: f32) -> f32 {
  return select(0.0, g, place_of(x_get(p.margin.w + window), rows, columns) == own);
}
