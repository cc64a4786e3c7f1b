// ${rows} rows of x times four rows of blocks. The ${lanes} invocations of a workgroup share out
// the groups of 32 elements, and add their sums at the end. Rows past the last one repeat it, and
// are not stored.

struct Params {
  // Rows of x and of w, and elements of both.
  m: u32,
  n: u32,
  k: u32,
  // The first element of x, the first byte of w, and the bytes of its rows.
  x_start: u32,
  w_start: u32,
  row_bytes: u32,
}

//% if !subgroups
var<workgroup> sums: array<vec4<f32>, ${lanes}>;
//% end

@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let tiles = (p.n + 3u) / 4u;
  let tile = group.x + group.y * groups.x;
  let row = tile / tiles * ${rows}u;
  let column = tile % tiles * 4u;
  if (row >= p.m) { return; }
  //% for r in 0..rows
  let x_${r} = p.x_start + min(row + ${r}u, p.m - 1u) * p.k;
  var acc_${r} = vec4<f32>();
  //% end
  //% for c in 0..4
  let w_${c} = p.w_start + min(column + ${c}u, p.n - 1u) * p.row_bytes;
  //% end
  for (var group_of_k = local; group_of_k < p.k / 32u; group_of_k += ${lanes}u) {
    let g = group_of_k % ${groups}u;
    let block = group_of_k / ${groups}u * ${bytes}u;
    //% for h in 0..2
    //%   for r in 0..rows
    //%     for j in 0..4
    let x_${r}_${h}_${j} = x_get4(x_${r} + group_of_k * 32u + ${16 * h + 4 * j}u);
    //%     end
    //%     if has_offset
    let total_${r}_${h} = total(x_${r}_${h}_0 + x_${r}_${h}_1 + x_${r}_${h}_2 + x_${r}_${h}_3);
    //%     end
    //%   end
    //% end
    //% for c in 0..4
    {
      let at = w_${c} + block;
      $group
      //% for h in 0..2
      //%   for r in 0..rows
      let sum_${r}_${h} = total(
        q_${4 * h} * x_${r}_${h}_0 + q_${4 * h + 1} * x_${r}_${h}_1
        + q_${4 * h + 2} * x_${r}_${h}_2 + q_${4 * h + 3} * x_${r}_${h}_3);
      //%     if has_offset
      acc_${r}[${c}] += by_${h}.x * sum_${r}_${h} + by_${h}.y * total_${r}_${h};
      //%     else
      acc_${r}[${c}] += by_${h}.x * sum_${r}_${h};
      //%     end
      //%   end
      //% end
    }
    //% end
  }
  //% for r in 0..rows
  let all_${r} = added(acc_${r}, local);
  //% end
  if (local == 0u) {
    //% for r in 0..rows
    store(row + ${r}u, column, all_${r});
    //% end
  }
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

//% if subgroups
fn added(v: vec4<f32>, local: u32) -> vec4<f32> { return subgroupAdd(v); }
//% else
fn added(v: vec4<f32>, local: u32) -> vec4<f32> {
  sums[local] = v;
  workgroupBarrier();
  for (var reach = ${lanes}u / 2u; reach > 0u; reach /= 2u) {
    if (local < reach) { sums[local] += sums[local + reach]; }
    workgroupBarrier();
  }
  let sum = sums[0];
  workgroupBarrier();
  return sum;
}
//% end

fn store(row: u32, column: u32, v: vec4<f32>) {
  if (row >= p.m) { return; }
  let at = row * p.n + column;
  //% if vec4s
  y_put4(at, v);
  //% else
  y_put(at, v.x);
  if (column + 1u < p.n) { y_put(at + 1u, v.y); }
  if (column + 2u < p.n) { y_put(at + 2u, v.z); }
  if (column + 3u < p.n) { y_put(at + 3u, v.w); }
  //% end
}
