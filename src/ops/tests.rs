//! Elementwise kernels without a device: every text is a valid shader, and every plan is correct.

use smallvec::SmallVec;

use super::elementwise::{Code, Fetch, Plan};
use super::{binary, check, copy, fill, mask, random, select, ternary, unary};
use crate::tensor::layout::Layout;
use lapidary_core::internal::{BuiltInKernel, Look, MAX_OPERANDS, Variant};
use lapidary_core::sim::SimOptions;
use lapidary_core::{Caps, DType, Gpu, adapter::AdapterKind};

const INTO: u64 = 1 << 13;
const WHOLE: u64 = 1 << 12;
const UNROLL: u64 = 1 << 14;
const BROAD: u64 = 1 << 27;
const TOGETHER: u64 = 1 << 15;
const VEC8S: u64 = 1 << 26;

/// Codes of every kind for this many tensors: vec4s, splats, strides, rows that end within a vec4.
fn codes(tensors: usize, is_scalar: &[bool]) -> Vec<u64> {
    let base = Layout::contiguous(&[3, 4, 5, 8]);
    let view = |axes: &[isize]| base.permute(axes).expect("four axes");
    let plane = Layout::contiguous(&[6, 7]);
    let sets: [(&[usize], Layout, Layout); 5] = [
        (
            &[480],
            Layout::contiguous(&[480]),
            Layout::contiguous(&[480]),
        ),
        (&[3, 4, 5, 8], base.clone(), Layout::contiguous(&[8])),
        (&[3, 5, 4, 8], view(&[0, 2, 1, 3]), Layout::contiguous(&[])),
        (
            &[8, 5, 4, 3],
            view(&[3, 2, 1, 0]),
            Layout::contiguous(&[5, 1, 1]),
        ),
        (
            &[7, 6],
            plane.permute(&[1, 0]).expect("two axes"),
            Layout::contiguous(&[7, 1]),
        ),
    ];
    let mut codes = Vec::new();
    for (shape, first, second) in sets {
        let layouts = [&first, &second, &first].map(|l| l.broadcast_to(shape).expect("it fits"));
        let layouts: SmallVec<[&Layout; 3]> = layouts.iter().take(tensors).collect();
        let plan = Plan::new(shape, &layouts, is_scalar).expect("few dimensions");
        codes.push(plan.code.0);
    }
    codes
}

/// The vec4 bits that belong to a code.
fn vec4s(code: u64, is_scalar: &[bool]) -> u8 {
    let tensors: Vec<usize> = (0..is_scalar.len())
        .filter(|&input| !is_scalar[input])
        .collect();
    let reads = tensors
        .iter()
        .enumerate()
        .map(|(operand, &input)| u8::from(Code(code).fetch(input) == Fetch::Vec4) << operand);
    reads.sum::<u8>() | 1 << tensors.len()
}

/// Checks an operation in every form, and the first form in every type.
fn check(kernel: &BuiltInKernel, into: bool, op: u64, is_scalar: &[bool], dtypes: &[Vec<DType>]) {
    let tensors = is_scalar.iter().filter(|scalar| !**scalar).count();
    let flags = op | if into { INTO } else { 0 };
    for (which, code) in codes(tensors, is_scalar).into_iter().enumerate() {
        let (vec4s, code) = (vec4s(code, is_scalar), code | flags);
        if which > 0 {
            let together = if code & WHOLE == 0 { 0 } else { TOGETHER };
            for code in [code, code | BROAD, code | UNROLL | together] {
                check::valid(kernel, code, &dtypes[0], vec4s);
            }
            continue;
        }
        for dtypes in dtypes {
            let code = code | UNROLL | TOGETHER;
            check::valid(kernel, code, dtypes, vec4s);
            if !into && tensors > 0 && dtypes.iter().all(|&of| of == DType::F32) {
                check::valid(kernel, code | VEC8S, dtypes, vec4s);
            }
        }
    }
}

#[test]
fn every_unary_text_is_a_valid_shader() {
    for (index, op) in unary::UnaryOp::ALL.iter().enumerate() {
        let taken = DType::ALL
            .into_iter()
            .filter(|&dtype| op.takes().accepts(dtype));
        let dtypes: Vec<_> = taken
            .map(|dtype| vec![dtype, op.gives().dtype(dtype)])
            .collect();
        check(&unary::UNARY, false, index as u64, &[false], &dtypes);
        if index == 0 {
            check(&unary::UNARY_INTO, true, index as u64, &[false], &dtypes);
        }
    }
}

#[test]
fn every_binary_text_is_a_valid_shader() {
    for (index, op) in binary::BinaryOp::ALL.iter().enumerate() {
        let taken: Vec<_> = DType::ALL
            .into_iter()
            .filter(|&dtype| op.takes().accepts(dtype))
            .map(|dtype| (dtype, op.gives().dtype(dtype)))
            .collect();
        let of_two: Vec<_> = taken.iter().map(|&(x, y)| vec![x, x, y]).collect();
        let of_one: Vec<_> = taken.iter().map(|&(x, y)| vec![x, y]).collect();
        let op = index as u64;
        check(&binary::BINARY, false, op, &[false, false], &of_two);
        check(&binary::SCALAR, false, op, &[false, true], &of_one);
        if index == 0 {
            check(&binary::BINARY_INTO, true, op, &[false, false], &of_two);
            check(&binary::SCALAR_INTO, true, op, &[false, true], &of_one);
            check(&binary::SCALAR_FIRST, false, op, &[true, false], &of_one);
            check(
                &binary::SCALAR_FIRST_INTO,
                true,
                op,
                &[true, false],
                &of_one[..1],
            );
        }
    }
}

#[test]
fn every_ternary_text_is_a_valid_shader() {
    for (index, op) in ternary::TernaryOp::ALL.iter().enumerate() {
        let taken = DType::ALL.into_iter().filter(|&d| op.takes().accepts(d));
        let dtypes: Vec<_> = taken.map(|dtype| vec![dtype; 4]).collect();
        let op = index as u64;
        check(&ternary::TERNARY, false, op, &[false; 3], &dtypes);
        check(&ternary::TERNARY_INTO, true, op, &[false; 3], &dtypes[..1]);
    }
}

#[test]
fn every_text_of_select_fill_mask_and_random_is_a_valid_shader() {
    let dtypes = DType::ALL.map(|dtype| vec![DType::Bool, dtype, dtype, dtype]);
    let codes = codes(3, &[false; 3]);
    for (which, &code) in codes.iter().enumerate() {
        for dtypes in dtypes.iter().take(if which == 0 { usize::MAX } else { 1 }) {
            check::valid(&select::SELECT, code, dtypes, vec4s(code, &[false; 3]));
            let into = code | INTO;
            check::valid(&select::SELECT_INTO, into, dtypes, vec4s(code, &[false; 3]));
        }
    }
    let one_type = DType::ALL.map(|dtype| vec![DType::Bool, dtype, dtype]);
    let masked = [false, true, false];
    check(&select::MASKED_FILL, false, 0, &masked, &one_type);
    check(&select::MASKED_FILL_INTO, true, 0, &masked, &one_type);
    let plain = Plan::new(&[9], &[], &[]).expect("no map").code.0;
    for (index, op) in fill::FillOp::ALL.iter().enumerate() {
        for dtype in DType::ALL {
            if op.takes().accepts(dtype) {
                check::valid(&fill::FILL, plain | index as u64, &[dtype], 1);
                check::valid(&fill::FILL_INTO, plain | INTO | index as u64, &[dtype], 1);
            }
        }
    }
    for (index, op) in mask::MaskOp::ALL.iter().enumerate() {
        let taken = DType::ALL.into_iter().filter(|&d| op.takes().accepts(d));
        let dtypes: Vec<_> = taken.map(|dtype| vec![dtype, dtype]).collect();
        check(&mask::MASK, false, index as u64, &[false], &dtypes);
    }
    for op in 0..random::RandomOp::ALL.len() as u64 {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            check::valid(&random::RANDOM, plain | op | UNROLL, &[dtype], 1);
        }
    }
}

#[test]
fn every_text_that_looks_for_bugs_is_a_valid_shader() {
    for look in Look::ALL {
        let kernel = match look {
            Look::Clear => &lapidary_core::internal::CLEAR,
            _ => &lapidary_core::internal::PROBE,
        };
        check::valid(kernel, look as u64, &[DType::U32; 2], 0);
    }
}

#[test]
fn every_text_of_copy_is_a_valid_shader() {
    for from in DType::ALL {
        for to in DType::ALL {
            check(&copy::COPY, false, 0, &[false], &[vec![from, to]]);
            for (rank, blocks_log2, is_grid) in [(0, 6, true), (1, 8, true), (6, 6, false)] {
                for width_log2 in [0, 1, 4, blocks_log2] {
                    for block in copy::Block::ALL {
                        let form = copy::TransposeForm {
                            rank,
                            width_log2,
                            height_log2: blocks_log2 - width_log2,
                            is_grid,
                            block,
                        };
                        assert_eq!(copy::TransposeForm::unpack(form.pack()), form);
                        let vec4s = if block == copy::Block::Vec4s {
                            0b11
                        } else {
                            0b10
                        };
                        check::valid(&copy::TRANSPOSE, form.pack(), &[from, to], vec4s);
                    }
                }
            }
        }
        check(&copy::COPY_INTO, true, 0, &[false], &[vec![from, from]]);
        for (rank, outer) in [(1, 0), (1, 1), (3, 2), (8, 0), (8, 8)] {
            check::valid(&copy::SCATTER, rank | outer << 4, &[from, from], 0b10);
        }
    }
}

/// How an adapter with small bindings copies into the middle of a storage.
#[test]
fn a_copy_through_many_windows_is_a_valid_shader() {
    let whole = INTO | WHOLE | 1 << 24 | 3 << 8;
    for code in [whole, whole | UNROLL, whole | UNROLL | TOGETHER] {
        let variant = Variant {
            code,
            dtypes: [DType::U8; MAX_OPERANDS],
            vec4s: 0b10,
        };
        check::valid_through_windows(&copy::COPY_INTO, &variant, 8);
    }
}

#[test]
fn vec4s_come_in_pairs_where_an_adapter_gains_by_it() {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).expect("the options go together");
    let wide = {
        let mut caps = gpu.caps().clone();
        caps.kind = AdapterKind::Cpu;
        caps.wide_words = true;
        caps
    };
    let check = |caps: &Caps, layouts: &[&Layout], dtypes: [DType; 2], expected: bool| {
        let (shape, scalars) = (&layouts[0].shape, [false, false]);
        let plan = binary::ELEMENT.plan(caps, 0, shape, layouts, &scalars, [0; 2]);
        let (code, words, _) = plan.expect("few dimensions");
        let code = Code(code).in_pairs(caps, &words, dtypes.into_iter());
        assert_eq!(code.0 & VEC8S != 0, expected, "{layouts:?}");
    };
    let long = Layout::contiguous(&[4096]);
    let part = |start, len| long.narrow(0, start, len).expect("it fits");
    let one = Layout::contiguous(&[])
        .broadcast_to(&[4096])
        .expect("it fits");
    let floats = [DType::F32; 2];
    check(&wide, &[&long, &long], floats, true);
    check(&wide, &[&long, &one], floats, true);
    check(&wide, &[&part(8, 4080), &part(16, 4080)], floats, true);
    check(&wide, &[&part(4, 4080), &part(0, 4080)], floats, false);
    check(&wide, &[&part(0, 4084), &part(8, 4084)], floats, false);
    // Too few elements, rows with gaps, other types, and an adapter without wide words.
    check(&wide, &[&part(0, 64), &part(0, 64)], floats, false);
    let rows = Layout::contiguous(&[64, 72])
        .narrow(1, 0, 64)
        .expect("it fits");
    check(&wide, &[&rows, &rows], floats, false);
    check(&wide, &[&long, &long], [DType::F32, DType::F16], false);
    let narrow = {
        let mut caps = wide.clone();
        caps.wide_words = false;
        caps
    };
    check(&narrow, &[&long, &long], floats, false);
}

#[test]
fn fetches_follow_from_strides() {
    let check = |shape: &[usize], layout: Layout, rank: usize, fetch: Fetch| {
        let layout = layout.broadcast_to(shape).expect("it fits");
        let plan = Plan::new(shape, &[&layout], &[false]).expect("few dimensions");
        assert_eq!(
            (plan.code.rank(), plan.code.fetch(0)),
            (rank, fetch),
            "{layout:?}"
        );
        assert_eq!(plan.words[0] as usize, shape.iter().product::<usize>());
        assert!(plan.words.len().is_multiple_of(4));
    };
    let whole = |shape: &[usize]| Layout::contiguous(shape);
    check(&[5, 7], whole(&[5, 7]), 1, Fetch::Vec4);
    check(&[5, 7], whole(&[]), 1, Fetch::Splat);
    check(&[5, 8], whole(&[8]), 2, Fetch::Vec4);
    check(&[5, 7], whole(&[7]), 2, Fetch::Strided);
    check(&[5, 8], whole(&[5, 1]), 2, Fetch::Splat);
    check(&[5, 7], whole(&[5, 1]), 2, Fetch::Strided);
    let slice = |start, len| whole(&[100]).narrow(0, start, len).expect("it fits");
    check(&[7], slice(4, 7), 1, Fetch::Vec4);
    check(&[7], slice(5, 7), 1, Fetch::Strided);
    check(
        &[7],
        slice(0, 7).flip(&[0]).expect("one axis"),
        1,
        Fetch::Strided,
    );
}

#[test]
fn three_views_with_many_dimensions_do_not_fit_the_parameters() {
    let shape = [2; 8];
    let axes: Vec<isize> = (0..8).rev().collect();
    let turned = Layout::contiguous(&shape)
        .permute(&axes)
        .expect("eight axes");
    let whole = Layout::contiguous(&shape);
    assert!(Plan::new(&shape, &[&turned, &whole, &turned], &[false; 3]).is_none());
    let two = Plan::new(&shape, &[&turned, &whole], &[false; 2]).expect("two fit");
    assert_eq!(two.words.len(), 32);
}
