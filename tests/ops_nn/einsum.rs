//! Sums of products in Einstein's notation. `tests/torch/networks.rs` compares them with PyTorch.

use lapidary::{DType, Error, Gpu, Options, Result, Tensor};

use crate::devices::refused;

#[test]
fn exchanged_dimensions_and_diagonals_are_views() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let x = gpu.zeros(&[3, 3], DType::U8)?;
    for equation in ["ij->ji", "ii->i", "...->..."] {
        assert!(
            Tensor::einsum(equation, &[&x])?.shares_storage_with(&x),
            "{equation}"
        );
    }
    Ok(())
}

#[test]
fn what_is_wrong_in_an_equation_is_pointed_at() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let x = gpu.zeros(&[2, 3], DType::F32)?;
    let y = gpu.zeros(&[4, 5], DType::F32)?;
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
    let halves = gpu.zeros(&[3, 2], DType::F16)?;
    refused!(DType: Tensor::einsum("ij,jk", &[&x, &halves]));
    let elsewhere = Gpu::open(Options::from_env()?)?.zeros(&[3, 2], DType::F32)?;
    refused!(Foreign: Tensor::einsum("ij,jk", &[&x, &elsewhere]));
    Ok(())
}
