// ${rows} rows of x times ${columns} rows of blocks. The ${lanes} invocations of a workgroup share
// out the elements, ${span} at a time, and add their sums at the end. Rows past the last one repeat
// it, and are not stored.

struct Params {
  // Rows of x and of w, and elements of both.
  m: u32,
  n: u32,
  k: u32,
  // The first element of x, the first byte of w, and the bytes of its rows.
  x_start: u32,
  w_start: u32,
  row_bytes: u32,
  // The first element of the residual.
  residual_start: u32,
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
  let tiles = (p.n + ${columns - 1}u) / ${columns}u;
  let tile = group.x + group.y * groups.x;
  let row = tile / tiles * ${rows}u;
  let column = tile % tiles * ${columns}u;
  if (row >= p.m) { return; }
  //% for r in 0..rows
  let x_${r} = p.x_start + min(row + ${r}u, p.m - 1u) * p.k;
  //%   for v in 0..columns / 4
  var acc_${r}_${v} = vec4<f32>();
  //%   end
  //% end
  //% for c in 0..columns
  let w_${c} = p.w_start + min(column + ${c}u, p.n - 1u) * p.row_bytes;
  //% end
  for (var part = local; part < p.k / ${span}u; part += ${lanes}u) {
    let g = part % ${spans}u;
    let block = part / ${spans}u * ${bytes}u;
    //% for h in 0..span / 16
    //%   for r in 0..rows
    //%     for j in 0..4
    let x_${r}_${h}_${j} = x_get4(x_${r} + part * ${span}u + ${16 * h + 4 * j}u);
    //%     end
    //%     if has_offset
    let total_${r}_${h} = total(x_${r}_${h}_0 + x_${r}_${h}_1 + x_${r}_${h}_2 + x_${r}_${h}_3);
    //%     end
    //%     for j in 0..4
    let of_${r}_${h}_${j} = x_${r}_${h}_${j}${units};
    //%     end
    //%   end
    //% end
    //% for c in 0..columns
    {
      let at = w_${c} + block;
      $group
      //% for h in 0..span / 16
      //%   for r in 0..rows
      let sum_${r}_${h} = total(
        q_${4 * h} * of_${r}_${h}_0 + q_${4 * h + 1} * of_${r}_${h}_1
        + q_${4 * h + 2} * of_${r}_${h}_2 + q_${4 * h + 3} * of_${r}_${h}_3);
      //%     if has_offset
      acc_${r}_${c / 4}[${c % 4}] += by_${h}.x * sum_${r}_${h} + by_${h}.y * total_${r}_${h};
      //%     else
      acc_${r}_${c / 4}[${c % 4}] += by_${h}.x * sum_${r}_${h};
      //%     end
      //%   end
      //% end
    }
    //% end
  }
  //% for r in 0..rows
  //%   for v in 0..columns / 4
  let all_${r}_${v} = added(acc_${r}_${v}, local);
  //%   end
  //% end
  if (local == 0u) {
    //% for r in 0..rows
    //%   for v in 0..columns / 4
    store(row + ${r}u, column + ${4 * v}u, all_${r}_${v});
    //%   end
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
  if (row >= p.m || column >= p.n) { return; }
  let at = row * p.n + column;
  //% if residual
  y_put4(at, v + residual_get4(p.residual_start + at));
  //% else if vec4s
  y_put4(at, v);
  //% else
  y_put(at, v.x);
  if (column + 1u < p.n) { y_put(at + 1u, v.y); }
  if (column + 2u < p.n) { y_put(at + 2u, v.z); }
  if (column + 3u < p.n) { y_put(at + 3u, v.w); }
  //% end
}
