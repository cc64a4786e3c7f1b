// The formats of blocks. `at` is the first byte of a block, `g` a group of 32 elements in it.
// `quants(at, g, j)` are elements 4j to 4j + 3 of the group in steps of its scale.
// `affine(at, g, h)` is the scale of the group, and what to add; `h` is the half of the group.

//# words
// The 32 bits from a byte on. Blocks begin at even bytes.
fn word(byte: u32) -> u32 {
  let at = byte >> 2u;
  let low = w_get(at);
  if ((byte & 2u) == 0u) { return low; }
  return (low >> 16u) | (w_get(at + 1u) << 16u);
}

// The 16 bits from an even byte on, as a float.
fn half_float(byte: u32) -> f32 {
  return unpack2x16float(w_get(byte >> 2u) >> ((byte & 2u) * 8u)).x;
}

fn byte_of(byte: u32) -> u32 {
  return extractBits(w_get(byte >> 2u), (byte & 3u) * 8u, 8u);
}

// The four bytes of a word.
fn bytes_of(bits: u32) -> vec4<u32> {
  return (vec4<u32>(bits) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
}

// Four bits of each byte of a word, the lower or the upper ones.
fn nibbles(bits: u32, upper: u32) -> vec4<u32> {
  return bytes_of((bits >> (4u * upper)) & 0x0f0f0f0fu);
}

// Four bits of a word, as a bit above a nibble each.
fn fifths(bits: u32) -> vec4<u32> {
  return ((vec4<u32>(bits) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(4u);
}

//# Q4_0
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  return vec4<f32>(nibbles(word(at + 2u + 4u * (j & 3u)), j >> 2u));
}

fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  let scale = half_float(at);
  return vec2<f32>(scale, -8.0 * scale);
}

//# Q4_1
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  return vec4<f32>(nibbles(w_get((at >> 2u) + 1u + (j & 3u)), j >> 2u));
}

fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  return unpack2x16float(w_get(at >> 2u));
}

//# Q5_0
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  let low = nibbles(word(at + 6u + 4u * (j & 3u)), j >> 2u);
  return vec4<f32>(low | fifths(word(at + 2u) >> (4u * j)));
}

fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  let scale = half_float(at);
  return vec2<f32>(scale, -16.0 * scale);
}

//# Q5_1
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  let first = at >> 2u;
  let low = nibbles(w_get(first + 2u + (j & 3u)), j >> 2u);
  return vec4<f32>(low | fifths(w_get(first + 1u) >> (4u * j)));
}

fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  return unpack2x16float(w_get(at >> 2u));
}

//# Q8_0
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  let bits = vec4<i32>(bitcast<i32>(word(at + 2u + 4u * j)));
  return vec4<f32>((bits << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  return vec2<f32>(half_float(at), 0.0);
}

//# of_k
// Scale and minimum of a group of 32 elements: six bits each, in the twelve bytes from the fourth.
fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  let first = at >> 2u;
  let of_block = unpack2x16float(w_get(first));
  let shift = 8u * (g & 3u);
  let scales = extractBits(w_get(first + 1u), shift, 8u);
  let minima = extractBits(w_get(first + 2u), shift, 8u);
  let rest = extractBits(w_get(first + 3u), shift, 8u);
  var of_group = vec2<u32>(scales & 63u, minima & 63u);
  if (g >= 4u) {
    of_group = vec2<u32>(
      (rest & 15u) | ((scales >> 6u) << 4u),
      (rest >> 4u) | ((minima >> 6u) << 4u),
    );
  }
  return of_block * vec2<f32>(of_group) * vec2<f32>(1.0, -1.0);
}

//# Q4_K
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  return vec4<f32>(nibbles(w_get((at >> 2u) + 4u + 8u * (g >> 1u) + j), g & 1u));
}

//# Q5_K
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  let first = at >> 2u;
  let low = nibbles(w_get(first + 12u + 8u * (g >> 1u) + j), g & 1u);
  let high = bytes_of((w_get(first + 4u + j) >> g) & 0x01010101u);
  return vec4<f32>(low | (high << vec4<u32>(4u)));
}

//# Q6_K
// A half of the block has 64 bytes of lower bits, 32 of two upper bits each, and eight scales.
fn quants(at: u32, g: u32, j: u32) -> vec4<f32> {
  let of_half = g >> 2u;
  let quarter = g & 3u;
  let low = word(at + 64u * of_half + 32u * (quarter & 1u) + 4u * j);
  let high = word(at + 128u + 32u * of_half + 4u * j);
  let upper = bytes_of((high >> (2u * quarter)) & 0x03030303u);
  return vec4<f32>(nibbles(low, quarter >> 1u) | (upper << vec4<u32>(4u)));
}

fn affine(at: u32, g: u32, h: u32) -> vec2<f32> {
  let bits = byte_of(at + 192u + 2u * g + h);
  let scale = half_float(at + 208u) * f32(bitcast<i32>(bits << 24u) >> 24u);
  return vec2<f32>(scale, -32.0 * scale);
}
