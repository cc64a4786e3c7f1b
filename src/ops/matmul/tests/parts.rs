//! The number of parts along k, and the number of workgroups.

use super::super::choice::{groups, parts_of_k, spread_of};
use super::super::form::{End, Form, Tile};
use super::{caps, problem, tiles};
use crate::tensor::layout::Layout;
use lapidary_core::{Caps, DType, adapter::AdapterKind};

#[test]
fn long_sums_are_cut_where_there_is_little_side_by_side() {
    let check = |caps: &Caps, dtype: DType, [m, n, k]: [usize; 3], expected: Option<u32>| {
        let product = problem(&Layout::contiguous(&[m, k]), &Layout::contiguous(&[k, n]));
        let parts = parts_of_k(caps, [dtype; 3], &product, || u64::MAX);
        assert_eq!(parts, expected, "{m} x {n} x {k}");
    };
    let discrete = caps(AdapterKind::Discrete, Some((32, 32)));
    check(&discrete, DType::F32, [64, 64, 65_536], Some(128));
    check(&discrete, DType::F16, [128, 128, 8192], Some(32));
    check(&discrete, DType::F32, [256, 256, 8192], Some(8));
    check(&discrete, DType::F32, [512, 256, 8192], Some(4));
    // The gradients of a small layer's weight, and the same with too many tiles.
    check(&discrete, DType::F32, [128, 384, 1024], Some(4));
    check(&discrete, DType::F32, [512, 512, 8192], None);
    check(&discrete, DType::F32, [128, 384, 511], None);
    // Few rows have a variant of their own, whose lanes share k.
    check(&discrete, DType::F32, [4, 256, 2047], None);
    check(&discrete, DType::F32, [1, 1, 1 << 20], None);
    check(&discrete, DType::I32, [64, 64, 65_536], None);
    check(&discrete, DType::F32, [4096, 4096, 4096], None);
    let lavapipe = caps(AdapterKind::Cpu, Some((8, 8)));
    check(&lavapipe, DType::F32, [32, 32, 16_384], Some(8));
    check(&lavapipe, DType::F32, [64, 32, 16_384], Some(4));
    check(&lavapipe, DType::F32, [128, 128, 16_384], None);
    check(&lavapipe, DType::F32, [32, 32, 4096], None);
    let swiftshader = caps(AdapterKind::Cpu, Some((4, 4)));
    check(&swiftshader, DType::F32, [32, 32, 16_384], Some(4));
}

#[test]
fn groups_stay_within_the_limit_of_a_dimension() {
    let mut caps = caps(AdapterKind::Cpu, None);
    caps.max_groups = 3;
    let product = problem(
        &Layout::contiguous(&[100, 8]),
        &Layout::contiguous(&[8, 100]),
    );
    for tile in tiles(8) {
        let [a, b] = [product.a.order(), product.b.order()];
        let spread = spread_of(&caps, tile, &product);
        let form = Form {
            tile,
            a,
            b,
            group_log2: 0,
            spread,
            end: End::default(),
        };
        let (rows, columns) = form.tile_size();
        let needed = match tile {
            Tile::Naive => 40,
            _ => 100_u32.div_ceil(rows) * 100_u32.div_ceil(columns),
        };
        let spread = groups(&caps, form, &product);
        assert!(
            spread.iter().product::<u32>() >= needed,
            "{form:?} {spread:?}"
        );
        assert!(spread[0] <= 3 && spread[1] <= 3, "{form:?} {spread:?}");
    }
}
