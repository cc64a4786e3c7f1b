//! Scales of groups belong to each variant's loads; scales of columns belong to its epilogue.

use super::*;
use crate::ops::matmul::right::{Groups, Right};

/// Tiles of every kind that supports scales, as far as this adapter's lanes allow.
fn tiles_with_scales(lanes: Option<u8>) -> Vec<Tile> {
    let mut tiles = vec![register(1, 2, 0), register(8, 1, 0)];
    tiles.extend([4, 8].map(|rows| Tile::Workgroup { rows }));
    tiles.extend([1, 4].map(|rows| Tile::Skinny { rows }));
    let Some(lanes) = lanes else { return tiles };
    let shapes = [(1, 2), (4, 1), (16, 1), (32, 1)];
    tiles.extend(shapes.map(|(rows, vec4s)| register(rows, vec4s, lanes)));
    tiles.extend([split(1, 8, lanes), split(4, 8, lanes)]);
    if lanes <= 8 {
        let rows = [(32, 1), (64, 1)];
        tiles.extend(rows.map(|(rows, vec4s)| Tile::Packed { rows, vec4s, lanes }));
    }
    tiles
}

#[test]
fn every_text_that_scales_groups_is_a_valid_shader() {
    for (index, tile) in tiles_with_scales(Some(8)).into_iter().enumerate() {
        let form = Form {
            tile,
            a: ORDERS[index % 3],
            b: Order::AlongK,
            group_log2: [3, 6, 12][index % 3],
            spread: Spread::Linear,
            end: End {
                bias: index % 2 == 0,
                ..End::default()
            },
        };
        assert_eq!(Form::unpack(form.pack()), form);
        let mut dtypes = [DType::F32; MAX_OPERANDS];
        dtypes[1] = DType::I8;
        // The scales of groups are read one by one; packed operands lie in vec4s.
        let packed = matches!(tile, Tile::Packed { .. });
        let a = u8::from(packed || form.a != Order::Stepped);
        validate_of(form, dtypes, 0b11010 | a);
        if !packed {
            validate_of(form, dtypes, 0);
        }
    }
    let variant = Variant {
        code: Packing {
            order: Order::AlongK,
            lanes: 8,
            spread: Spread::Single,
            whole_k: false,
        }
        .pack(),
        dtypes: [DType::I8; MAX_OPERANDS],
        vec4s: 0b11,
    };
    validate_variant(&PACK, &variant);
}

/// Compares a tile with the reference kernel on dequantized weights. All products are exact.
fn check_groups(gpu: &Gpu, tile: Tile, [m, n, k]: [usize; 3], log2: u8, slack: usize) {
    let is_single = matches!(tile, Tile::Register { rows: 1, .. });
    let x = exact(gpu, &[if is_single { 1 } else { m }, k], 1);
    let whole = exact(gpu, &[n, k + slack], 2).narrow(1, slack, k).unwrap();
    let values = exact(gpu, &[n, k + slack], 2).cast(DType::I8).unwrap();
    let values = values.narrow(1, slack, k).unwrap();
    let of_row = k.div_ceil(1 << log2);
    let powers: Vec<f32> = (0..n * of_row)
        .map(|i| f32::powi(2.0, (i % 5) as i32 - 2))
        .collect();
    let scales = gpu.tensor(&powers, &[n, of_row]).unwrap();
    let each: Vec<f32> = (0..n * k)
        .map(|i| powers[i / k * of_row + ((i % k) >> log2)])
        .collect();
    let dequantized = whole.mul(&gpu.tensor(&each, &[n, k]).unwrap()).unwrap();
    let b = values.t().unwrap();
    let scales = &scales;
    let right = Right::grouped(&b, Some(Groups { scales, log2 }));
    let plain = Epilogue::new();
    let got = x.matmul_by(right, &plain, Some(tile)).unwrap();
    let expected = (x.matmul_by(&dequantized.t().unwrap(), &plain, Some(Tile::Naive))).unwrap();
    assert_eq!(
        got.to_vec::<f32>().unwrap(),
        expected.to_vec::<f32>().unwrap(),
        "{tile:?} {m} x {n} x {k}, groups of {}, slack {slack}",
        1 << log2
    );
}

#[test]
fn every_variant_scales_groups_like_the_reference() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    for tile in tiles_with_scales(lanes(&gpu)) {
        // Whole vec4s of whole groups; neither.
        check_groups(&gpu, tile, [36, 68, 96], 5, 4);
        check_groups(&gpu, tile, [33, 37, 77], 3, 1);
    }
}

#[test]
fn a_sum_of_several_slices_takes_the_scales_of_its_own_groups() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    for log2 in [6, 12] {
        let (n, k) = (3, 33_000);
        let weight = exact(&gpu, &[n, k], 3).quantize(Some(1 << log2)).unwrap();
        let x = exact(&gpu, &[2, k], 4);
        let got = x
            .matmul_quantized(&weight)
            .unwrap()
            .to_vec::<f32>()
            .unwrap();
        let wide = weight.dequantize().unwrap();
        let expected = x.linear(&wide, None).unwrap().to_vec::<f32>().unwrap();
        for (got, expected) in got.iter().zip(expected) {
            assert!(
                (got - expected).abs() < 0.1,
                "{got} for {expected}, 2^{log2}"
            );
        }
    }
}
