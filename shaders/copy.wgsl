// Copies elements from one view to another, unchanged or converted as by Rust's `as`.

//# same
fn op(x: A) -> Y { return x; }

//# convert
fn op(x: A) -> Y { return Y(x); }

//# reinterpret
fn op(x: A) -> Y { return bitcast<Y>(x); }

//# to_bool
fn op(x: A) -> Y { return truth(x != A(T(0))); }

//# to_bool.f32
fn op(x: A) -> Y { return truth((x != A(0.0)) | is_nan(x)); }

//# to_i32.f32
fn op(x: A) -> Y {
  let inside = vec4<i32>(clamp(x, A(-2147483648.0), A(2147483520.0)));
  return select(select(inside, Y(2147483647), x >= A(2147483648.0)), Y(0), is_nan(x));
}

//# to_u32.f32
fn op(x: A) -> Y {
  let inside = vec4<u32>(clamp(x, A(0.0), A(4294967040.0)));
  return select(select(inside, Y(4294967295u), x >= A(4294967296.0)), Y(0u), is_nan(x));
}

//# to_u8.f32
fn op(x: A) -> Y {
  return select(vec4<u32>(clamp(x, A(0.0), A(255.0))), Y(0u), is_nan(x));
}

//# to_i8.f32
fn op(x: A) -> Y {
  return select(vec4<i32>(clamp(x, A(-128.0), A(127.0))), Y(0), is_nan(x));
}

//# tile_of_grid
  let tile = group.yx;
  let batch = group.z;

//# tile_of_count
  let index = group.y * groups.x + group.x;
  if (index >= p.w0.x) { return; }
  let tiles = (p.w0.yz + vec2<u32>(${width}u - 1u, ${height}u - 1u)) / vec2<u32>(${width}u, ${height}u);
  let tile = vec2<u32>(index / tiles.y % tiles.x, index % tiles.y);
  let batch = index / tiles.y / tiles.x;

//# transpose
// Copies blocks of 4 × 4 elements of the output. A workgroup copies a tile of ${width} × ${height}
// blocks, and consecutive tiles lie below each other. Eight lanes have ${beside} blocks beside each
// other and ${below} below each other. So they read a whole cache line at once and write half of
// one. The next eight lanes write the other half. p.w0 holds the number of tiles, of blocks beside
// each other and of blocks below each other, and the output's rows. Then come the first element of
// the source, the stride of its columns, and the output's columns.
@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  ${place}
  let eight = vec2<u32>(lane / 8u % ${eighths}u, lane / 8u / ${eighths}u);
  let in_tile = eight * vec2<u32>(${beside}u, ${below}u) + vec2<u32>(lane % ${beside}u, lane % 8u / ${beside}u);
  let place = tile * vec2<u32>(${width}u, ${height}u) + in_tile;
  if (any(place >= p.w0.yz)) { return; }
  move_block(batch, place.y << 2u, place.x << 2u);
}

//# batch_at
fn batch_at(b: u32) -> u32 {
  var r = b;
  var at = 0u;
  //% for e in 0..rank
  //%   let d = rank - 1 - e
  //%   if d == 0
  at += r * $word(strides + d);
  //%   else
  at += (r % $word(dims + d)) * $word(strides + d); r = r / $word(dims + d);
  //%   end
  //% end
  return at;
}
//# rows_and_elements
// The first element of a row in the destination, and in the source.
fn row_at(row: u32) -> vec2<u32> {
  var r = row;
  var at = vec2<u32>(p.w0.y, $word(dims - 1));
  //% for e in 0..outer
  //%   let d = outer - 1 - e
  at += (r % $word(dims + d)) * vec2<u32>($word(to + d), $word(from + d)); r = r / $word(dims + d);
  //% end
  return at;
}
// Whether the element at distance `r` from a row's first belongs to the view, and its source.
fn element(r: u32, start: u32) -> vec2<u32> {
  var rest = r;
  var at = start;
  var mine = r < p.w0.w;
  var c = 0u;
  //% for d in outer..rank
  c = rest / $word(to + d); rest -= c * $word(to + d); mine = mine && c < $word(dims + d); at += c * $word(from + d);
  //% end
  return select(vec2<u32>(0u, start), vec2<u32>(1u, at), mine && rest == 0u);
}
//# transpose_vec4s
// Loads whole columns of the source and stores whole rows of the output.
fn move_block(batch: u32, row: u32, column: u32) {
  let step = p.w1.y;
  let origin = p.w1.x + batch_at(batch) + row + column * step;
  let c0 = op(x_get4(origin));
  let c1 = op(x_get4(origin + step));
  let c2 = op(x_get4(origin + 2u * step));
  let c3 = op(x_get4(origin + 3u * step));
  let width = p.w1.z;
  let to = (batch * p.w0.w + row) * width + column;
  y_put4(to, Y(c0.x, c1.x, c2.x, c3.x));
  if (row + 1u >= p.w0.w) { return; }
  y_put4(to + width, Y(c0.y, c1.y, c2.y, c3.y));
  if (row + 2u >= p.w0.w) { return; }
  y_put4(to + 2u * width, Y(c0.z, c1.z, c2.z, c3.z));
  if (row + 3u >= p.w0.w) { return; }
  y_put4(to + 3u * width, Y(c0.w, c1.w, c2.w, c3.w));
}

//# transpose_words
// Copies one row of the output after the other.
fn move_block(batch: u32, row: u32, column: u32) {
  let width = p.w1.z;
  let at = p.w1.x + batch_at(batch) + row + column * p.w1.y;
  let to = (batch * p.w0.w + row) * width + column;
  move_vec4(at, to);
  if (row + 1u >= p.w0.w) { return; }
  move_vec4(at + 1u, to + width);
  if (row + 2u >= p.w0.w) { return; }
  move_vec4(at + 2u, to + 2u * width);
  if (row + 3u >= p.w0.w) { return; }
  move_vec4(at + 3u, to + 3u * width);
}

fn move_vec4(at: u32, to: u32) {
  let step = p.w1.y;
  y_put4(to, op(A(x_get(at), x_get(at + step), x_get(at + 2u * step), x_get(at + 3u * step))));
}

//# transpose_ragged
// Writes one vec4 in each of four rows of the output. A row's first whole vec4 begins up to three
// elements after the row's start. Its last vec4 may end with elements of the next row.
fn move_block(batch: u32, row: u32, column: u32) {
  let start = p.w1.x + batch_at(batch);
  for (var k = 0u; k < 4u; k += 1u) {
    move_vec4(batch, start, row + k, column);
  }
}

fn move_vec4(batch: u32, start: u32, row: u32, column: u32) {
  let line = batch * p.w0.w + row;
  let first = line * p.w1.z;
  let c = column + ((4u - (first & 3u)) & 3u);
  if (row >= p.w0.w || c >= p.w1.z) { return; }
  let at = start + row + c * p.w1.y;
  var e = vec4<u32>(at, at + p.w1.y, at + 2u * p.w1.y, at + 3u * p.w1.y);
  if (c + 3u >= p.w1.z) {
    // Elements past the last row have no meaning.
    var next = at;
    var step = 0u;
    if (line + 1u < p.w1.w) {
      next = select(p.w1.x + batch_at(batch + 1u), start + row + 1u, row + 1u < p.w0.w);
      step = p.w1.y;
    }
    let over = vec4<u32>(c, c + 1u, c + 2u, c + 3u) - p.w1.z;
    e = select(e, next + over * step, over < vec4<u32>(4u));
  }
  y_put4(first + c, op(A(x_get(e.x), x_get(e.y), x_get(e.z), x_get(e.w))));
}

//# scatter
// Copies into a view with gaps. An invocation takes one vec4 of the destination's storage and finds
// the elements that belong to the view. Elements of any width in gaps stay unchanged. Rows never
// share a vec4, so only one invocation writes each vec4. p.w0 holds the number of invocations, the
// lowest element of the view, the vec4s of a row and the extent of a row.
fn main_of(thread: u32) {
  if (thread >= p.w0.x) { return; }
  let row = row_at(thread / p.w0.z);
  let first = (row.x & 0xfffffffcu) + ((thread % p.w0.z) << 2u);
  let e0 = element(first - row.x, row.y);
  let e1 = element(first + 1u - row.x, row.y);
  let e2 = element(first + 2u - row.x, row.y);
  let e3 = element(first + 3u - row.x, row.y);
  let mine = vec4<bool>(e0.x != 0u, e1.x != 0u, e2.x != 0u, e3.x != 0u);
  if (!any(mine)) { return; }
  let v = op(A(x_get(e0.y), x_get(e1.y), x_get(e2.y), x_get(e3.y)));
  if (all(mine)) {
    y_put4(first, v);
  } else {
    y_put4(first, select(y_get4(first), v, mine));
  }
}

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  main_of((group.y * groups.x + group.x) * 64u + lane);
}
