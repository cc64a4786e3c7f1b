// A tile of C in the registers of one subgroup, from packed operands: every load is a whole vec4
// and adjacent to the one before. The tile has ${rows} rows, and ${vec4s} vec4s of columns a lane.
// The products of four steps of k are summed before they are added to an accumulator. Where loops
// are masked, each access of an accumulator costs a load, a selection and a store.

@compute @workgroup_size(${lanes})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  ${place}
  let row = tile_m * ${rows}u;
  let column = tile_n * ${width * vec4s}u + lane * 4u;
  let steps = (p.size.z + 3u) / 4u;
  //% for h in 0..rows / width
  let a_${h} = (matrix * p.a.x + min(row / ${width}u + ${h}u, (p.size.x - 1u) / ${width}u) * steps) * ${width * 4}u + lane * 4u;
  //% end
  //% for q in 0..vec4s
  let b_${q} = (matrix * p.b.x + min(column / ${width}u + ${q}u, (p.size.y - 1u) / ${width}u) * steps) * ${width * 4}u + lane * 4u;
  //%   if is_grouped
  //%     for c in 0..4
  let of_${q}_${c} = scale_line(column + ${q * width + c}u);
  //%     end
  //%   end
  //% end
  //% for r in 0..rows
  //%   for q in 0..vec4s
  var acc_${r}_${q} = vec4<f32>();
  //%   end
  //% end
  for (var k = 0u; k < steps; k++) {
    //% for h in 0..rows / width
    //%   for t in 0..4
    let g_${h}_${t} = a_get4(a_${h} + k * ${width * 4}u + ${t * width}u);
    //%   end
    //% end
    //% for q in 0..vec4s
    //%   for c in 0..4
    let w_${q}_${c} = $b.scaled(b_get4(b_${q} + k * ${width * 4}u + ${c * width}u), of_${q}_${c}, k * 4u);
    //%   end
    //%   for i in 0..4
    let y_${q}_$lane(i) = vec4($join(c in 0..4, w_${q}_${c}.$lane(i)));
    //%   end
    //% end
    //% for r in 0..rows
    //%   let line = r % width
    let x_${r} = subgroupBroadcast(g_${r / width}_${line % 4}, ${line / 4}u);
    //%   for q in 0..vec4s
    acc_${r}_${q} += (x_${r}.x * y_${q}_x + x_${r}.y * y_${q}_y) + (x_${r}.z * y_${q}_z + x_${r}.w * y_${q}_w);
    //%   end
    //% end
  }
  let c_start = start_c(matrix);
  //% for r in 0..rows
  let c_${r} = c_start + (row + ${r}u) * p.rest.y;
  //%   for q in 0..vec4s
  store(c_${r}, row + ${r}u, column + ${q * width}u, acc_${r}_${q});
  //%   end
  //% end
}

fn store(at: u32, row: u32, column: u32, product: vec4<f32>) {
  if (row < p.size.x && column < p.size.y) { ${store} }
}
