// A tile of C in the registers of one subgroup, from operands that were packed: every load is whole
// and next to the last one, whatever the operands looked like. ${rows} rows, and ${vec4s} vec4s of columns a
// lane. Products of four steps of k are added up before they are added to an accumulator: each
// touch of an accumulator is a load, a selection and a store where loops are masked.

@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  ${place}
  let row = tile_m * ${rows}u;
  let column = tile_n * ${tile_n}u + lane * 4u;
  let steps = (p.size.z + 3u) / 4u;
${prepare}
  for (var k = 0u; k < steps; k++) {
${step}
  }
  let c_start = start_c(matrix);
${finish}
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
