//! Every text is a valid shader, and all ways give the same result.

use super::columns;
use super::geometry::{Conv, Geometry};
use super::kernel::{CONV, HAS_BIAS, MOST_ALONE, MOST_ROWS, Tile, direct};
use crate::ops::check::valid;
use crate::{Gpu, Options};
use lapidary_core::DType;

#[test]
fn every_text_is_a_valid_shader() {
    for dtype in [DType::F32, DType::F16] {
        for (lanes, most) in [
            (0, MOST_ALONE),
            (4, MOST_ROWS),
            (8, MOST_ROWS),
            (32, MOST_ROWS),
        ] {
            for rows in [1, 4, 8, 32].map(|rows: u64| rows.min(most as u64)) {
                for bias in [0, HAS_BIAS] {
                    valid(&CONV, rows | lanes << 8 | bias, &[dtype; 4], 0b1000);
                }
            }
        }
    }
}

#[test]
fn every_way_computes_the_same() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
    let noise = |seed, shape: &[usize]| {
        let made = gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32);
        made.expect("room")
    };
    let lanes = match gpu.caps().subgroup_lanes {
        Some((least, most)) if least == most && least <= 32 => least as u8,
        _ => 0,
    };
    for (groups, out) in [(1, 37), (3, 6), (6, 6)] {
        let (x, bias) = (noise(1, &[2, 6, 9, 11]), noise(2, &[out]));
        let weight = noise(3, &[out, 6 / groups, 3, 2]);
        let options = Conv {
            stride: [2, 1],
            padding: [2, 1],
            dilation: [1, 2],
            groups,
        };
        let geometry = Geometry::new("conv2d", x.shape(), weight.shape(), &options).unwrap();
        let expected = columns::conv(&x, &weight, Some(&bias), &geometry).unwrap();
        let expected = expected.to_vec::<f32>().unwrap();
        for (rows, lanes) in [(1, 0), (8, 0), (4, lanes), (32, lanes)] {
            let tile = Tile { rows, lanes };
            let got = direct(&x, &weight, Some(&bias), &geometry, tile).unwrap();
            for (got, expected) in got.to_vec::<f32>().unwrap().iter().zip(&expected) {
                assert!(
                    (got - expected).abs() < 1e-4,
                    "{tile:?} in {groups} groups: {got} for {expected}"
                );
            }
        }
    }
}
