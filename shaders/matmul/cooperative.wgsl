// A tile of C by cooperative matrices: ${tile_m} rows by ${tile_n} columns, ${depth} steps of k at
// a time. ${threads} threads load halves of A and B into workgroup memory. Each subgroup multiplies
// squares of ${size} by ${size} and accumulates ${down} by ${across} squares of C in f32. Meanwhile
// the vec4s of the next steps are loaded into registers. Each line in workgroup memory is padded by
// eight halves, so that the rows of a square do not share banks.

var<workgroup> a_tile: array<vec4<f16>, ${a_len}>;
var<workgroup> b_tile: array<vec4<f16>, ${b_len}>;
// One square of C for each subgroup. How its lanes hold a cooperative matrix is not specified.
var<workgroup> squares: array<f32, ${subgroups * size * size}>;

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let tiles_n = (p.size.y + ${tile_n}u - 1u) / ${tile_n}u;
  let tiles_m = (p.size.x + ${tile_m}u - 1u) / ${tile_m}u;
  let index = linear(group, groups);
  // The compiler requires uniform control flow. So workgroups past the last matrix do not return:
  // they compute rows past its end, which are not stored.
  let matrix = min(index / (tiles_m * tiles_n), p.size.w - 1u);
  let is_past = index / (tiles_m * tiles_n) > matrix;
  let tile_row = select((index / tiles_n % tiles_m) * ${tile_m}u, p.size.x, is_past);
  let tile_column = (index % tiles_n) * ${tile_n}u;
  let own_row = subgroup / ${beside}u * ${down * size}u;
  let own_column = subgroup % ${beside}u * ${across * size}u;
  let a_start = start_a(matrix);
  let b_start = start_b(matrix);
${prepare}
  //% for r in 0..down
  //%   for c in 0..across
  var acc_${r}_${c} = coop_mat${size}x${size}<f32, C>();
  //%   end
  //% end
  for (var k = 0u; k < p.size.z; k += ${depth}u) {
${share}
    workgroupBarrier();
    if (k + ${depth}u < p.size.z) {
${ahead}
    }
    //% for d in 0..depth / size
    //%   let deep = d * size
    //%   for r in 0..down
    //%     if a_along_k
    let x_${deep}_${r} = coopLoadT<coop_mat${size}x${size}<f16, A>>(&a_tile[(own_row + ${r * size}u) * ${a_stride}u + ${deep / 4}u], ${a_stride}u);
    //%     else
    let x_${deep}_${r} = coopLoad<coop_mat${size}x${size}<f16, A>>(&a_tile[own_row / 4u + ${deep * a_stride + r * size / 4}u], ${a_stride}u);
    //%     end
    //%   end
    //%   for c in 0..across
    //%     if b_along_k
    let y_${deep}_${c} = coopLoad<coop_mat${size}x${size}<f16, B>>(&b_tile[(own_column + ${c * size}u) * ${b_stride}u + ${deep / 4}u], ${b_stride}u);
    //%     else
    let y_${deep}_${c} = coopLoadT<coop_mat${size}x${size}<f16, B>>(&b_tile[own_column / 4u + ${deep * b_stride + c * size / 4}u], ${b_stride}u);
    //%     end
    //%   end
    //%   for r in 0..down
    //%     for c in 0..across
    acc_${r}_${c} = coopMultiplyAdd(x_${deep}_${r}, y_${deep}_${c}, acc_${r}_${c});
    //%     end
    //%   end
    //% end
    workgroupBarrier();
  }
  let c_start = start_c(matrix);
  let square = subgroup * ${size * size}u;
  //% for r in 0..down
  //%   for c in 0..across
  coopStoreT(acc_${r}_${c}, &squares[square], ${size}u);
  workgroupBarrier();
  put(c_start, square, lane, tile_row + own_row + ${r * size}u, tile_column + own_column + ${c * size}u);
  workgroupBarrier();
  //%   end
  //% end
}

// The lanes of a subgroup store its square, whose first element is at that row and column.
fn put(c_start: u32, square: u32, lane: u32, row: u32, column: u32) {
  for (var vec4_index = lane; vec4_index < ${size * size / 4}u; vec4_index += ${lanes}u) {
    let i = square + vec4_index * 4u;
    let v = vec4(squares[i], squares[i + 1u], squares[i + 2u], squares[i + 3u]);
    let at_row = row + vec4_index / ${size / 4}u;
    store(c_start + at_row * p.rest.y, at_row, column + vec4_index % ${size / 4}u * 4u, v);
  }
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
