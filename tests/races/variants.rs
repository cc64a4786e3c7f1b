//! Sizes and layouts that choose the other variants of a kernel: tiles, skinny products, long rows.

use lapidary::{DType, Gpu, Result, Tensor, operations::Conv};

use crate::common::operands::tensor;
use crate::races::Rota;

/// Numbers in this shape, exact in every type.
pub(crate) fn of(gpu: &Gpu, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count)
        .map(|at| ((at * 7 + at / 5) % 5) as f64 * 0.25)
        .collect();
    tensor(gpu, dtype, &values, shape)
}

/// A product of these sizes, with either operand transposed.
fn product(
    gpu: &Gpu,
    dtype: DType,
    [rows, inner, columns]: [usize; 3],
    transposed: [bool; 2],
) -> Result<Vec<Tensor>> {
    let matrix = |rows, columns, is_transposed| match is_transposed {
        true => of(gpu, dtype, &[columns, rows])?.t(),
        false => of(gpu, dtype, &[rows, columns]),
    };
    let a = matrix(rows, inner, transposed[0])?;
    let b = matrix(inner, columns, transposed[1])?;
    Ok(vec![a.matmul(&b)?])
}

#[test]
fn products_of_every_form() {
    let mut rota = Rota::new();
    let sizes = [
        [1, 70, 65],
        [1, 256, 33],
        [3, 66, 40],
        [4, 64, 64],
        [6, 130, 36],
        [8, 130, 36],
        [17, 33, 18],
        [40, 24, 37],
        [33, 68, 70],
        [64, 32, 64],
    ];
    for dtype in [DType::F32, DType::F16] {
        for sizes in sizes {
            for transposed in [[false; 2], [true, false], [false, true], [true; 2]] {
                let name = format!("matmul {sizes:?} {transposed:?}");
                rota.check(&name, dtype, &|gpu| product(gpu, dtype, sizes, transposed));
            }
        }
    }
    rota.end();
}

#[test]
fn rows_that_take_a_workgroup_or_several() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for shape in [[3, 70], [2, 260], [1, 1500], [70, 3], [9, 33]] {
            let name = |what: &str| format!("{what} {shape:?}");
            rota.check(&name("sum"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.sum(&[0])?, x.sum(&[1])?, x.sum_all()?])
            });
            rota.check(&name("max"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.max(&[0])?, x.max(&[1])?, x.argmax(0)?, x.argmax(1)?])
            });
            rota.check(&name("softmax"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.softmax(1)?, x.softmax(0)?, x.log_softmax(1)?])
            });
            rota.check(&name("layer_norm"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                let of_row = of(gpu, dtype, &shape[1..])?;
                Ok(vec![x.layer_norm(
                    &shape[1..],
                    Some(&of_row),
                    Some(&of_row),
                    1e-5,
                )?])
            });
            rota.check(&name("cumsum"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.cumsum(1)?, x.cumsum(0)?])
            });
            rota.check(&name("sort"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                let (sorted, _) = x.sort(1, false)?;
                Ok(vec![sorted])
            });
            rota.check(&name("copies"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                let cast = x.t()?.cast(DType::F32)?;
                // Matrices whose rows and columns begin inside vec4s.
                let matrices = of(gpu, dtype, &[3, 9, 11])?;
                Ok(vec![
                    matrices.transpose(1, 2)?.contiguous()?,
                    x.t()?.contiguous()?,
                    x.flip(&[1])?.contiguous()?,
                    cast,
                ])
            });
        }
    }
    rota.end();
}

#[test]
fn attention_and_convolutions_of_several_tiles() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16] {
        for [queries, keys, width] in [[1, 40, 16], [5, 33, 8], [18, 20, 32], [34, 70, 64]] {
            let name = format!("attention {queries} {keys} {width}");
            rota.check(&name, dtype, &|gpu| {
                let q = of(gpu, dtype, &[2, queries, width])?;
                let (k, v) = (
                    of(gpu, dtype, &[2, keys, width])?,
                    of(gpu, dtype, &[2, keys, width])?,
                );
                let plain = q.scaled_dot_product_attention(&k, &v, None, false, None)?;
                let causal = q.scaled_dot_product_attention(&k, &v, None, true, Some(0.25))?;
                Ok(vec![plain, causal])
            });
        }
        for [size, channels, kernel] in [[9, 3, 3], [12, 8, 1], [10, 5, 2], [18, 16, 3]] {
            let name = format!("conv2d {size} {channels} {kernel}");
            rota.check(&name, dtype, &|gpu| {
                let x = of(gpu, dtype, &[2, channels, size, size])?;
                let weights = of(gpu, dtype, &[6, channels, kernel, kernel])?;
                Ok(vec![x.conv2d(&weights, None, &Conv::default())?])
            });
        }
    }
    rota.end();
}

/// Commands that the library fuses into one kernel.
fn chain(gpu: &Gpu, dtype: DType, shape: &[usize]) -> Result<Vec<Tensor>> {
    let x = of(gpu, dtype, shape)?;
    let row = of(gpu, dtype, &shape[1..])?;
    let shifted = x.mul(&row)?.add(&x)?.relu()?;
    let turned = x.t()?.add(&shifted.t()?)?.exp()?;
    let soft = shifted.sub(&x)?.softmax(1)?.mul(&x)?;
    let sums = x.mul(&x)?.sum(&[1])?.sqrt()?;
    let norm = shifted.layer_norm(&shape[1..], None, None, 1e-5)?.tanh()?;
    Ok(vec![turned, soft, sums, norm])
}

#[test]
fn fused_kernels() {
    let mut rota = Rota::fused();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for shape in [[5, 6], [8, 12], [3, 70], [1, 1], [33, 9]] {
            let name = format!("chain {shape:?}");
            for _ in 0..3 {
                rota.check(&name, dtype, &|gpu| chain(gpu, dtype, &shape));
            }
        }
    }
    rota.end();
}
