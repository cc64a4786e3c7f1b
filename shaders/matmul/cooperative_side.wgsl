// How a thread loads one operand in the variant by cooperative matrices.

//# prepare
  //% for t in 0..loads
  //%   let first = t * threads
  //%   if along_k
  let ${side}_edge_${t} = ${tile_start} + (local + ${first}u) / ${line_vec4s}u;
  let ${side}_deep_${t} = (local + ${first}u) % ${line_vec4s}u * 4u;
  //%   else
  let ${side}_edge_${t} = ${tile_start} + (local + ${first}u) % ${line_vec4s}u * 4u;
  let ${side}_deep_${t} = (local + ${first}u) / ${line_vec4s}u;
  //%   end
  let ${side}_at_${t} = (local + ${first}u) / ${line_vec4s}u * ${stride}u + (local + ${first}u) % ${line_vec4s}u;
  var ${side}_vec4_${t} = ${side}_halves(${side}_start, ${side}_edge_${t}, ${side}_deep_${t});
  //% end

//# share
    //% for t in 0..loads
    ${side}_tile[${side}_at_${t}] = ${side}_vec4_${t};
    //% end

//# ahead
      //% for t in 0..loads
      ${side}_vec4_${t} = ${side}_halves(${side}_start, ${side}_edge_${t}, k + ${depth}u + ${side}_deep_${t});
      //% end

//# halves

fn ${side}_halves(base: u32, edge: u32, k: u32) -> vec4<f16> {
  //% if along_k
  let at = base + min(edge, ${last}) * ${line} + $side.along(k);
  if (k + 4u <= p.size.z) { return vec4<f16>($side.vec4(at)); }
  var v = vec4<f16>();
  for (var i = 0u; k + i < p.size.z; i++) { v[i] = f16(${side}_get(at + $side.along(i))); }
  return v;
  //% else
  if (k >= p.size.z) { return vec4<f16>(); }
  let at = base + min(edge, (${last}) & ~3u) + k * ${line};
  //%   if !vec4s
  let at_over = (${last}) - min(edge, (${last}));
  //%   end
  return vec4<f16>($side.within(at, at_over));
  //% end
}
