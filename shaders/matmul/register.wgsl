// A tile of C in registers, straight from global memory: no workgroup memory, no barrier. Every
// thread owns ${rows} rows of ${vec4s} vec4s. Four steps of k are taken at a time, and an
// accumulator is touched four times in a row. Rows and columns past the edge read what lies at
// the edge, and are not stored.
//
// Where lanes can broadcast to each other, they are the workgroup: they lie side by side along the
// columns, and each loads a share of A for all.

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(${lane_builtin}) local: u32,
) {
  ${place}
  let lane = local % ${lanes}u;
  let row = tile_m * ${tile_m}u + ${row_of_thread};
  let column = tile_n * ${tile_n}u + lane * 4u;
  ${leave_early}
  let last_row = p.size.x - 1u;
  let last_column = p.size.y - 1u;
  let a_line = ${a_line};
  let b_line = ${b_line};
  let a_start = start_a(matrix);
  let b_start = start_b(matrix);
  let whole = p.size.z & ~3u;
${prepare}
  for (var k = 0u; k < whole; k += 4u) {
${step}
  }
  for (var k = whole; k < p.size.z; k++) {
${tail}
  }
  let c_start = start_c(matrix);
${finish}
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
