//! Sums of products in Einstein's notation.

use std::collections::BTreeMap;

use lapidary::{DType, Error, Gpu, Options, Tensor};

use crate::ops_reduce::model::*;

/// The result for an equation in which all dimensions are named. `operands` have their shapes.
fn model(inputs: &[&str], output: &str, operands: &[Array]) -> Array {
    let mut sizes = BTreeMap::new();
    for (input, operand) in inputs.iter().zip(operands) {
        for (label, &dim) in input.chars().zip(&operand.shape) {
            let size = sizes.entry(label).or_insert(dim);
            *size = if *size == 1 { dim } else { *size };
        }
    }
    let shape: Vec<usize> = output.chars().map(|label| sizes[&label]).collect();
    let mut sum = Array::new(&shape, |_| 0.0);
    let all = Array::new(&sizes.values().copied().collect::<Vec<_>>(), |_| 0.0);
    for flat in 0..all.values.len() {
        let index = all.index(flat);
        let at: BTreeMap<char, usize> = sizes.keys().copied().zip(index).collect();
        let of = |labels: &str, shape: &[usize]| -> Vec<usize> {
            let at = labels.chars().map(|label| at[&label]);
            at.zip(shape)
                .map(|(at, &dim)| if dim == 1 { 0 } else { at })
                .collect()
        };
        let product: f64 = (inputs.iter().zip(operands))
            .map(|(input, operand)| operand.at(&of(input, &operand.shape)))
            .product();
        let to = of(output, &shape)
            .iter()
            .zip(&shape)
            .fold(0, |to, (at, dim)| to * dim + at);
        sum.values[to] += product;
    }
    sum
}

/// An equation, the same without ellipses and with an arrow, and the operands' shapes.
type Case = (&'static str, &'static str, &'static [&'static [usize]]);

const CASES: &[Case] = &[
    ("ij,jk->ik", "ij,jk->ik", &[&[5, 7], &[7, 4]]),
    ("ij,jk", "ij,jk->ik", &[&[5, 7], &[7, 4]]),
    ("ba", "ba->ab", &[&[3, 4]]),
    ("ii", "ii->", &[&[4, 4]]),
    ("ii->i", "ii->i", &[&[4, 4]]),
    ("ijk->j", "ijk->j", &[&[3, 4, 5]]),
    ("i,j->ij", "i,j->ij", &[&[3], &[4]]),
    ("i,i->", "i,i->", &[&[9], &[9]]),
    (
        "bhqd,bhkd->bhqk",
        "bhqd,bhkd->bhqk",
        &[&[2, 3, 4, 8], &[2, 3, 5, 8]],
    ),
    (
        "bqhd,bkhd->bhqk",
        "bqhd,bkhd->bhqk",
        &[&[2, 4, 3, 8], &[2, 5, 3, 8]],
    ),
    (
        "...ij,...jk->...ik",
        "abij,bjk->abik",
        &[&[2, 3, 4, 5], &[3, 5, 6]],
    ),
    ("...ij,jk", "aij,jk->aik", &[&[2, 4, 5], &[5, 6]]),
    ("b...,b->...", "bxy,b->xy", &[&[3, 4, 5], &[3]]),
    ("aij,bjk->ik", "aij,bjk->ik", &[&[2, 3, 4], &[5, 4, 6]]),
    (
        "ijkl,klmn->ijmn",
        "ijkl,klmn->ijmn",
        &[&[2, 3, 4, 5], &[4, 5, 2, 3]],
    ),
    ("ij,ij->ij", "ij,ij->ij", &[&[4, 5], &[4, 5]]),
    ("ij,kj->ik", "ij,kj->ik", &[&[4, 1], &[3, 5]]),
    ("iij,jk->ki", "iij,jk->ki", &[&[3, 3, 4], &[4, 2]]),
    ("ij,jk,kl->il", "ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 5]]),
    (" i j , j k -> i k ", "ij,jk->ik", &[&[2, 0], &[0, 3]]),
    ("ij,jk->ik", "ij,jk->ik", &[&[0, 2], &[2, 3]]),
    (",i->i", ",i->i", &[&[], &[3]]),
];

#[test]
fn einsum_agrees_with_the_model() {
    for (name, gpu) in gpus() {
        for (equation, plain, shapes) in CASES {
            for dtype in [DType::F32, DType::I32] {
                let mut noise = noise(dtype);
                let operands: Vec<Array> = (shapes.iter())
                    .map(|shape| Array::new(shape, |at| noise(at) % 8.0))
                    .collect();
                let (inputs, output) = plain.split_once("->").unwrap();
                let inputs: Vec<&str> = inputs.split(',').collect();
                let expected = model(&inputs, output, &operands);
                let on: Vec<Tensor> = operands.iter().map(|x| x.upload(&gpu, dtype)).collect();
                let on: Vec<&Tensor> = on.iter().collect();
                let got = Tensor::einsum(equation, &on).expect(equation);
                assert_close(
                    &download(&got),
                    &expected,
                    1e-5,
                    &format!("{name} {dtype} {equation}"),
                );
            }
        }
    }
}

#[test]
fn exchanged_dimensions_and_diagonals_are_views() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let x = gpu.zeros(&[3, 3], DType::U8).unwrap();
    for equation in ["ij->ji", "ii->i", "...->..."] {
        assert!(
            Tensor::einsum(equation, &[&x])
                .unwrap()
                .shares_storage_with(&x),
            "{equation}"
        );
    }
}

#[test]
fn what_is_wrong_in_an_equation_is_pointed_at() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let x = gpu.zeros(&[2, 3], DType::F32).unwrap();
    let y = gpu.zeros(&[4, 5], DType::F32).unwrap();
    for (equation, operands, caret) in [
        ("ij,jk->ik", &[&x, &y][..], 3),
        ("i1->i", &[&x], 1),
        ("ij->ii", &[&x], 5),
        ("ij->ijk", &[&x], 6),
        ("ii->i", &[&x], 1),
        ("ijk->i", &[&x], 2),
        ("i->i", &[&x], 0),
        ("ij,ij->ij", &[&x], 3),
        ("ij->ij", &[&x, &y], 6),
        ("ij->i,j", &[&x], 5),
        ("ij->i->j", &[&x], 5),
        ("......ij", &[&x], 3),
        ("..ij", &[&x], 0),
        ("ij->...ij", &[&x], 4),
        ("éj->j", &[&x], 0),
        ("", &[], 0),
    ] {
        let refused = Tensor::einsum(equation, operands).unwrap_err();
        let Error::Shape { reason, .. } = &refused else {
            panic!("{equation}: {refused}");
        };
        let pointed = reason.lines().last().unwrap().chars().count() - 3;
        assert_eq!(pointed, caret, "{refused}");
    }
    let halves = gpu.zeros(&[3, 2], DType::F16).unwrap();
    assert!(matches!(
        Tensor::einsum("ij,jk", &[&x, &halves]),
        Err(Error::DType { .. })
    ));
    let elsewhere = Gpu::open(Options::from_env().unwrap())
        .unwrap()
        .zeros(&[3, 2], DType::F32)
        .unwrap();
    assert!(matches!(
        Tensor::einsum("ij,jk", &[&x, &elsewhere]),
        Err(Error::Foreign { .. })
    ));
}
