//! Every text is a valid shader, every variant computes the same, and the choice is as documented.

mod chosen;
mod cooperative;
mod parts;
mod scaled;

use super::choice::{choose, compiles_soon};
use super::epilogue::{Activation, Epilogue};
use super::form::{End, Form, Order, Packing, Spread, Tile};
use super::pack::PACK;
use super::problem::Problem;
use super::{Shapes, kernel_of};
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use crate::{Gpu, Options};
use lapidary_core::internal::wgsl::{Target, shader};
use lapidary_core::internal::{BuiltInKernel, MAX_OPERANDS, MAX_PARAMS_BYTES, Variant, wgsl};
use lapidary_core::{
    Caps, DType,
    adapter::{AdapterKind, ShaderCompiler},
};
use lapidary_testing::{translate, translate_beyond_fxc};

const ORDERS: [Order; 3] = [Order::AlongK, Order::AlongEdge, Order::Stepped];

const fn split(rows: u8, columns: u8, lanes: u8) -> Tile {
    Tile::Split {
        rows,
        columns,
        lanes,
        vec8s: true,
    }
}

const fn register(rows: u8, vec4s: u8, lanes: u8) -> Tile {
    Tile::Register { rows, vec4s, lanes }
}

/// Every tile that the rule may choose, for subgroups of `lanes`; 0 means none.
fn tiles(lanes: u8) -> Vec<Tile> {
    let both = |rows: &[u8], lanes| -> Vec<Tile> {
        let vec4s = |&rows: &u8| [1, 2].map(|vec4s| register(rows, vec4s, lanes));
        rows.iter().flat_map(vec4s).collect()
    };
    let mut tiles = vec![Tile::Naive];
    tiles.extend(both(&[1, 4, 8, 16], 0));
    if lanes > 0 {
        tiles.extend(both(&[1, 4, 8, 16, 32], lanes));
        for (rows, columns) in [
            (1, 4),
            (1, 8),
            (1, 16),
            (1, 32),
            (1, 64),
            (2, 4),
            (2, 8),
            (2, 16),
            (2, 32),
            (4, 4),
            (4, 8),
        ] {
            tiles.push(split(rows, columns, lanes));
        }
        if lanes <= 8 {
            let (rows, vec4s) = (64, 1);
            tiles.push(Tile::Packed { rows, vec4s, lanes });
        }
    }
    tiles.extend([4, 8].map(|rows| Tile::Workgroup { rows }));
    tiles.extend([1, 2, 4, 8].map(|rows| Tile::Skinny { rows }));
    tiles
}

/// Panics if the form's shader is invalid, in one window or in three.
fn validate(form: Form, dtype: DType, vec4s: u8) {
    validate_of(form, [dtype; MAX_OPERANDS], vec4s);
}

fn validate_of(form: Form, dtypes: [DType; MAX_OPERANDS], vec4s: u8) {
    let variant = Variant {
        code: form.pack(),
        dtypes,
        vec4s,
    };
    validate_variant(kernel_of(form), &variant);
}

fn validate_variant(kernel: &BuiltInKernel, variant: &Variant) {
    let last = kernel.operands.len() - 1;
    let text = (kernel.text)(variant);
    for (windows, wide_words) in [(1, true), (1, false), (3, false)] {
        let mut layout = wgsl::Layout {
            parts: [0; MAX_OPERANDS],
            windows: [windows; MAX_OPERANDS],
            writable: 1 << last,
        };
        for (part, index) in layout.parts[..=last].iter_mut().zip(0..) {
            *part = index;
        }
        let target = Target {
            window_bytes: 64 << 10,
            immediates: windows == 1,
            enables: false,
            wide_words,
        };
        let whole = shader(&text, kernel.operands, variant, &layout, &target);
        match is_of_fxc(kernel, variant) {
            true => translate(kernel.name, &whole),
            false => translate_beyond_fxc(kernel.name, &whole),
        };
        let needs_enabling = text.contains("subgroup");
        let enables = true;
        let target = Target { enables, ..target };
        let for_browsers = shader(&text, kernel.operands, variant, &layout, &target);
        assert_eq!(
            for_browsers.strip_prefix("enable subgroups;\n"),
            needs_enabling.then_some(&whole[..]),
            "{variant:?}"
        );
    }
}

/// Whether a device with FXC can get the variant. It has no subgroups, and so no packed operands.
fn is_of_fxc(kernel: &BuiltInKernel, variant: &Variant) -> bool {
    let fxc = {
        let mut caps = caps(AdapterKind::Discrete, None);
        caps.compiler = ShaderCompiler::Fxc;
        caps
    };
    kernel.name != PACK.name && compiles_soon(&fxc, Form::unpack(variant.code).tile)
}

#[test]
fn every_text_that_ends_with_more_is_a_valid_shader() {
    let [a, b] = [Order::AlongK; 2];
    let activations = [None].into_iter().chain(Activation::ALL.map(Some));
    let mut ends = Vec::new();
    for (index, activation) in activations.enumerate() {
        for flags in 0..8_u8 {
            let end = End {
                scale: flags & 1 != 0,
                bias: flags & 2 != 0,
                activation,
                residual: flags & 4 != 0,
                columns: (index + flags.count_ones() as usize).is_multiple_of(2),
            };
            ends.push((index, end));
        }
    }
    let tiles = [
        register(4, 1, 8),
        register(8, 1, 0),
        Tile::Packed {
            rows: 32,
            vec4s: 1,
            lanes: 8,
        },
        Tile::Workgroup { rows: 4 },
        Tile::Skinny { rows: 4 },
    ];
    for (index, end) in ends {
        let tile = tiles[index % tiles.len()];
        let form = Form {
            tile,
            a,
            b,
            group_log2: 0,
            spread: Spread::Linear,
            end,
        };
        assert_eq!(Form::unpack(form.pack()), form);
        validate(form, DType::F32, 0b11);
        validate(form, DType::F32, 0b111111);
        validate(form, DType::F16, 0b111111);
    }
}

#[test]
fn every_text_that_packs_is_a_valid_shader() {
    for lanes in [4, 8] {
        for (order, dtype) in ORDERS
            .into_iter()
            .flat_map(|o| [DType::F32, DType::F16, DType::Bf16, DType::I8].map(|dtype| (o, dtype)))
        {
            for vec4s in [0b10, 0b11] {
                let mut dtypes = [DType::F32; MAX_OPERANDS];
                dtypes[0] = dtype;
                for (spread, whole_k) in [
                    (Spread::Single, true),
                    (Spread::Flat, false),
                    (Spread::Linear, false),
                ] {
                    let packing = Packing {
                        order,
                        lanes,
                        spread,
                        whole_k,
                    };
                    let variant = Variant {
                        code: packing.pack(),
                        dtypes,
                        vec4s: if order == Order::Stepped { 0b10 } else { vec4s },
                    };
                    assert_eq!(Packing::unpack(packing.pack()), packing);
                    validate_variant(&PACK, &variant);
                }
            }
        }
    }
}

#[test]
fn every_text_is_a_valid_shader() {
    for lanes in [4, 8, 32] {
        let others = if lanes == 8 { vec![] } else { tiles(0) };
        for tile in tiles(lanes) {
            // Once is enough for a tile that no number of lanes changes.
            if others.contains(&tile) {
                continue;
            }
            for (a, b) in ORDERS.iter().flat_map(|&a| ORDERS.map(|b| (a, b))) {
                if matches!(tile, Tile::Naive | Tile::Packed { .. })
                    && (a, b) != (Order::AlongK, Order::AlongK)
                {
                    continue;
                }
                let spread = match tile {
                    Tile::Register { rows: 8, .. } => Spread::Linear,
                    Tile::Register { rows: 16, .. } => Spread::Flat,
                    Tile::Split { rows: 4, .. } => Spread::Flat,
                    Tile::Split { rows: 2, .. } => Spread::Linear,
                    Tile::Register { .. } | Tile::Packed { .. } | Tile::Split { .. } => {
                        Spread::Single
                    }
                    _ => Spread::Linear,
                };
                let form = Form {
                    tile,
                    a,
                    b,
                    group_log2: 0,
                    spread,
                    end: End::default(),
                };
                assert_eq!(Form::unpack(form.pack()), form);
                let aligned = u8::from(a != Order::Stepped) | u8::from(b != Order::Stepped) << 1;
                validate(form, DType::F32, aligned | 4);
                validate(form, DType::F16, 4);
                if tile != Tile::Naive {
                    validate(form, DType::F32, 0);
                }
                if lanes == 8 && a == Order::AlongK {
                    validate(form, DType::Bf16, aligned | 4);
                    let mut weights = [DType::F32; MAX_OPERANDS];
                    weights[1] = DType::I8;
                    validate_of(form, weights, aligned | 4);
                }
            }
        }
    }
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        let [a, b] = [Order::AlongK; 2];
        let tile = Tile::Naive;
        let spread = Spread::Linear;
        validate(
            Form {
                tile,
                a,
                b,
                group_log2: 0,
                spread,
                end: End::default(),
            },
            dtype,
            4,
        );
    }
    assert!(size_of::<super::Params>() <= MAX_PARAMS_BYTES);
}

#[test]
fn only_texts_that_broadcast_name_subgroups() {
    // The device must enable the features that a text names, and a browser may lack them.
    for tile in tiles(8) {
        let [a, b] = [Order::AlongK; 2];
        let variant = Variant {
            code: Form {
                tile,
                a,
                b,
                group_log2: 0,
                spread: Spread::Linear,
                end: End::default(),
            }
            .pack(),
            dtypes: [DType::F32; MAX_OPERANDS],
            vec4s: 7,
        };
        let broadcasts = matches!(
            tile,
            Tile::Register { lanes: 8, .. } | Tile::Packed { .. } | Tile::Split { .. }
        );
        assert_eq!(
            super::text(&variant).contains("subgroup"),
            broadcasts,
            "{tile:?}"
        );
    }
}

fn problem(a: &Layout, b: &Layout) -> Problem {
    let shapes = Shapes::new(a, b).unwrap();
    Problem::new(&shapes.batch, &shapes.a, &shapes.b, true)
}

#[test]
fn a_batch_over_one_matrix_is_more_rows() {
    let x = Layout::contiguous(&[5, 7, 8]);
    let weight = Layout::contiguous(&[12, 8]).transpose(0, 1).unwrap();
    let folded = problem(&x, &weight);
    assert_eq!(
        (folded.m, folded.n, folded.k, folded.matrices),
        (35, 12, 8, 1)
    );
    assert_eq!(
        (folded.a.order(), folded.b.order()),
        (Order::AlongK, Order::AlongK)
    );
    assert!(folded.a.is_vec4_aligned() && folded.b.is_vec4_aligned());
    let apart = problem(&x.narrow(1, 0, 6).unwrap(), &weight);
    assert_eq!((apart.m, apart.matrices), (6, 5));
    let rows = problem(&x.narrow(1, 0, 1).unwrap(), &weight);
    assert_eq!((rows.m, rows.matrices), (5, 1));
}

#[test]
fn one_column_is_computed_as_one_row() {
    let product = problem(&Layout::contiguous(&[40, 16]), &Layout::contiguous(&[16]));
    assert_eq!((product.m, product.n, product.k), (1, 40, 16));
    assert!(product.swapped && product.a.is_vec4_aligned() && product.b.is_vec4_aligned());
    assert_eq!(product.b.order(), Order::AlongK);
}

#[test]
fn lines_that_start_anywhere_are_no_vec4s() {
    let b = Layout::contiguous(&[8, 8]);
    let is_vec4_aligned = |a: &Layout| problem(a, &b).a.is_vec4_aligned();
    assert!(is_vec4_aligned(
        &Layout::contiguous(&[12, 8]).narrow(0, 1, 9).unwrap()
    ));
    assert!(!is_vec4_aligned(
        &Layout::contiguous(&[12, 9]).narrow(1, 0, 8).unwrap()
    ));
    assert!(!is_vec4_aligned(
        &Layout::contiguous(&[12, 16]).narrow(1, 2, 8).unwrap()
    ));
    assert!(is_vec4_aligned(
        &Layout::contiguous(&[12, 16]).narrow(1, 4, 8).unwrap()
    ));
}

fn caps(kind: AdapterKind, lanes: Option<(u32, u32)>) -> Caps {
    let (gpu, _) = Gpu::simulated(Default::default()).unwrap();
    let mut caps = gpu.caps().clone();
    caps.name = String::new();
    caps.backend = "vulkan".into();
    caps.driver = String::new();
    caps.kind = kind;
    caps.compiler = ShaderCompiler::Driver;
    caps.max_buffer_bytes = 1 << 30;
    caps.max_binding_bytes = 1 << 27;
    caps.max_storage_bindings = 8;
    caps.offset_alignment_bytes = 256;
    caps.uniform_alignment_bytes = 256;
    caps.max_immediate_bytes = 128;
    caps.max_groups = 65535;
    caps.max_invocations = 256;
    caps.max_workgroup_bytes = 16384;
    caps.subgroup_lanes = lanes;
    caps.cooperative_size = None;
    caps.wide_words = false;
    caps.maps_slabs = false;
    caps.most_work = u64::MAX;
    caps.runs_reference_kernels = false;
    caps
}

#[test]
fn the_choice_follows_the_adapter_and_the_shape() {
    let check = |caps: &Caps, [m, n, k]: [usize; 3], expected: Tile| {
        let product = problem(&Layout::contiguous(&[m, k]), &Layout::contiguous(&[k, n]));
        assert_eq!(
            choose(caps, [DType::F32; 3], &product, || u64::MAX),
            expected,
            "{m} x {n} x {k}"
        );
    };
    let lavapipe = caps(AdapterKind::Cpu, Some((8, 8)));
    check(&lavapipe, [4, 4, 4], Tile::Naive);
    check(&lavapipe, [1, 1, 100_000], split(1, 4, 8));
    check(&lavapipe, [1, 4, 60], Tile::Naive);
    check(&lavapipe, [1, 4, 2000], split(1, 4, 8));
    check(&lavapipe, [400, 400, 400], register(32, 1, 8));
    let packed = Tile::Packed {
        rows: 64,
        vec4s: 1,
        lanes: 8,
    };
    check(&lavapipe, [1024, 1024, 1024], packed);
    check(&lavapipe, [511, 511, 511], packed);
    check(&lavapipe, [128, 128, 128], register(32, 1, 8));
    check(&lavapipe, [1, 1024, 1024], split(1, 32, 8));
    check(&lavapipe, [1, 2048, 2048], split(1, 64, 8));
    check(&lavapipe, [2048, 1, 2048], split(1, 16, 8));
    check(&lavapipe, [2, 2048, 2048], split(2, 32, 8));
    check(&lavapipe, [3, 2048, 2048], register(4, 2, 8));
    check(&lavapipe, [1, 2048, 32], register(1, 2, 8));
    check(&lavapipe, [8, 2048, 2048], register(8, 2, 8));
    check(
        &caps(AdapterKind::Cpu, None),
        [512, 512, 512],
        register(16, 2, 0),
    );
    check(
        &caps(AdapterKind::Cpu, Some((8, 16))),
        [512, 512, 512],
        register(16, 2, 0),
    );
    let discrete = caps(AdapterKind::Discrete, Some((32, 32)));
    check(&discrete, [4096, 4096, 4096], Tile::Workgroup { rows: 8 });
    check(&discrete, [256, 256, 256], Tile::Workgroup { rows: 4 });
    check(&discrete, [3, 4096, 4096], Tile::Skinny { rows: 4 });
    let of_fxc = |kind| {
        let mut caps = caps(kind, None);
        caps.compiler = ShaderCompiler::Fxc;
        caps
    };
    let discrete_fxc = of_fxc(AdapterKind::Discrete);
    check(&discrete_fxc, [4096; 3], Tile::Workgroup { rows: 4 });
    check(&discrete_fxc, [5, 4096, 4096], Tile::Skinny { rows: 4 });
    check(&discrete_fxc, [8, 4096, 4096], Tile::Skinny { rows: 4 });
    check(&discrete_fxc, [4, 4096, 4096], Tile::Skinny { rows: 4 });
    check(&of_fxc(AdapterKind::Cpu), [512; 3], register(8, 2, 0));
    let product = problem(
        &Layout::contiguous(&[64, 64]),
        &Layout::contiguous(&[64, 64]),
    );
    assert_eq!(
        choose(&discrete, [DType::I32; 3], &product, || u64::MAX),
        Tile::Naive
    );
}

/// The lanes of a subgroup, if tiles can rely on them.
fn lanes(gpu: &Gpu) -> Option<u8> {
    super::choice::lanes(gpu.caps())
}

/// Values that an i8 holds, and whose sums are exact in f32 and in f16.
fn exact(gpu: &Gpu, shape: &[usize], seed: usize) -> Tensor {
    let len = shape.iter().product();
    let values: Vec<f32> = (0..len)
        .map(|i| ((i * 7 + seed * 3) % 5) as f32 - 2.0)
        .collect();
    gpu.tensor(&values, shape).unwrap()
}

/// The product by a given tile, as f32.
fn singles(a: &Tensor, b: &Tensor, end: &Epilogue, tile: Tile) -> Vec<f32> {
    let c = a.matmul_by(b, end, Some(tile)).unwrap();
    c.cast(DType::F32).unwrap().to_vec().unwrap()
}

/// An operand of two matrices, as a view of the given order.
fn operand(
    gpu: &Gpu,
    dtype: DType,
    [rows, columns]: [usize; 2],
    order: Order,
    slack: usize,
) -> Tensor {
    let part = |rows: usize, columns: usize| {
        let whole = exact(gpu, &[2, rows, columns + slack], rows);
        let whole = whole.cast(dtype).unwrap();
        whole.narrow(2, slack.min(1), columns).unwrap()
    };
    match order {
        Order::AlongK => part(rows, columns),
        Order::AlongEdge => part(columns, rows).transpose(1, 2).unwrap(),
        Order::Stepped => part(rows, 2 * columns).slice(2, None, None, 2).unwrap(),
    }
}

/// Compares a product with a full epilogue with the same by separate operations.
fn check_end(gpu: &Gpu, tile: Tile, [m, n, k]: [usize; 3], activation: Activation) {
    let m = if matches!(tile, Tile::Register { rows: 1, .. }) {
        1
    } else {
        m
    };
    let (a, b) = (exact(gpu, &[2, m, k], 1), exact(gpu, &[2, k, n], 2));
    let end = Epilogue::new()
        .scale(0.125)
        .bias(&exact(gpu, &[n + 3], 3).narrow(0, 3, n).unwrap())
        .activation(activation)
        .residual(&exact(gpu, &[m, n], 4));
    let fused = a.matmul_by(&b, &end, Some(tile)).unwrap();
    let product = a.matmul_by(&b, &Epilogue::new(), Some(tile)).unwrap();
    let apart = end.apply_in(product).unwrap().to_vec::<f32>().unwrap();
    for (got, expected) in fused.to_vec::<f32>().unwrap().into_iter().zip(apart) {
        assert!(
            (got - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{tile:?} {m} x {n} x {k} {activation:?}: {got} for {expected}"
        );
    }
}

#[test]
fn every_variant_ends_like_operations_of_their_own() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let mut tiles = vec![register(1, 2, 0), register(8, 1, 0)];
    tiles.extend([4, 8].map(|rows| Tile::Workgroup { rows }));
    tiles.push(Tile::Skinny { rows: 8 });
    if let Some(lanes) = lanes(&gpu).filter(|&lanes| lanes <= 8) {
        tiles.extend([
            register(1, 2, lanes),
            register(4, 1, lanes),
            register(16, 1, lanes),
            split(1, 8, lanes),
            split(4, 8, lanes),
        ]);
        tiles.push(Tile::Packed {
            rows: 32,
            vec4s: 1,
            lanes,
        });
    }
    for (index, tile) in tiles.into_iter().enumerate() {
        let activation = Activation::ALL[index % Activation::ALL.len()];
        check_end(&gpu, tile, [36, 68, 20], activation);
        check_end(&gpu, tile, [33, 65, 31], activation);
    }
}
