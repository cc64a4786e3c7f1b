//! What the rule may choose runs, be it chosen on this adapter or not, and in every type of float.

use super::*;

/// The lanes of a subgroup, where tiles can count on them.
fn lanes(gpu: &Gpu) -> Option<u8> {
    crate::ops::matmul::choice::lanes(gpu.caps())
}

#[test]
fn tiles_that_few_shapes_get_compute_the_same_as_the_reference() {
    let gpu = Gpu::open(Options::default()).unwrap();
    let mut tiles = vec![register(4, 1, 0), register(4, 2, 0), register(8, 2, 0)];
    tiles.extend([2, 4].map(|rows| Tile::Skinny { rows }));
    if let Some(lanes) = lanes(&gpu) {
        tiles.push(register(8, 1, lanes));
    }
    for (index, tile) in tiles.into_iter().enumerate() {
        check_tile(&gpu, tile, [36, 132, 20], 4, 2 * index + 1);
        check_tile(&gpu, tile, [33, 65, 31], 1, 2 * index + 4);
    }
    let Some(lanes) = lanes(&gpu) else { return };
    for (index, (rows, columns)) in [(1, 4), (1, 64), (2, 32)].into_iter().enumerate() {
        let tile = split(rows, columns, lanes);
        check_tile(&gpu, tile, [3, 132, 584], 4, 4 * index + 1);
        check_tile(&gpu, tile, [2, 70, 77], 1, 4 * index + 5);
    }
}

#[test]
fn operands_of_half_the_width_compute_the_same_as_the_reference() {
    let gpu = Gpu::open(Options::default()).unwrap();
    let mut tiles = vec![register(4, 1, 0), Tile::Skinny { rows: 4 }];
    tiles.extend([4, 8].map(|rows| Tile::Workgroup { rows }));
    if let Some(lanes) = lanes(&gpu) {
        tiles.extend([register(16, 1, lanes), split(2, 8, lanes)]);
        let (rows, quads) = (64, 1);
        tiles.extend((lanes <= 8).then_some(Tile::Packed { rows, quads, lanes }));
    }
    for (index, tile) in tiles.into_iter().enumerate() {
        for (dtype, ([m, n, k], slack)) in [
            (DType::F16, ([36, 132, 20], 4)),
            (DType::Bf16, ([33, 68, 31], 1)),
        ] {
            let a = operand(&gpu, dtype, [m, k], ORDERS[index % 3], slack);
            let b = operand(&gpu, dtype, [k, n], ORDERS[(index + 1) % 3], slack);
            let of = |tile| singles(&a, &b, &Epilogue::new(), tile);
            assert_eq!(of(tile), of(Tile::Naive), "{tile:?} of {dtype}");
        }
    }
}
