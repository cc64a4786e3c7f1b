//! Cooperative matrices: valid at every size, chosen where they fit, and equal to the reference
//! where the adapter has them. Mesa's software adapter has them from 25.2 on.

use super::*;
use crate::ops::matmul::choice::cooperative;
use crate::ops::matmul::right::{Groups, Right};

const HALVES: [DType; 3] = [DType::F16; 3];

fn with_squares(size: u32, lanes: u32) -> Caps {
    {
        let mut caps = caps(AdapterKind::Discrete, Some((lanes, lanes)));
        caps.cooperative_size = Some(size);
        caps.max_workgroup_bytes = 48 << 10;
        caps
    }
}

#[test]
fn every_text_by_cooperative_matrices_is_a_valid_shader() {
    for (size, lanes, large) in [
        (8, 8, false),
        (8, 32, true),
        (16, 32, false),
        (16, 16, true),
    ] {
        let tile = Tile::Cooperative { size, large, lanes };
        for (a, b) in ORDERS.iter().flat_map(|&a| ORDERS.map(|b| (a, b))) {
            let mut form = Form {
                tile,
                a,
                b,
                group_log2: 0,
                spread: Spread::Linear,
                end: End::default(),
            };
            assert_eq!(Form::unpack(form.pack()), form);
            let aligned = u8::from(a != Order::Stepped) | u8::from(b != Order::Stepped) << 1;
            validate_natively(form, [DType::F16; MAX_OPERANDS], aligned | 4);
            validate_natively(form, [DType::F16; MAX_OPERANDS], 4);
            let mut weights = [DType::F16; MAX_OPERANDS];
            weights[1] = DType::I8;
            validate_natively(form, weights, 4);
            form.end = End {
                bias: true,
                activation: Some(Activation::Relu),
                ..End::default()
            };
            validate_natively(form, [DType::F16; MAX_OPERANDS], aligned | 0b1100);
        }
    }
}

/// As [`validate_of`], but without browsers, which have no cooperative matrices.
fn validate_natively(form: Form, dtypes: [DType; MAX_OPERANDS], vec4s: u8) {
    let variant = Variant {
        code: form.pack(),
        dtypes,
        vec4s,
    };
    let kernel = kernel_of(form);
    let text = (kernel.text)(&variant);
    for windows in [1, 3] {
        let mut layout = wgsl::Layout {
            parts: [0; MAX_OPERANDS],
            windows: [windows; MAX_OPERANDS],
            writable: 1 << (kernel.operands.len() - 1),
        };
        for (part, index) in layout.parts[..kernel.operands.len()].iter_mut().zip(0..) {
            *part = index;
        }
        let target = Target {
            window_bytes: 64 << 10,
            immediates: windows == 1,
            enables: false,
            wide_words: windows == 1,
        };
        translate(
            kernel.name,
            &shader(&text, kernel.operands, &variant, &layout, &target),
        );
    }
}

#[test]
fn halves_are_multiplied_in_squares_where_the_device_and_the_shape_have_them() {
    let problem_of = |m, n, k| problem(&Layout::contiguous(&[m, k]), &Layout::contiguous(&[k, n]));
    let rule = |caps: &Caps, dtypes, [m, n, k]: [usize; 3]| {
        choose(caps, dtypes, &problem_of(m, n, k), || u64::MAX)
    };
    let nvidia = with_squares(16, 32);
    let (size, lanes) = (16, 32);
    let tile = |large| Tile::Cooperative { size, large, lanes };
    let large = [4096; 3];
    assert_eq!(rule(&nvidia, HALVES, large), tile(true));
    assert_eq!(rule(&nvidia, HALVES, [256; 3]), tile(false));
    let weights = [DType::F16, DType::I8, DType::F16];
    assert_eq!(rule(&nvidia, weights, large), tile(true));
    let into_singles = [DType::F16, DType::F16, DType::F32];
    assert_eq!(rule(&nvidia, into_singles, large), tile(true));

    // Halves cannot hold all values of these types.
    let workgroup = Tile::Workgroup { rows: 8 };
    for dtype in [DType::F32, DType::Bf16] {
        for dtypes in [
            [dtype; 3],
            [DType::F16, dtype, dtype],
            [dtype, DType::F16, dtype],
        ] {
            assert_eq!(rule(&nvidia, dtypes, large), workgroup, "{dtypes:?}");
        }
        assert_eq!(rule(&nvidia, [dtype, dtype, DType::F16], large), workgroup);
    }
    // Few rows; few steps.
    assert_eq!(
        rule(&nvidia, HALVES, [3, 4096, 4096]),
        Tile::Skinny { rows: 4 }
    );
    assert_eq!(rule(&nvidia, HALVES, [4096, 4096, 8]), workgroup);
    // Devices without cooperative matrices, with subgroups that vary, or with too little memory.
    let but = |change: fn(&mut Caps)| {
        let mut caps = with_squares(16, 32);
        change(&mut caps);
        caps
    };
    for lesser in [
        but(|caps| caps.cooperative_size = None),
        but(|caps| caps.subgroup_lanes = Some((32, 64))),
        but(|caps| caps.max_workgroup_bytes = 12 << 10),
    ] {
        assert_ne!(rule(&lesser, HALVES, large), tile(false));
        assert_ne!(rule(&lesser, HALVES, large), tile(true));
    }
    let with_room_for_small = but(|caps| caps.max_workgroup_bytes = 16 << 10);
    assert_eq!(rule(&with_room_for_small, HALVES, large), tile(false));
    let halved = but(|caps| caps.max_invocations = 128);
    assert!(cooperative(&halved, HALVES, &problem_of(512, 512, 512), true).is_none());
    assert!(cooperative(&halved, HALVES, &problem_of(512, 512, 512), false).is_some());
}

/// The tiles by cooperative matrices that this adapter supports.
fn tiles_of(gpu: &Gpu) -> Vec<Tile> {
    let caps = gpu.caps();
    let whole = problem(
        &Layout::contiguous(&[64, 64]),
        &Layout::contiguous(&[64, 64]),
    );
    let tiles = [false, true].map(|large| cooperative(caps, HALVES, &whole, large));
    tiles.into_iter().flatten().collect()
}

/// The product of views in these orders, by the tile and by the reference kernel.
fn products(
    gpu: &Gpu,
    tile: Tile,
    [of_a, of_b]: [Order; 2],
    dtype: DType,
    ([m, n, k], slack): ([usize; 3], usize),
) -> [Vec<f32>; 2] {
    let a = operand(gpu, DType::F16, [m, k], of_a, slack);
    let of_columns = match of_b {
        Order::AlongK => Order::AlongEdge,
        Order::AlongEdge => Order::AlongK,
        Order::Stepped => Order::Stepped,
    };
    let b = operand(gpu, dtype, [k, n], of_columns, slack);
    [tile, Tile::Naive].map(|tile| singles(&a, &b, &Epilogue::new(), tile))
}

#[test]
fn squares_of_halves_compute_the_same_as_the_reference() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    // Whole tiles, partial ones in vec4s, partial ones off the vec4s, and less than a tile.
    let shapes = [
        ([128, 64, 64], 0),
        ([36, 132, 20], 4),
        ([33, 65, 31], 1),
        ([16, 17, 16], 0),
    ];
    for (index, tile) in tiles_of(&gpu).into_iter().enumerate() {
        let orders = ORDERS.iter().flat_map(|&a| ORDERS.map(|b| [a, b]));
        // Each pair of orders in one of the tiles, and every fourth with weights of eight bits.
        for (turn, orders) in orders.enumerate().filter(|(turn, _)| turn % 2 == index % 2) {
            let dtype = if turn % 4 < 3 { DType::F16 } else { DType::I8 };
            for shape in shapes {
                let [got, expected] = products(&gpu, tile, orders, dtype, shape);
                assert_eq!(got, expected, "{tile:?} {orders:?} {shape:?} {dtype}");
            }
        }
    }
}

#[test]
fn squares_of_halves_keep_the_sums_and_the_ends_of_others() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    for (index, tile) in tiles_of(&gpu).into_iter().enumerate() {
        let activation = Activation::ALL[index];
        let [m, n, k] = [70, 100, 300];
        // Some sums are far beyond the whole numbers that a half counts exactly.
        let a = (exact(&gpu, &[m, k], 1) * 8.0)
            .unwrap()
            .cast(DType::F16)
            .unwrap();
        let b = exact(&gpu, &[k, n], 2).cast(DType::F16).unwrap();
        let end = Epilogue::new()
            .scale(0.125)
            .bias(&exact(&gpu, &[n], 3).cast(DType::F16).unwrap())
            .activation(activation)
            .cast(DType::F32);
        let of = |tile| singles(&a, &b, &end, tile);
        let others = of(Tile::Workgroup { rows: 4 });
        for (got, expected) in of(tile).into_iter().zip(others) {
            assert!(
                (got - expected).abs() <= 1e-5 * expected.abs().max(1.0),
                "{tile:?} {activation:?}: {got} for {expected}"
            );
        }
    }
}

#[test]
fn each_matrix_of_a_batch_is_multiplied_by_its_own() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    for tile in tiles_of(&gpu) {
        let halves = |shape: &[usize], seed| exact(&gpu, shape, seed).cast(DType::F16).unwrap();
        let [m, n, k] = [40, 72, 24];
        let residual = halves(&[n], 5);
        for (a, b) in [
            (halves(&[3, m, k], 1), halves(&[3, k, n], 2)),
            // Broadcast over two dimensions that are not folded into rows.
            (halves(&[2, 1, m, k], 3), halves(&[3, k, n], 4)),
            (halves(&[m, k], 3), halves(&[3, k, n], 4)),
        ] {
            let end = Epilogue::new().residual(&residual).scale(0.5);
            let of = |tile| singles(&a, &b, &end, tile);
            let others = of(Tile::Workgroup { rows: 4 });
            assert_eq!(of(tile), others, "{tile:?} {a} {b}");
        }
    }
}

#[test]
fn what_is_not_finite_and_what_lies_past_the_end_stay_where_they_are() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    for tile in tiles_of(&gpu) {
        let [m, n, k] = [40, 40, 18];
        // The operands are views of a field of NaN, so that reads beyond their edges would show.
        let field = |rows: usize, columns: usize| {
            let mut values = vec![f32::NAN; (rows + 8) * (columns + 8)];
            for row in 0..rows {
                for column in 0..columns {
                    values[row * (columns + 8) + column] = ((row + column) % 3) as f32;
                }
            }
            if rows == m {
                values[5 * (columns + 8)] = f32::INFINITY;
            }
            let whole = gpu.tensor(&values, &[rows + 8, columns + 8]).unwrap();
            let whole = whole.cast(DType::F16).unwrap();
            whole
                .narrow(0, 0, rows)
                .unwrap()
                .narrow(1, 0, columns)
                .unwrap()
        };
        let (a, b) = (field(m, k), field(k, n));
        let of = |a: &Tensor, b: &Tensor, tile| {
            let values = singles(a, b, &Epilogue::new(), tile);
            values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(of(&a, &b, tile)[..5 * n], of(&a, &b, Tile::Naive)[..5 * n]);
        assert_eq!(of(&a, &b, tile)[6 * n..], of(&a, &b, Tile::Naive)[6 * n..]);
        let (by_columns, by_rows) = (field(k, m).transpose(0, 1).unwrap(), field(n, k));
        let by_rows = by_rows.transpose(0, 1).unwrap();
        assert_eq!(
            of(&by_columns, &by_rows, tile),
            of(&by_columns, &by_rows, Tile::Naive)
        );
    }
}

#[test]
fn weights_with_scales_of_groups_are_not_halves() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let b = exact(&gpu, &[64, 64], 1).cast(DType::I8).unwrap();
    let scales = gpu.tensor(&[1.0_f32; 128], &[64, 2]).unwrap();
    let groups = Groups {
        scales: &scales,
        log2: 5,
    };
    let plain = Right::from(&b).dtypes(DType::F16, DType::F16);
    let grouped = Right::grouped(&b, Some(groups)).dtypes(DType::F16, DType::F16);
    let whole = problem(
        &Layout::contiguous(&[64, 64]),
        &Layout::contiguous(&[64, 64]),
    );
    let nvidia = with_squares(16, 32);
    assert!(cooperative(&nvidia, plain, &whole, false).is_some());
    assert!(cooperative(&nvidia, grouped, &whole, false).is_none());
}
