// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011). The number of
// a vec4 is the counter and the seed is the key. So no state is needed, and every adapter draws the
// same numbers.

//# philox
fn mul_wide(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let left = (a >> 16u) * (b & 0xffffu);
  let right = (a & 0xffffu) * (b >> 16u);
  let middle = (low >> 16u) + (left & 0xffffu) + (right & 0xffffu);
  let high = (a >> 16u) * (b >> 16u) + (left >> 16u) + (right >> 16u) + (middle >> 16u);
  return vec2<u32>(high, a * b);
}

fn philox(counter: u32) -> vec4<u32> {
  var c = vec4<u32>(counter, 0u, 0u, 0u);
  var key = p.w0.zw;
  for (var turn = 0u; turn < 10u; turn++) {
    let a = mul_wide(0xd2511f53u, c.x);
    let b = mul_wide(0xcd9e8d57u, c.z);
    c = vec4<u32>(b.x ^ c.y ^ key.x, b.y, a.x ^ c.w ^ key.y, a.y);
    key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

//# uniform
// From p.w1.x, with the width p.w1.y, and below p.w1.z. An f32 between 0 and 1 can hold 24 bits.
fn op(k: u32) -> Y {
  let low = bitcast<f32>(p.w1.x);
  let unit = vec4<f32>(philox(k >> 2u) >> vec4<u32>(8u)) * 5.9604645e-8;
  let v = fma(unit, Y(bitcast<f32>(p.w1.y)), Y(low));
  // Rounding may give the upper end, which does not belong to the interval.
  return select(v, Y(low), v >= Y(bitcast<f32>(p.w1.z)));
}

//# normal
// The mean is p.w1.x and the deviation p.w1.y, by the method of Box and Muller.
fn op(k: u32) -> Y {
  let bits = philox(k >> 2u) >> vec4<u32>(8u);
  // Lies in (0, 1], so that the logarithm is finite.
  let u = vec2<f32>(bits.xz + vec2<u32>(1u)) * 5.9604645e-8;
  let r = sqrt(-2.0 * log(u));
  // The angle in whole quarter turns, and the rest of one, from −½ to ½.
  let angle = bits.yw;
  let turns = (angle + vec2<u32>(0x200000u)) >> vec2<u32>(22u);
  let rest = vec2<f32>(vec2<i32>(angle) - vec2<i32>(turns << vec2<u32>(22u))) * 3.7450703e-7;
  let t = vec4<i32>(vec4<u32>(turns.x + 1u, turns.x, turns.y + 1u, turns.y));
  let v = r.xxyy * sine_of(rest.xxyy, t);
  return fma(v, Y(bitcast<f32>(p.w1.y)), Y(bitcast<f32>(p.w1.x)));
}
