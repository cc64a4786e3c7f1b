// Reads four lines of an operand at four steps of k. `rest` says how steps past the end of k are
// handled: there are none (0), a loop (1), branches (2).
//# block

fn ${side}_block(base: u32, edge: u32, k: u32) -> mat4x4<f32> {
  let line = ${line};
  //% if along_k
  //%   for j in 0..4
  let at_${j} = base + min(edge + ${j}u, ${last} - 1u) * line + $side.along(k);
  //%   end
  //% else
  let at_0 = base + min(edge, (${last} - 1u) & ~3u) + k * line;
  //%   if !vec4s
  let at_over = (${last} - 1u) - min(edge, (${last} - 1u));
  //%   end
  //%   for i in 1..4
  let at_${i} = at_${i - 1} + line;
  //%   end
  //% end
  //% if rest == 0
  return ${body};
  //% else
  if (k + 4u <= p.size.z) {
    return ${body};
  }
  //% end
  //% if rest == 1
  var v = mat4x4<f32>();
  for (var left = max(p.size.z, k) - k; left > 0u; left--) {
    v = mat4x4<f32>($side.step((left - 1u)), v[0], v[1], v[2]);
  }
  return v;
  //% else if rest == 2
  //%   for i in 0..3
  var v_${i} = vec4<f32>();
  if (k + ${i}u < p.size.z) { v_${i} = $side.step(${i}u); }
  //%   end
  return mat4x4<f32>(v_0, v_1, v_2, vec4<f32>());
  //% end
}
