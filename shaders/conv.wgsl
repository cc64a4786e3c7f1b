// Convolution as an implicit matrix product: no operand is rearranged. An invocation computes four
// neighbouring pixels of ${rows} output channels of one group. Padding reads as 0.
//
// Where lanes can broadcast, they form the workgroup, and each loads a share of the weights for
// all.

struct Params {
  size: vec4<u32>,      // samples, input channels of a group, output channels of a group, groups
  planes: vec4<u32>,    // height and width of x, of y
  kernel: vec4<u32>,    // height, width, stride down, stride across
  margin: vec4<u32>,    // padding above, to the left; dilation down, across
  x: vec4<u32>,         // strides of x: sample, channel, row, column
  starts: vec4<u32>,    // starts of x, weights and bias; elements of a channel of y
}

@compute @workgroup_size(${threads})
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  //% if lanes > 0
  @builtin(subgroup_invocation_id) lane: u32,
  //% else
  @builtin(local_invocation_index) lane: u32,
  //% end
) {
  let index = (group.z * groups.y + group.y) * groups.x + group.x;
  let pixels = p.planes.z * p.planes.w;
  let pixel_tiles = (pixels + ${4 * threads}u - 1u) / ${4 * threads}u;
  let row_tiles = (p.size.z + ${rows}u - 1u) / ${rows}u;
  let tile = index / pixel_tiles;
  let of_group = tile / row_tiles;
  let sample = of_group / p.size.w;
  if (sample >= p.size.x) { return; }
  let own_group = of_group % p.size.w;
  let row = tile % row_tiles * ${rows}u;
  let last_row = p.size.z - 1u;
  let pixel = index % pixel_tiles * ${4 * threads}u + lane * 4u;
  let place = min(vec4(pixel) + vec4(0u, 1u, 2u, 3u), vec4(pixels - 1u));
  let down = place / p.planes.w;
  // Positions above and to the left of the plane wrap, and so lie past its end.
  let y_first = down * p.kernel.z - vec4(p.margin.x);
  let x_first = (place - down * p.planes.w) * p.kernel.w - vec4(p.margin.y);
  let taps = p.size.y * p.kernel.x * p.kernel.y;
  let first_row = own_group * p.size.z + row;
  //% for i in 0..loads
  //%   if lanes > 0
  let w_${i} = p.starts.y + (own_group * p.size.z + min(row + (lane + ${i * lanes}u) % ${rows}u, last_row)) * taps;
  //%   else
  let w_${i} = p.starts.y + (own_group * p.size.z + min(row + ${i}u, last_row)) * taps;
  //%   end
  //% end
  //% for r in 0..rows
  //%   if has_bias
  var acc_${r} = vec4(b_get(p.starts.z + own_group * p.size.z + min(row + ${r}u, last_row)));
  //%   else
  var acc_${r} = vec4<f32>();
  //%   end
  //% end
  var plane = p.starts.x + sample * p.x.x + own_group * p.size.y * p.x.y;
  var tap = 0u;
  for (var c = 0u; c < p.size.y; c++) {
    for (var ky = 0u; ky < p.kernel.x; ky++) {
      let y = y_first + ky * p.margin.z;
      let is_row = y < vec4(p.planes.x);
      for (var kx = 0u; kx < p.kernel.y; kx++) {
        let x = x_first + kx * p.margin.w;
        let is_inside = is_row & (x < vec4(p.planes.y));
        let at = select(vec4(plane), plane + y * p.x.z + x * p.x.w, is_inside);
        let got = vec4(x_get(at.x), x_get(at.y), x_get(at.z), x_get(at.w));
        let v = select(vec4<f32>(), got, is_inside);
        //% for i in 0..loads
        let g_${i} = w_get(w_${i} + tap);
        //% end
        //% for r in 0..rows
        //%   if lanes > 0
        acc_${r} = fma(vec4(subgroupBroadcast(g_${r / lanes}, ${r % lanes}u)), v, acc_${r});
        //%   else
        acc_${r} = fma(vec4(g_${r}), v, acc_${r});
        //%   end
        //% end
        tap++;
      }
    }
    plane += p.x.y;
  }
  let channel = sample * p.size.w * p.size.z + first_row;
  //% for r in 0..rows
  store(channel + ${r}u, row + ${r}u, pixel, acc_${r});
  //% end
}

fn store(channel: u32, row: u32, pixel: u32, v: vec4<f32>) {
  if (row < p.size.z && pixel < p.planes.z * p.planes.w) { y_put4(channel * p.starts.w + pixel, v); }
}
