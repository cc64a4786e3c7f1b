// A tile of C in workgroup memory: ${tile} rows by ${tile} columns, ${depth} steps of k at a time.
// Each of 256 threads loads one block of 4 by 4, half of them from A, half from B, and computes
// ${rows} rows by ${rows} columns. Both tiles are stored as vec4s along their edge, one line for
// each k. The vec4s of a line are permuted by the block's k, so that neither writes nor reads
// conflict in a bank.

var<workgroup> a_tile: array<vec4<f32>, ${edge_vec4s * depth}>;
var<workgroup> b_tile: array<vec4<f32>, ${edge_vec4s * depth}>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tiles_n = (p.size.y + ${tile}u - 1u) / ${tile}u;
  let tiles_m = (p.size.x + ${tile}u - 1u) / ${tile}u;
  let index = linear(group, groups);
  let matrix = index / (tiles_m * tiles_n);
  if (matrix >= p.size.w) { return; }
  let tile_row = (index / tiles_n % tiles_m) * ${tile}u;
  let tile_column = (index % tiles_n) * ${tile}u;
  let loads_a = local < 128u;
  let block = local % 128u;
  let edge = select(${b_edge}, ${a_edge}, loads_a);
  let deep = select(${b_deep}, ${a_deep}, loads_a);
  let a_start = start_a(matrix);
  let b_start = start_b(matrix);
  let x_vec4 = local / 16u;
  let y_vec4 = local % 16u;
  //% for r in 0..rows
  //%   for q in 0..rows / 4
  var acc_${r}_${q} = vec4<f32>();
  //%   end
  //% end
  for (var k = 0u; k < p.size.z; k += ${depth}u) {
    let at = deep * 4u * ${edge_vec4s}u + (edge ^ deep);
    if (loads_a) {
      let v = a_block(a_start, tile_row + edge * 4u, k + deep * 4u);
      a_tile[at] = v[0];
      a_tile[at + ${edge_vec4s}u] = v[1];
      a_tile[at + ${edge_vec4s}u * 2u] = v[2];
      a_tile[at + ${edge_vec4s}u * 3u] = v[3];
    } else {
      let v = b_block(b_start, tile_column + edge * 4u, k + deep * 4u);
      b_tile[at] = v[0];
      b_tile[at + ${edge_vec4s}u] = v[1];
      b_tile[at + ${edge_vec4s}u * 2u] = v[2];
      b_tile[at + ${edge_vec4s}u * 3u] = v[3];
    }
    workgroupBarrier();
    for (var kk = 0u; kk < ${depth}u; kk++) {
      let line = kk * ${edge_vec4s}u;
      let swap = kk >> 2u;
      //% for h in 0..rows / 4
      let x_${h} = a_tile[line + ((x_vec4 + ${h * 16}u) ^ swap)];
      let y_${h} = b_tile[line + ((y_vec4 + ${h * 16}u) ^ swap)];
      //% end
      //% for r in 0..rows
      //%   for q in 0..rows / 4
      acc_${r}_${q} = fma(vec4(x_${r / 4}.$lane(r)), y_${q}, acc_${r}_${q});
      //%   end
      //% end
    }
    workgroupBarrier();
  }
  let c_start = start_c(matrix);
  //% for r in 0..rows
  let row_${r} = tile_row + x_vec4 * 4u + ${r / 4 * 64 + r % 4}u;
  let c_${r} = c_start + row_${r} * p.rest.y;
  //%   for q in 0..rows / 4
  store(c_${r}, row_${r}, tile_column + y_vec4 * 4u + ${q * 64}u, acc_${r}_${q});
  //%   end
  //% end
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
