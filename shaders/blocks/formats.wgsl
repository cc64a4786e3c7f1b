// The formats of blocks. Each section reads a group of 32 elements: `at` is the first byte of its
// block, and `g` its number in the block. It defines `q_0` to `q_7`, the elements in steps of the
// scale, and for either half of the group `by_0` and `by_1`: the scale, and what to add.
//
// Blocks of some formats begin at odd half words. All words are read once, and shifted.

//# functions
// The four bytes of a word.
fn bytes_of(bits: u32) -> vec4<u32> {
  return (vec4<u32>(bits) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
}

// Four bits of each byte of a word, the lower ones.
fn nibbles(bits: u32) -> vec4<u32> { return bytes_of(bits & 0x0f0f0f0fu); }

// Four bits of a word, as a bit above a nibble each.
fn fifths(bits: u32) -> vec4<u32> {
  return ((vec4<u32>(bits) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(4u);
}

// A word from the second half word on, of two that follow one another.
fn joined(low: u32, high: u32) -> u32 { return (low >> 16u) | (high << 16u); }

fn low_half(bits: u32) -> f32 { return unpack2x16float(bits).x; }

//# Q4_0
let first = at >> 2u;
let is_odd = (at & 2u) != 0u;
//% for i in 0..5
let raw_${i} = w_get(first + ${i}u);
//% end
let scale = low_half(select(raw_0, raw_0 >> 16u, is_odd));
//% for j in 0..4
let bits_${j} = select(joined(raw_${j}, raw_${j + 1}), raw_${j + 1}, is_odd);
let q_${j} = vec4<f32>(nibbles(bits_${j}));
let q_${j + 4} = vec4<f32>(nibbles(bits_${j} >> 4u));
//% end
let by_0 = vec2<f32>(scale, -8.0 * scale);
let by_1 = by_0;

//# Q4_1
let first = at >> 2u;
let by_0 = unpack2x16float(w_get(first));
let by_1 = by_0;
//% for j in 0..4
let bits_${j} = w_get(first + ${j + 1}u);
let q_${j} = vec4<f32>(nibbles(bits_${j}));
let q_${j + 4} = vec4<f32>(nibbles(bits_${j} >> 4u));
//% end

//# Q5_0
let first = at >> 2u;
let is_odd = (at & 2u) != 0u;
//% for i in 0..6
let raw_${i} = w_get(first + ${i}u);
//% end
let scale = low_half(select(raw_0, raw_0 >> 16u, is_odd));
let upper = select(joined(raw_0, raw_1), raw_1, is_odd);
//% for j in 0..4
let bits_${j} = select(joined(raw_${j + 1}, raw_${j + 2}), raw_${j + 2}, is_odd);
let q_${j} = vec4<f32>(nibbles(bits_${j}) | fifths(upper >> ${4 * j}u));
let q_${j + 4} = vec4<f32>(nibbles(bits_${j} >> 4u) | fifths(upper >> ${4 * j + 16}u));
//% end
let by_0 = vec2<f32>(scale, -16.0 * scale);
let by_1 = by_0;

//# Q5_1
let first = at >> 2u;
let by_0 = unpack2x16float(w_get(first));
let by_1 = by_0;
let upper = w_get(first + 1u);
//% for j in 0..4
let bits_${j} = w_get(first + ${j + 2}u);
let q_${j} = vec4<f32>(nibbles(bits_${j}) | fifths(upper >> ${4 * j}u));
let q_${j + 4} = vec4<f32>(nibbles(bits_${j} >> 4u) | fifths(upper >> ${4 * j + 16}u));
//% end

//# Q8_0
let first = at >> 2u;
let is_odd = (at & 2u) != 0u;
//% for i in 0..9
let raw_${i} = w_get(first + ${i}u);
//% end
let scale = low_half(select(raw_0, raw_0 >> 16u, is_odd));
//% for j in 0..8
let bits_${j} = select(joined(raw_${j}, raw_${j + 1}), raw_${j + 1}, is_odd);
let signed_${j} = vec4<i32>(bitcast<i32>(bits_${j})) << vec4<u32>(24u, 16u, 8u, 0u);
let q_${j} = vec4<f32>(signed_${j} >> vec4<u32>(24u));
//% end
let by_0 = vec2<f32>(scale, 0.0);
let by_1 = by_0;

//# of_k
// Scale and minimum of a group of 32 elements: six bits each, in the twelve bytes from the fourth.
fn of_k(first: u32, g: u32) -> vec2<f32> {
  let of_block = unpack2x16float(w_get(first));
  let shift = 8u * (g & 3u);
  let scales = extractBits(w_get(first + 1u), shift, 8u);
  let minima = extractBits(w_get(first + 2u), shift, 8u);
  let rest = extractBits(w_get(first + 3u), shift, 8u);
  let low = vec2<u32>(scales & 63u, minima & 63u);
  let high = vec2<u32>(
    (rest & 15u) | ((scales >> 6u) << 4u),
    (rest >> 4u) | ((minima >> 6u) << 4u),
  );
  let of_group = select(low, high, g >= 4u);
  return of_block * vec2<f32>(of_group) * vec2<f32>(1.0, -1.0);
}

//# Q4_K
let first = at >> 2u;
let by_0 = of_k(first, g);
let by_1 = by_0;
let low_at = first + 4u + 8u * (g >> 1u);
let low_shift = 4u * (g & 1u);
//% for j in 0..8
let q_${j} = vec4<f32>(nibbles(w_get(low_at + ${j}u) >> low_shift));
//% end

//# Q5_K
let first = at >> 2u;
let by_0 = of_k(first, g);
let by_1 = by_0;
let low_at = first + 12u + 8u * (g >> 1u);
let low_shift = 4u * (g & 1u);
//% for j in 0..8
let low_${j} = nibbles(w_get(low_at + ${j}u) >> low_shift);
let high_${j} = bytes_of((w_get(first + ${4 + j}u) >> g) & 0x01010101u);
let q_${j} = vec4<f32>(low_${j} | (high_${j} << vec4<u32>(4u)));
//% end

//# Q6_K
// A half of the block has 64 bytes of lower bits, 32 of two upper bits each, and eight scales.
let is_odd = (at & 2u) != 0u;
let quarter = g & 3u;
let low_at = (at >> 2u) + 16u * (g >> 2u) + 8u * (quarter & 1u);
let high_at = (at >> 2u) + 32u + 8u * (g >> 2u);
let low_shift = 4u * (quarter >> 1u);
let high_shift = 2u * quarter;
//% for i in 0..9
let low_${i} = w_get(low_at + ${i}u);
let high_${i} = w_get(high_at + ${i}u);
//% end
//% for j in 0..8
let lower_${j} = select(low_${j}, joined(low_${j}, low_${j + 1}), is_odd) >> low_shift;
let upper_${j} = select(high_${j}, joined(high_${j}, high_${j + 1}), is_odd) >> high_shift;
let two_${j} = bytes_of(upper_${j} & 0x03030303u) << vec4<u32>(4u);
let q_${j} = vec4<f32>(nibbles(lower_${j}) | two_${j});
//% end
let of_group = at + 192u + 2u * g;
let both = bitcast<i32>(w_get(of_group >> 2u) >> (8u * (of_group & 2u)));
let of_block = at + 208u;
let scale = low_half(w_get(of_block >> 2u) >> (8u * (of_block & 2u)));
let scale_0 = scale * f32((both << 24u) >> 24u);
let scale_1 = scale * f32((both << 16u) >> 24u);
let by_0 = vec2<f32>(scale_0, -32.0 * scale_0);
let by_1 = vec2<f32>(scale_1, -32.0 * scale_1);
