// Few rows of C (${rows}) on a software adapter, where a load costs the same whatever a lane reads.
// The lanes of a subgroup split k: each reads its own steps of A and of ${columns} columns of B. So
// no element is loaded twice in a tile, and no lane computes unused elements. The lanes' sums are
// added at the end. Rows and columns past the edge read the last one, and are not stored.

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
  //% for r in 0..rows
  let a_${r} = a_start + min(row + ${r}u, last_row)${a_step};
  //% end
  //% if b_along_k
  //%   for j in 0..columns
  let b_${j} = b_start + min(column + ${j}u, last_column) * b_line;
  //%     if is_grouped
  let of_${j} = scale_line(column + ${j}u);
  //%     end
  //%   end
  //% else
  //%   for q in 0..columns / 4
  //%     if vec8s && q % 2 == 0
  let b_${q} = b_start + min(column + ${q * 4}u, last_column & ~7u);
  //%     else
  let b_${q} = b_start + min(column + ${q * 4}u, last_column & ~3u);
  //%     end
  //%     if !b_vec4s
  let b_${q}_over = last_column - min(column + ${q * 4}u, last_column);
  //%     end
  //%   end
  //% end
  //% for r in 0..rows
  //%   for q in 0..columns / 4
  var acc_${r}_${q} = vec4<f32>();
  //%   end
  //% end
  for (var k = lane * ${depth}u; k < whole; k += ${depth * lanes}u) {
    //% for r in 0..rows
    //%   for h in 0..depth / 4
    //%     if a_along_k
    let x_${r}_${h} = $a.vec4(a_${r} + $a.along((k + ${h * 4}u)));
    //%     else
    let x_${r}_${h} = vec4($join(i in 0..4, a_get(a_${r} + (k + ${h * 4 + i}u) * a_line)));
    //%     end
    //%   end
    //% end
    //% if b_along_k
    //%   for j in 0..columns
    //%     if vec8s
    let both_y_${j}_0 = b_get8(b_${j} + $b.along((k + 0u)));
    let y_${j}_0 = both_y_${j}_0[0];
    let y_${j}_1 = both_y_${j}_0[1];
    //%     else
    let y_${j}_0 = $b.vec4(b_${j} + $b.along((k + 0u)));
    let y_${j}_1 = $b.vec4(b_${j} + $b.along((k + 4u)));
    //%     end
    //%     for r in 0..rows
    acc_${r}_${j / 4}[${j % 4}] += $b.scaled(total(x_${r}_0 * y_${j}_0 + x_${r}_1 * y_${j}_1), of_${j}, k);
    //%     end
    //%   end
    //% else
    //%   for kk in 0..4
    //%     for q in 0..columns / 4
    //%       if !vec8s
    let y_${q}_${kk} = $b.within(b_${q} + (k + ${kk}u) * b_line, b_${q}_over);
    //%       else if q % 2 == 0
    let both_y_${q}_${kk} = b_get8(b_${q} + (k + ${kk}u) * b_line);
    let y_${q}_${kk} = both_y_${q}_${kk}[0];
    let y_${q + 1}_${kk} = both_y_${q}_${kk}[1];
    //%       end
    //%     end
    //%   end
    //%   for r in 0..rows
    //%     for q in 0..columns / 4
    acc_${r}_${q} += (x_${r}_0.x * y_${q}_0 + x_${r}_0.y * y_${q}_1) + (x_${r}_0.z * y_${q}_2 + x_${r}_0.w * y_${q}_3);
    //%     end
    //%   end
    //% end
  }
  for (var k = whole + lane; k < p.size.z; k += ${lanes}u) {
    //% for r in 0..rows
    let x_${r} = a_get(a_${r} + ${a_k});
    //% end
    //% if b_along_k
    //%   for j in 0..columns
    let y_${j} = $b.scaled(b_get(b_${j} + $b.along(k)), of_${j}, k);
    //%     for r in 0..rows
    acc_${r}_${j / 4}[${j % 4}] += x_${r} * y_${j};
    //%     end
    //%   end
    //% else
    //%   for q in 0..columns / 4
    let y_${q} = $b.within(b_${q} + k * b_line, b_${q}_over);
    //%     for r in 0..rows
    acc_${r}_${q} += x_${r} * y_${q};
    //%     end
    //%   end
    //% end
  }
  //% for r in 0..rows
  //%   for q in 0..columns / 4
  let sum_${r}_${q} = subgroupAdd(acc_${r}_${q});
  //%   end
  //% end
  let c_start = start_c(matrix);
  if (lane == 0u) {
    //% for r in 0..rows
    //%   for q in 0..columns / 4
    store(c_start + (row + ${r}u) * p.rest.y, row + ${r}u, column + ${q * 4}u, sum_${r}_${q});
    //%   end
    //% end
  }
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
