// Few rows of C (${rows}) on a GPU: the threads share out the columns and k. Of 256 threads,
// ${across} lie side by side along the columns, with a vec4 each. The others split k, and their
// sums are added in workgroup memory. Neighbouring threads read neighbouring vec4s of B.

var<workgroup> sums: array<vec4<f32>, 256>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tiles_n = (p.size.y + ${across}u * 4u - 1u) / (${across}u * 4u);
  let tiles_m = (p.size.x + ${rows}u - 1u) / ${rows}u;
  let tile = linear(group, groups);
  let matrix = tile / (tiles_m * tiles_n);
  if (matrix >= p.size.w) { return; }
  let row = (tile / tiles_n % tiles_m) * ${rows}u;
  //% if b_along_k
  let part = local % 64u;
  let column = ((tile % tiles_n) * ${across}u + local / 64u) * 4u;
  //% else
  let part = local / 16u;
  let column = ((tile % tiles_n) * ${across}u + local % 16u) * 4u;
  //% end
  let a_start = start_a(matrix);
  let b_start = start_b(matrix);
  //% for r in 0..rows
  var acc_${r} = vec4<f32>();
  //% end
  for (var k = part * 4u; k < p.size.z; k += ${256 / across}u * 4u) {
    let y = b_block(b_start, column, k);
    //% for r in 0..rows
    acc_${r} += y * a_run(a_start, row + ${r}u, k);
    //% end
  }
  let c_start = start_c(matrix);
  //% for r in 0..rows
  let sum_${r} = total(acc_${r}, local, part);
  if (part == 0u) { store(c_start + (row + ${r}u) * p.rest.y, row + ${r}u, column, sum_${r}); }
  //% end
}

// The sum over the parts of k, in the thread of part 0.
fn total(v: vec4<f32>, local: u32, part: u32) -> vec4<f32> {
  sums[local] = v;
  workgroupBarrier();
  for (var reach = ${256 / across}u / 2u; reach > 0u; reach /= 2u) {
    if (part < reach) { sums[local] += sums[local + reach * ${part_step}u]; }
    workgroupBarrier();
  }
  let sum = sums[local];
  workgroupBarrier();
  return sum;
}

// Four steps of k of one row of A, with zeros past the end.
fn a_run(base: u32, row: u32, k: u32) -> vec4<f32> {
  let at = base + min(row, p.size.x - 1u) * p.strides.x + k * p.strides.y;
  //% if a_along_k && !a_stepped
  if (k + 4u <= p.size.z) { return $a.vec4(at); }
  //% else
  if (k + 4u <= p.size.z) { return vec4(a_get(at), a_get(at + p.strides.y), a_get(at + 2u * p.strides.y), a_get(at + 3u * p.strides.y)); }
  //% end
  var v = vec4<f32>();
  if (k < p.size.z) { v.x = a_get(at); }
  if (k + 1u < p.size.z) { v.y = a_get(at + p.strides.y); }
  if (k + 2u < p.size.z) { v.z = a_get(at + 2u * p.strides.y); }
  return v;
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
