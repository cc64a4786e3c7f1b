//! Reference kernel of `shaders/random.wgsl`.

use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::random::RandomOp;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let op = RandomOp::from_code(Code(call.variant.code));
    let words = words(call);
    let [a, b, c] = [words[4], words[5], words[6]].map(f32::from_bits);
    each(call, |k, _| {
        let bits = philox([k / 4, 0, 0, 0], [words[2], words[3]]).map(|bits| bits >> 8);
        let lane = (k % 4) as usize;
        let unit = |bits: u32| bits as f32 / (1 << 24) as f32;
        Lane::F32(match op {
            RandomOp::Uniform => match unit(bits[lane]).mul_add(b, a) {
                value if value >= c => a,
                value => value,
            },
            RandomOp::Normal => {
                let pair = lane & !1;
                let radius = (-2.0 * f64::from(unit(bits[pair] + 1)).ln()).sqrt();
                let angle = std::f64::consts::TAU * f64::from(unit(bits[pair + 1]));
                let wave = if lane.is_multiple_of(2) {
                    angle.cos()
                } else {
                    angle.sin()
                };
                ((radius * wave) as f32).mul_add(b, a)
            }
        })
    });
}

/// Philox4x32-10.
pub(in crate::ops) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut key) = (counter, key);
    for _ in 0..10 {
        let a = 0xd251_1f53 * u64::from(c[0]);
        let b = 0xcd9e_8d57 * u64::from(c[2]);
        c = [
            (b >> 32) as u32 ^ c[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ c[3] ^ key[1],
            a as u32,
        ];
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::philox;

    #[test]
    fn philox_draws_what_its_authors_published() {
        let check = |counter, key, drawn: [u32; 4]| assert_eq!(philox(counter, key), drawn);
        check(
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        );
        check(
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        );
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }
}
