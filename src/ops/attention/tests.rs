//! Every text is a valid shader, and every variant computes the same.

use super::form::{Form, Mask, Tile};
use super::{ATTENTION, Call};
use crate::dtype::DType;
use crate::ops::check::valid;
use crate::{Gpu, Options};

fn tiles() -> Vec<Tile> {
    let lanes = [0, 4, 8, 32];
    let widths = [1, 2, 4];
    let registers = lanes
        .iter()
        .flat_map(|&lanes| widths.map(|width| Tile::Register { lanes, width }));
    registers.chain([Tile::Workgroup]).collect()
}

#[test]
fn every_text_is_a_valid_shader() {
    let masks = [
        (Mask::default(), DType::F32),
        (
            Mask {
                is_given: true,
                is_bool: true,
                quads: true,
                one_row: false,
            },
            DType::Bool,
        ),
        (
            Mask {
                is_given: true,
                is_bool: true,
                quads: false,
                one_row: true,
            },
            DType::Bool,
        ),
        (
            Mask {
                is_given: true,
                is_bool: false,
                quads: true,
                one_row: true,
            },
            DType::F16,
        ),
        (
            Mask {
                is_given: true,
                is_bool: false,
                quads: false,
                one_row: false,
            },
            DType::F32,
        ),
    ];
    for tile in tiles() {
        for (which, &(mask, of_mask)) in masks.iter().enumerate() {
            let columns = [4, 64, 8, 20, 132][which];
            let form = Form::new(tile, columns, mask, which % 2 == 1);
            assert_eq!(Form::unpack(form.pack()), form);
            let dtype = if which == 2 { DType::F16 } else { DType::F32 };
            let quads = 0b10111 | u8::from(mask.quads || !mask.is_given) << 3;
            valid(
                &ATTENTION,
                form.pack(),
                &[dtype, dtype, dtype, of_mask, dtype],
                quads,
            );
        }
    }
}

#[test]
fn every_variant_computes_what_the_first_does() {
    let gpu = Gpu::open(Options::default()).expect("an adapter");
    let noise = |seed, shape: &[usize]| {
        gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32)
            .expect("room")
    };
    let lanes = gpu.caps().subgroup_lanes;
    for (queries, keys, size, columns) in [(1, 1, 4, 4), (37, 70, 64, 64), (70, 133, 20, 132)] {
        let q = noise(1, &[2, 4, queries, size]);
        let (k, v) = (
            noise(2, &[2, 2, keys, size]),
            noise(3, &[2, 2, keys, columns]),
        );
        let mask = noise(4, &[2, 1, queries, keys]);
        let first = mask.gt_scalar(0).unwrap();
        for (mask, is_causal) in [
            (None, false),
            (None, true),
            (Some(&mask), false),
            (Some(&first), true),
        ] {
            let call = Call {
                q: &q,
                k: &k,
                v: &v,
                mask,
                is_causal,
                scale: None,
            };
            let mut expected: Option<Vec<f32>> = None;
            for tile in tiles() {
                if matches!(tile, Tile::Register { lanes: own @ 1.., .. } if lanes != Some((own.into(), own.into())))
                {
                    continue;
                }
                let got = call.run(Some(tile)).unwrap().to_vec::<f32>().unwrap();
                let expected = expected.get_or_insert_with(|| got.clone());
                for (got, expected) in got.iter().zip(expected.iter()) {
                    assert!(
                        (got - expected).abs() < 1e-4,
                        "{tile:?} {queries} {keys} {size} {columns} {is_causal}: {got} for {expected}"
                    );
                }
            }
        }
    }
}
