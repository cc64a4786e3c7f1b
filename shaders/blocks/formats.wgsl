// The formats of blocks. Each section reads one or two groups of 32 elements: `at` is the first
// byte of their block, and `g` the number of the group, or of the two, in the block. It defines
// `q_0` to `q_7` for each group, the elements in steps of the scale, and for either half of a group
// `by_0` and `by_1`: the scale, and what to add.
//
// In all formats but Q8_0, the elements of a vec4 are 1, 256, 256² and 256³ times as large: a mask
// takes them from a word, without a shift.
//
// Words are read in pairs: on software adapters a load takes the same time for one as for two.
// Blocks of some formats begin at odd half words. All words are read once, and shifted.

//# functions
// The bytes of a word at their places: each is in units of 256 times those of the one before.
fn places(bits: u32) -> vec4<u32> {
  return vec4<u32>(bits) & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u);
}

// Four bits of each byte of a word, the lower ones, at their places.
fn nibbles(bits: u32) -> vec4<u32> {
  return vec4<u32>(bits) & vec4<u32>(0xfu, 0xf00u, 0xf0000u, 0xf000000u);
}

// Four bits of a word, as a bit above a nibble each.
fn fifths(bits: u32) -> vec4<u32> {
  let moved = vec4<u32>(bits) << vec4<u32>(4u, 11u, 18u, 25u);
  return moved & vec4<u32>(0x10u, 0x1000u, 0x100000u, 0x10000000u);
}

// A word from the second half word on, of two that follow one another.
fn joined(low: u32, high: u32) -> u32 { return (low >> 16u) | (high << 16u); }

fn low_half(bits: u32) -> f32 { return unpack2x16float(bits).x; }

//# words
// The words from the one with the byte `at` on.
let first = (at >> 3u) << 1u;
let is_second = (at & 4u) != 0u;
let is_odd = (at & 2u) != 0u;
//% for i in 0..pairs
//%   if has_rest && i == pairs - 1
let pair_${i} = w_get2(min(first + ${2 * i}u, ((at + ${bytes - 1}u) >> 3u) << 1u));
//%   else
let pair_${i} = w_get2(first + ${2 * i}u);
//%   end
//% end
//% for i in 0..pairs
let raw_${2 * i} = select(pair_${i}.x, pair_${i}.y, is_second);
//%   if i < pairs - 1
let raw_${2 * i + 1} = select(pair_${i}.y, pair_${i + 1}.x, is_second);
//%   else
let raw_${2 * i + 1} = pair_${i}.y;
//%   end
//% end

//# Q4_0
let scale = low_half(select(raw_0, raw_0 >> 16u, is_odd));
//% for j in 0..4
let bits_${j} = select(joined(raw_${j}, raw_${j + 1}), raw_${j + 1}, is_odd);
let q_${j} = vec4<f32>(nibbles(bits_${j}));
let q_${j + 4} = vec4<f32>(nibbles(bits_${j} >> 4u));
//% end
let by_0 = vec2<f32>(scale, -8.0 * scale);
let by_1 = by_0;

//# Q4_1
let by_0 = unpack2x16float(raw_0);
let by_1 = by_0;
//% for j in 0..4
let q_${j} = vec4<f32>(nibbles(raw_${j + 1}));
let q_${j + 4} = vec4<f32>(nibbles(raw_${j + 1} >> 4u));
//% end

//# Q5_0
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
let by_0 = unpack2x16float(raw_0);
let by_1 = by_0;
//% for j in 0..4
let q_${j} = vec4<f32>(nibbles(raw_${j + 2}) | fifths(raw_1 >> ${4 * j}u));
let q_${j + 4} = vec4<f32>(nibbles(raw_${j + 2} >> 4u) | fifths(raw_1 >> ${4 * j + 16}u));
//% end

//# Q8_0
let scale = low_half(select(raw_0, raw_0 >> 16u, is_odd));
//% for j in 0..8
let bits_${j} = select(joined(raw_${j}, raw_${j + 1}), raw_${j + 1}, is_odd);
let signed_${j} = vec4<i32>(bitcast<i32>(bits_${j})) << vec4<u32>(24u, 16u, 8u, 0u);
let q_${j} = vec4<f32>(signed_${j} >> vec4<u32>(24u));
//% end
let by_0 = vec2<f32>(scale, 0.0);
let by_1 = by_0;

//# of_k
// Scale and minimum of a group of 32 elements: six bits each, in twelve bytes.
fn of_k(of_block: vec2<f32>, scales: u32, minima: u32, rest: u32, g: u32) -> vec2<f32> {
  let shift = 8u * (g & 3u);
  let scale = extractBits(scales, shift, 8u);
  let minimum = extractBits(minima, shift, 8u);
  let both = extractBits(rest, shift, 8u);
  let low = vec2<u32>(scale & 63u, minimum & 63u);
  let high = vec2<u32>(
    (both & 15u) | ((scale >> 6u) << 4u),
    (both >> 4u) | ((minimum >> 6u) << 4u),
  );
  let of_group = select(low, high, g >= 4u);
  return of_block * vec2<f32>(of_group) * vec2<f32>(1.0, -1.0);
}

//# head_of_k
// The numbers of the block, and of two groups. The blocks begin at pairs.
let first = at >> 2u;
let head_0 = w_get2(first);
let head_1 = w_get2(first + 2u);
let of_block = unpack2x16float(head_0.x);
let by_0 = of_k(of_block, head_0.y, head_1.x, head_1.y, 2u * g);
let by_1 = by_0;
let by_2 = of_k(of_block, head_0.y, head_1.x, head_1.y, 2u * g + 1u);
let by_3 = by_2;

//# Q4_K
//% for i in 0..4
let pair_${i} = w_get2(first + 4u + 8u * g + ${2 * i}u);
//%   for j in 2 * i..2 * i + 2
let bits_${j} = pair_${i}[${j % 2}];
let q_${j} = vec4<f32>(nibbles(bits_${j}));
let q_${j + 8} = vec4<f32>(nibbles(bits_${j} >> 4u));
//%   end
//% end

//# Q5_K
//% for i in 0..4
let pair_${i} = w_get2(first + 12u + 8u * g + ${2 * i}u);
let upper_${i} = w_get2(first + ${4 + 2 * i}u) >> vec2<u32>(2u * g);
//%   for j in 2 * i..2 * i + 2
let bits_${j} = pair_${i}[${j % 2}];
let fifth_${j} = upper_${i}[${j % 2}];
let q_${j} = vec4<f32>(nibbles(bits_${j}) | places((fifth_${j} << 4u) & 0x10101010u));
let q_${j + 8} = vec4<f32>(nibbles(bits_${j} >> 4u) | places((fifth_${j} << 3u) & 0x10101010u));
//%   end
//% end

//# Q6_K
// A half of the block has 64 bytes of lower bits, 32 of two upper bits each, and eight scales.
let is_second = (at & 4u) != 0u;
let is_odd = (at & 2u) != 0u;
let quarter = g & 3u;
let low_at = ((at >> 3u) << 1u) + 16u * (g >> 2u) + 8u * (quarter & 1u);
let high_at = ((at >> 3u) << 1u) + 32u + 8u * (g >> 2u);
let low_shift = 4u * (quarter >> 1u);
let high_shift = 2u * quarter;
//% for i in 0..5
let low_pair_${i} = w_get2(low_at + ${2 * i}u);
let high_pair_${i} = w_get2(high_at + ${2 * i}u);
//% end
//% for i in 0..5
let low_${2 * i} = select(low_pair_${i}.x, low_pair_${i}.y, is_second);
let high_${2 * i} = select(high_pair_${i}.x, high_pair_${i}.y, is_second);
//%   if i < 4
let low_${2 * i + 1} = select(low_pair_${i}.y, low_pair_${i + 1}.x, is_second);
let high_${2 * i + 1} = select(high_pair_${i}.y, high_pair_${i + 1}.x, is_second);
//%   end
//% end
//% for j in 0..8
let lower_${j} = select(low_${j}, joined(low_${j}, low_${j + 1}), is_odd) >> low_shift;
let upper_${j} = select(high_${j}, joined(high_${j}, high_${j + 1}), is_odd) >> high_shift;
let q_${j} = vec4<f32>(nibbles(lower_${j}) | places((upper_${j} & 0x03030303u) << 4u));
//% end
let of_group = at + 192u + 2u * g;
let both = bitcast<i32>(w_half(of_group));
let scale = low_half(w_half(at + 208u));
let scale_0 = scale * f32((both << 24u) >> 24u);
let scale_1 = scale * f32((both << 16u) >> 24u);
let by_0 = vec2<f32>(scale_0, -32.0 * scale_0);
let by_1 = vec2<f32>(scale_1, -32.0 * scale_1);

//# halves
// The half word at an even byte, below whatever follows it.
fn w_half(at: u32) -> u32 {
  let pair = w_get2((at >> 3u) << 1u);
  return select(pair.x, pair.y, (at & 4u) != 0u) >> (8u * (at & 2u));
}
