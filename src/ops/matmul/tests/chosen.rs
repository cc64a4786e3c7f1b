//! Every tile that the rule may choose computes every class of shapes. The tests cover every pair
//! of orders and every type of float, even if this adapter would not choose the tile.

use super::*;

/// The classes of shapes (rows, columns, steps), and by how much lines are longer than the operand.
///
/// - a whole tile
/// - a partial tile whose lines lie in vec4s
/// - a partial tile whose lines do not, with a tail of k
/// - few rows and many steps
/// - less than a vec4 in every dimension
/// - a few steps for each lane that splits k, and a tail
const CLASSES: [([usize; 3], usize); 6] = [
    ([64, 64, 32], 0),
    ([36, 132, 20], 4),
    ([33, 65, 31], 1),
    ([2, 12, 580], 4),
    ([3, 3, 3], 1),
    ([5, 37, 77], 1),
];

/// The product of two pairs of matrices, computed on the host. Small whole numbers make the order
/// of summation irrelevant.
fn by_hand(a: &Tensor, b: &Tensor) -> Vec<f32> {
    let ([m, k], n) = ([a.shape()[1], a.shape()[2]], b.shape()[2]);
    let [a, b] = [a, b].map(|of| of.to_vec::<f32>().unwrap());
    let mut c = vec![0.0; 2 * m * n];
    for (row, c) in c.chunks_mut(n).enumerate() {
        let b = &b[row / m * k * n..];
        for (step, b) in b.chunks(n).take(k).enumerate() {
            for (c, b) in c.iter_mut().zip(b) {
                *c += a[row * k + step] * b;
            }
        }
    }
    c
}

/// Runs tiles on every class of shapes, some with weights of 8 bits. A software adapter compiles a
/// pipeline in a third of a second. So each class meets a tile in one pair of orders, and weights
/// of 8 bits meet each tile in one or two classes. If the variable is set, a class meets a tile in
/// all pairs, and weights of 8 bits meet it in four classes.
fn check_everywhere(is_meant: fn(&Tile) -> bool) {
    let is_whole = std::env::var_os("LAPIDARY_EVERY_PAIR").is_some();
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let lanes = lanes(&gpu).unwrap_or(0);
    let tiles: Vec<Tile> = tiles(lanes).into_iter().filter(is_meant).collect();
    let pairs = ORDERS.iter().flat_map(|&a| ORDERS.map(|b| (a, b)));
    for (turn, (of_a, of_b)) in pairs.enumerate() {
        for (class, ([m, n, k], slack)) in CLASSES.into_iter().enumerate() {
            let a = [m, 1].map(|m| operand(&gpu, DType::F32, [m, k], of_a, slack));
            let b = operand(&gpu, DType::F32, [k, n], of_b, slack);
            let bytes = operand(&gpu, DType::I8, [k, n], of_b, slack);
            let expected = [&a[0], &a[1]].map(|a| by_hand(a, &b));
            for (index, &tile) in tiles.iter().enumerate() {
                // Nine tiles of a class together have all nine pairs.
                let place = (turn + 9 * 5 - 2 * class - index % 9) % 9;
                if place >= 1 && !is_whole {
                    continue;
                }
                let is_single = matches!(tile, Tile::Register { rows: 1, .. });
                let (a, expected) = match is_single {
                    true => (&a[1], &expected[1]),
                    false => (&a[0], &expected[0]),
                };
                let of = |b: &Tensor| singles(a, b, &Epilogue::new(), tile);
                let what =
                    || format!("{tile:?}, {m} x {n} x {k}, slack {slack}, {of_a:?}, {of_b:?}");
                assert_eq!(&of(&b), expected, "{}", what());
                let is_turn = is_whole || class % 3 == index % 3;
                if slack != 4 && place == 0 && is_turn {
                    assert_eq!(&of(&bytes), expected, "{}, i8", what());
                }
            }
        }
    }
}

#[test]
fn registers_compute_every_class_of_shapes_in_every_order() {
    check_everywhere(|tile| matches!(tile, Tile::Naive | Tile::Register { lanes: 0, .. }));
}

#[test]
fn lanes_that_share_what_they_load_compute_every_class_in_every_order() {
    check_everywhere(|tile| {
        matches!(
            tile,
            Tile::Register { lanes: 1.., .. } | Tile::Packed { .. }
        )
    });
}

#[test]
fn lanes_that_split_k_compute_every_class_in_every_order() {
    check_everywhere(|tile| matches!(tile, Tile::Split { .. }));
}

#[test]
fn workgroup_memory_computes_every_class_in_every_order() {
    check_everywhere(|tile| matches!(tile, Tile::Workgroup { .. } | Tile::Skinny { .. }));
}

#[test]
fn operands_of_half_the_width_compute_the_same_as_the_reference() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let mut tiles = vec![register(4, 1, 0), Tile::Skinny { rows: 4 }];
    tiles.extend([4, 8].map(|rows| Tile::Workgroup { rows }));
    if let Some(lanes) = lanes(&gpu) {
        tiles.extend([register(16, 1, lanes), split(2, 8, lanes)]);
        let (rows, vec4s) = (64, 1);
        tiles.extend((lanes <= 8).then_some(Tile::Packed { rows, vec4s, lanes }));
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
