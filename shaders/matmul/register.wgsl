// A tile of C in registers, read from global memory: no workgroup memory, no barrier. Every thread
// owns ${rows} rows of ${vec4s} vec4s. It takes four steps of k at a time and updates each
// accumulator four times in a row. Rows and columns past the edge read the last one, and are not
// stored.
//
// Where lanes can broadcast to each other, they form the workgroup. They lie side by side along the
// columns, and each loads a share of A for all.

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  //% if lanes > 0
  @builtin(subgroup_invocation_id) local: u32,
  //% else
  @builtin(local_invocation_index) local: u32,
  //% end
) {
  ${place}
  let lane = local % ${across}u;
  //% if lanes > 0
  let row = tile_m * ${tile_m}u + 0u;
  //% else
  let row = tile_m * ${tile_m}u + (local / 8u) * ${rows}u;
  //% end
  let column = tile_n * ${tile_n}u + lane * 4u;
  ${leave_early}
  let last_row = p.size.x - 1u;
  let last_column = p.size.y - 1u;
  let a_line = ${a_line};
  let b_line = ${b_line};
  let a_start = start_a(matrix);
  let b_start = start_b(matrix);
  let whole = p.size.z & ~3u;
  //% for q in 0..vec4s
  let column_${q} = column + ${q * across * 4}u;
  //%   if b_along_k
  //%     for j in 0..4
  let b_${q}_${j} = b_start + min(column_${q} + ${j}u, last_column) * b_line;
  //%       if is_grouped
  let of_${q}_${j} = scale_line(column_${q} + ${j}u);
  //%       end
  //%     end
  //%   else
  let b_${q} = b_start + min(column_${q}, last_column & ~3u);
  //%     if !b_vec4s
  let b_${q}_over = last_column - min(column_${q}, last_column);
  //%     end
  //%   end
  //% end
  //% if lanes == 0
  //%   for t in 0..rows
  let s_${t} = a_start + min(row + ${t}u, last_row)${a_step};
  //%   end
  //%   for t in 0..row_vec4s
  let a_${t} = a_start + min(row + ${t * 4}u, last_row & ~3u);
  //%     if !a_vec4s
  let a_${t}_over = last_row - min(row + ${t * 4}u, last_row);
  //%     end
  //%   end
  //% else
  //%   for t in 0..shares_of_rows
  let s_${t} = a_start + min(row + (lane + ${t * lanes}u) % ${rows}u, last_row)${a_step};
  //%   end
  //%   if !a_along_k
  //%     for t in 0..shares_of_vec4s
  let i_${t} = (lane + ${t * lanes}u) % ${row_vec4s * 4}u;
  let a_${t} = a_start + min(row + i_${t} % ${row_vec4s}u * 4u, last_row & ~3u) + i_${t} / ${row_vec4s}u * a_line;
  //%       if !a_vec4s
  let a_${t}_over = last_row - min(row + i_${t} % ${row_vec4s}u * 4u, last_row);
  //%       end
  //%     end
  //%   end
  //% end
  //% for r in 0..rows
  //%   for q in 0..vec4s
  var acc_${r}_${q} = vec4<f32>();
  //%   end
  //% end
  for (var k = 0u; k < whole; k += 4u) {
    //% for q in 0..vec4s
    //%   if b_along_k
    //%     for j in 0..4
    let w_${q}_${j} = $b.scaled($b.vec4(b_${q}_${j} + $b.along(k)), of_${q}_${j}, k);
    //%     end
    //%     for kk in 0..4
    let y_${q}_${kk} = vec4($join(j in 0..4, w_${q}_${j}.$lane(kk)));
    //%     end
    //%   else
    //%     for kk in 0..4
    let y_${q}_${kk} = $b.within(b_${q} + (k + ${kk}u) * b_line, b_${q}_over);
    //%     end
    //%   end
    //% end
    //% if a_along_k
    //%   if lanes > 0
    //%     for t in 0..shares_of_rows
    let g_${t} = $a.vec4(s_${t} + $a.along(k));
    //%     end
    //%   end
    //%   for r in 0..rows
    //%     if lanes == 0
    let x_${r} = $a.vec4(s_${r} + $a.along(k));
    //%     else
    let x_${r} = subgroupBroadcast(g_${r / lanes}, ${r % lanes}u);
    //%     end
    //%     for q in 0..vec4s
    //%       if lanes > 0
    acc_${r}_${q} += (x_${r}.x * y_${q}_0 + x_${r}.y * y_${q}_1) + (x_${r}.z * y_${q}_2 + x_${r}.w * y_${q}_3);
    //%       else
    //%         for kk in 0..4
    acc_${r}_${q} = fma(vec4(x_${r}.$lane(kk)), y_${q}_${kk}, acc_${r}_${q});
    //%         end
    //%       end
    //%     end
    //%   end
    //% else
    //%   if lanes > 0
    //%     for t in 0..shares_of_vec4s
    let g_${t} = $a.within(a_${t} + k * a_line, a_${t}_over);
    //%     end
    //%   end
    //%   for v in 0..row_vec4s
    //%     for kk in 0..4
    //%       let item = kk * row_vec4s + v
    //%       if lanes == 0
    let x_${v}_${kk} = $a.within(a_${v} + (k + ${kk}u) * a_line, a_${v}_over);
    //%       else
    let x_${v}_${kk} = subgroupBroadcast(g_${item / lanes}, ${item % lanes}u);
    //%       end
    //%     end
    //%     for i in 0..rows_of_vec4
    //%       let r = v * 4 + i
    //%       for q in 0..vec4s
    //%         if lanes > 0
    acc_${r}_${q} += (x_${v}_0.$lane(i) * y_${q}_0 + x_${v}_1.$lane(i) * y_${q}_1) + (x_${v}_2.$lane(i) * y_${q}_2 + x_${v}_3.$lane(i) * y_${q}_3);
    //%         else
    //%           for kk in 0..4
    acc_${r}_${q} = fma(vec4(x_${v}_${kk}.$lane(i)), y_${q}_${kk}, acc_${r}_${q});
    //%           end
    //%         end
    //%       end
    //%     end
    //%   end
    //% end
  }
  for (var k = whole; k < p.size.z; k++) {
    //% for q in 0..vec4s
    //%   if b_along_k
    let y_${q} = vec4($join(j in 0..4, $b.scaled(b_get(b_${q}_${j} + $b.along(k)), of_${q}_${j}, k)));
    //%   else
    let y_${q} = $b.within(b_${q} + k * b_line, b_${q}_over);
    //%   end
    //% end
    //% if lanes > 0
    //%   for t in 0..shares_of_rows
    let g_${t} = a_get(s_${t} + ${a_k});
    //%   end
    //% end
    //% for r in 0..rows
    //%   if lanes == 0
    let x_${r} = vec4(a_get(s_${r} + ${a_k}));
    //%   else
    let x_${r} = vec4(subgroupBroadcast(g_${r / lanes}, ${r % lanes}u));
    //%   end
    //%   for q in 0..vec4s
    acc_${r}_${q} = fma(x_${r}, y_${q}, acc_${r}_${q});
    //%   end
    //% end
  }
  let c_start = start_c(matrix);
  //% for r in 0..rows
  let c_${r} = c_start + (row + ${r}u) * p.rest.y;
  //%   for q in 0..vec4s
  store(c_${r}, row + ${r}u, column_${q}, acc_${r}_${q});
  //%   end
  //% end
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
