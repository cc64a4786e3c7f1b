//! Every text is a valid shader, and all variants give the same result.

use super::call::Call;
use super::causal::Causal;
use super::form::{Form, Tile, choose};
use super::gradient::recorded;
use super::kernel::ATTENTION;
use super::problem::{Mask, Problem, Shapes};
use crate::ops::check::{valid, valid_beyond_fxc};
use crate::tensor::layout::Layout;
use crate::{Gpu, Options, Tensor};
use lapidary_core::{
    DType,
    adapter::{AdapterKind, ShaderCompiler},
};

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
                vec4s: true,
                one_row: false,
            },
            DType::Bool,
        ),
        (
            Mask {
                is_given: true,
                is_bool: true,
                vec4s: false,
                one_row: true,
            },
            DType::Bool,
        ),
        (
            Mask {
                is_given: true,
                is_bool: false,
                vec4s: true,
                one_row: true,
            },
            DType::F16,
        ),
        (
            Mask {
                is_given: true,
                is_bool: false,
                vec4s: false,
                one_row: false,
            },
            DType::F32,
        ),
    ];
    for tile in tiles() {
        for (which, &(mask, of_mask)) in masks.iter().enumerate() {
            let vec4s = match tile {
                Tile::Register { .. } => [1, 16, 2, 4, 2][which],
                Tile::Workgroup => [1, 4, 2, 4, 2][which],
            };
            let is_causal = which % 2 == 1;
            let form = Form {
                tile,
                vec4s,
                mask,
                is_causal,
            };
            assert_eq!(Form::unpack(form.pack()), form);
            let dtype = if which == 2 { DType::F16 } else { DType::F32 };
            let vec4s = 0b10111 | u8::from(mask.vec4s || !mask.is_given) << 3;
            let check = match tile {
                Tile::Register { .. } => valid_beyond_fxc,
                Tile::Workgroup => valid,
            };
            check(
                &ATTENTION,
                form.pack(),
                &[dtype, dtype, dtype, of_mask, dtype],
                vec4s,
            );
        }
    }
}

#[test]
fn every_variant_computes_the_same() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
    let noise = |seed, shape: &[usize]| {
        let made = gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32);
        made.expect("room")
    };
    let lanes = gpu.caps().subgroup_lanes;
    let runs = |tile: &Tile| match *tile {
        Tile::Register {
            lanes: 1..,
            width: 1,
        }
        | Tile::Register {
            lanes: 0,
            width: 1..4,
        } => false,
        Tile::Register {
            lanes: own @ 1.., ..
        } => lanes == Some((own.into(), own.into())),
        _ => true,
    };
    for (which, (queries, keys, size, columns)) in
        [(37, 70, 12, 8), (70, 133, 20, 68)].into_iter().enumerate()
    {
        let q = noise(1, &[2, 4, queries, size]);
        let (k, v) = (
            noise(2, &[2, 2, keys, size]),
            noise(3, &[2, 2, keys, columns]),
        );
        let floats = noise(4, &[2, 1, queries, keys]);
        let bools = floats.gt(0).unwrap();
        let call = Call {
            q: &q,
            k: &k,
            v: &v,
            mask: Some(if which == 0 { &floats } else { &bools }),
            is_causal: which == 1,
            first: 0,
            scale: None,
        };
        let shapes = Shapes::new(
            &q.layout,
            &k.layout,
            &v.layout,
            call.mask.map(|m| &m.layout),
        )
        .unwrap();
        let expected = gpu.zeros(&shapes.result, DType::F32).unwrap();
        super::blocks::run(&call, &shapes, 1.0 / (size as f32).sqrt(), &expected).unwrap();
        // As in a part of a longer call, which does not begin with the first query.
        let first = 19;
        let of = |whole: &Tensor| whole.narrow(-2, first, queries - first).unwrap();
        let (q, mask) = (of(&q), of(call.mask.unwrap()));
        let late = Call {
            q: &q,
            mask: Some(&mask),
            first,
            ..call
        };
        for tile in tiles().into_iter().filter(runs) {
            for (call, expected) in [(call, expected.clone()), (late, of(&expected))] {
                let got = call.run(Some(tile)).unwrap().to_vec::<f32>().unwrap();
                for (got, expected) in got.iter().zip(expected.to_vec::<f32>().unwrap()) {
                    assert!(
                        (got - expected).abs() < 1e-4,
                        "{tile:?}, case {which}: {got} for {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn fxc_gets_no_variant_in_registers() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
    let layout = Layout::contiguous(&[2, 64, 32]);
    let shapes = Shapes::new(&layout, &layout, &layout, None).unwrap();
    let problem = Problem::new(&shapes, [&layout; 3], None, 1.0).unwrap();
    let chosen = |compiler, max_workgroup_bytes| {
        let caps = {
            let mut caps = gpu.caps().clone();
            caps.kind = AdapterKind::Integrated;
            caps.compiler = compiler;
            caps.max_invocations = 256;
            caps.max_workgroup_bytes = max_workgroup_bytes;
            caps
        };
        choose(&caps, &problem, false, false).map(|form| form.tile)
    };
    assert_eq!(chosen(ShaderCompiler::Fxc, 32 << 10), Some(Tile::Workgroup));
    assert_eq!(chosen(ShaderCompiler::Fxc, 8 << 10), None);
    let in_registers = |tile| matches!(tile, Some(Tile::Register { .. }));
    assert!(in_registers(chosen(ShaderCompiler::Driver, 8 << 10)));
}

#[test]
fn blocks_of_queries_have_the_gradients_of_the_whole() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
    let noise = |seed, shape: &[usize]| {
        let made = gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32);
        made.and_then(Tensor::requires_grad).expect("room")
    };
    let [q, k, v] = [(1, 4, 7, 3), (2, 2, 5, 3), (3, 2, 5, 2)]
        .map(|(seed, heads, rows, elements)| noise(seed, &[2, heads, rows, elements]));
    let masks = [noise(4, &[4, 7, 5]), noise(5, &[2, 1, 1, 5])];
    for (mask, causal) in [
        (None, Causal::No),
        (None, Causal::FirstKey),
        (Some(&masks[0]), Causal::LastKey),
        (Some(&masks[1]), Causal::FirstKey),
    ] {
        let call = Call {
            q: &q,
            k: &k,
            v: &v,
            mask,
            is_causal: false,
            first: 0,
            scale: None,
        };
        // A query of each head takes 2 · 4 · 5 · 4 bytes.
        let [whole, blocks] = [1 << 20, 2 * 160].map(|block_bytes| {
            let y = recorded(&call, causal, block_bytes).unwrap();
            let gradients = y.square().unwrap().sum_all().unwrap().backward().unwrap();
            let of = [Some(&q), Some(&k), Some(&v), mask];
            let of = of.into_iter().flatten().map(|operand| {
                let gradient = gradients.get(operand).expect("it depends on it");
                gradient.to_vec::<f32>().unwrap()
            });
            of.collect::<Vec<_>>().concat()
        });
        for (got, expected) in blocks.iter().zip(&whole) {
            assert!(
                (got - expected).abs() < 1e-4,
                "{causal:?}: {got} for {expected}"
            );
        }
    }
}

#[test]
fn recorded_blocks_of_queries_go_backward() {
    let gpu = Gpu::open(Options::from_env().unwrap()).expect("an adapter");
    let noise = |seed, shape: &[usize]| {
        let made = gpu.rand_normal(shape, 0.0, 1.0, seed, DType::F32);
        made.and_then(Tensor::requires_grad).expect("room")
    };
    let [q, k, v] = [1, 2, 3].map(|seed| noise(seed, &[2, 4, 3]));
    // The gradient by a block of one query is that of the mask, without a sum.
    let mask = noise(4, &[2, 1, 4]);
    let call = Call {
        q: &q,
        k: &k,
        v: &v,
        mask: Some(&mask),
        is_causal: false,
        first: 0,
        scale: None,
    };
    let [whole, blocks] = [1 << 20, 1].map(|block_bytes| {
        let y = recorded(&call, Causal::No, block_bytes).unwrap();
        let loss = y.square().unwrap().sum_all().unwrap();
        let gradients = loss.backprop().record().run().unwrap();
        let squares = [&q, &k, &v, &mask].map(|operand| {
            let gradient = gradients.get(operand).expect("it depends on it");
            gradient.square().unwrap().sum_all().unwrap()
        });
        let [first, rest @ ..] = &squares;
        let sum = (rest.iter()).try_fold(first.clone(), |sum, square| sum + square);
        let again = sum.unwrap().backward().unwrap();
        let read = [&q, &k, &v, &mask].map(|operand| {
            let gradient = again.get(operand).expect("it depends on it");
            gradient.to_vec::<f32>().unwrap()
        });
        read.concat()
    });
    for (got, expected) in blocks.iter().zip(&whole) {
        let tolerance = 1e-4 * (1.0 + expected.abs());
        assert!((got - expected).abs() < tolerance, "{got} for {expected}");
    }
}
