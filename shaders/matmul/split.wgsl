// Few rows of C (${rows}) on a software adapter, where a load costs the same whatever a lane reads: the lanes
// of a subgroup split k, and each reads its own steps of A and of ${columns} columns of B. So nobody loads what
// another has loaded, a row of A is loaded as often as it must, and no lane computes what nobody asked for. Their sums
// meet at the end. Rows and columns past the edge read what lies at the edge, and are not stored.

@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  ${place}
  let row = tile_m * ${rows}u;
  let column = tile_n * ${columns}u;
  let last_row = p.size.x - 1u;
  let last_column = p.size.y - 1u;
  let a_line = ${a_line};
  let b_line = ${b_line};
  let a_start = start_a(matrix);
  let b_start = start_b(matrix);
  let whole = p.size.z / ${depth}u * ${depth}u;
${prepare}
  for (var k = lane * ${depth}u; k < whole; k += ${stride}u) {
${step}
  }
  for (var k = whole + lane; k < p.size.z; k += ${lanes}u) {
${tail}
  }
${sums}
  let c_start = start_c(matrix);
  if (lane == 0u) {
${finish}
  }
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
