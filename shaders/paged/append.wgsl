// Writes new keys and values into pages. An invocation writes one unit of a row.
//
// The words of a row in the table's storage: its first task, the number of its tasks, its place in
// a block of rows, unused; its page, its token in the page, the rows whose scales it writes.

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let index = linear(group, groups) * 64u + local;
  let unit = index % ${units}u;
  let is_value = index / ${units}u % 2u;
  let head = index / ${2 * units}u % p.heads.y;
  let row = index / ${2 * units}u / p.heads.y;
  if (row >= p.part.w) { return; }
  let entry = entry_of(t_get(8u * row + 4u));
  if (entry.x == ${absent}u) { return; }
  let token = t_get(8u * row + 5u);
  let block = entry.y + p.page.x + head * p.page.y;
  let at = block + (is_value * ${tokens}u + token) * ${units}u + unit;
  let start = (row * p.heads.y + head) * ${size}u;
  //% for v in 0..vec4s
  let x_${v} = element(is_value, start, unit * ${4 * vec4s}u + ${4 * v}u);
  //% end
  //% if is_f32
  g_store(entry.x, at, bitcast<vec4<u32>>(x_0));
  //% else if is_f16
  g_store(entry.x, at, vec4(
    pack_halves(x_0.xy), pack_halves(x_0.zw), pack_halves(x_1.xy), pack_halves(x_1.zw),
  ));
  //% else
  let scale = scale_of(is_value, start);
  let inverse = select(1.0 / scale, 0.0, scale == 0.0);
  g_store(entry.x, at, vec4(
    bytes_of(x_0 * inverse), bytes_of(x_1 * inverse), bytes_of(x_2 * inverse), bytes_of(x_3 * inverse),
  ));
  // Four tokens share a unit of scales. The first new one of them writes all.
  let some = t_get(8u * row + 6u);
  if (unit != 0u || some == 0u) { return; }
  let scales = block + ${2 * tokens * units}u + is_value * ${tokens / 4}u + token / 4u;
  var words = g_load(entry.x, scales);
  for (var i = 0u; i < some; i++) {
    // FXC assigns to no component by a number that it does not know.
    let bits = bitcast<u32>(scale_of(is_value, start + i * p.heads.y * ${size}u));
    words = select(words, vec4(bits), vec4(0u, 1u, 2u, 3u) == vec4(token % 4u + i));
  }
  g_store(entry.x, scales, words);
  //% end
}

// Four elements of a key or value; zeros past its end.
fn element(is_value: u32, start: u32, at: u32) -> vec4<f32> {
  var x = vec4<f32>();
  if (at < ${size}u) {
    if (is_value == 0u) { x = k_get4(p.rest.x + start + at); } else { x = v_get4(p.rest.y + start + at); }
  }
  return x;
}
//% if is_i8

// The largest element of a row becomes 127. A row that is not finite has a scale that is not.
fn scale_of(is_value: u32, start: u32) -> f32 {
  var largest = vec4<u32>();
  for (var at = 0u; at < ${size}u; at += 4u) {
    // The bits of numbers without a sign have their order, and NaN is above infinity.
    largest = max(largest, bitcast<vec4<u32>>(element(is_value, start, at)) & vec4(0x7fffffffu));
  }
  return bitcast<f32>(max(max(largest.x, largest.y), max(largest.z, largest.w))) / 127.0;
}

fn bytes_of(x: vec4<f32>) -> u32 {
  let bytes = vec4<u32>(vec4<i32>(round(clamp(x, vec4(-127.0), vec4(127.0))))) & vec4(0xffu);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}
//% end
