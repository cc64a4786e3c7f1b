//! Calls for kernels and variants that neither the operations at small sizes nor `variants` reach.
//! They have long rows in several parts, many operands, four axes, several windows.

use lapidary::{
    DType, Gpu, Kernel, Result, Tensor,
    operations::{Activation, Conv, Epilogue, ScatterReduce},
};

use crate::common::operands::numbers;
use crate::races::variants::of;
use crate::races::{Rota, devices};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

#[test]
fn rows_in_several_parts() {
    let mut rota = Rota::new();
    for dtype in FLOATS {
        for shape in [[1, 6000], [6000, 2], [2, 2500]] {
            let axis = if shape[0] > shape[1] { 0 } else { 1 };
            rota.check(&format!("argmax {shape:?}"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.argmax(axis)?, x.argmin(axis)?])
            });
            rota.check(&format!("var {shape:?}"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.var(&[axis], 1)?, x.softmax(axis)?])
            });
            rota.check(&format!("norms {shape:?}"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                Ok(vec![x.norm(&[axis], 1.0)?, x.norm(&[axis], 3.0)?])
            });
        }
        rota.check("cumsum 5000", dtype, &|gpu| {
            let x = of(gpu, dtype, &[2, 2500])?;
            let halves = x.mul(0.5)?;
            Ok(vec![
                x.cummax(1)?.0,
                x.cummin(1)?.0,
                x.cumsum(1)?,
                halves.cumprod(1)?,
            ])
        });
    }
    for dtype in DType::ALL {
        rota.check("folds in place", dtype, &|gpu| {
            let x = of(gpu, DType::F32, &[2, 8])?.mul(8.0)?.cast(dtype)?;
            let shared = gpu.tensor(&[3_u32, 3], &[2])?;
            let folds = [
                ScatterReduce::Sum,
                ScatterReduce::Prod,
                ScatterReduce::Mean,
                ScatterReduce::Max,
                ScatterReduce::Min,
            ];
            let mut made = Vec::new();
            for fold in folds {
                if fold == ScatterReduce::Mean && dtype == DType::Bool {
                    continue;
                }
                for with_own in [false, true] {
                    let y = gpu.ones(&[5, 8], dtype)?;
                    let row = x.narrow(0, 0, 1)?.copy()?;
                    let each = gpu.arange(0, 8, 1, DType::U32)?.rem(5)?.unsqueeze(0)?;
                    y.scatter_reduce_(0, &each, &row, fold, with_own)?;
                    y.index_put_(&[Some(&shared)], &x, with_own)?;
                    made.push(y);
                }
            }
            Ok(made)
        });
    }
    for dtype in [DType::I32, DType::U32] {
        rota.check("argmax of integers", dtype, &|gpu| {
            let x = of(gpu, dtype, &[1, 6000])?.mul(&gpu.full(&[1, 6000], 3, dtype)?)?;
            Ok(vec![x.argmax(1)?, x.argmin(1)?])
        });
        rota.check("folds by indices", dtype, &|gpu| {
            let x = of(gpu, DType::F32, &[40])?.mul(8.0)?.cast(dtype)?;
            let at = gpu.arange(0, 40, 1, DType::U32)?.rem(7)?;
            let fold = |how| gpu.ones(&[9], dtype)?.scatter_reduce(0, &at, &x, how, true);
            Ok(vec![
                fold(ScatterReduce::Prod)?,
                fold(ScatterReduce::Mean)?,
                fold(ScatterReduce::Max)?,
                fold(ScatterReduce::Min)?,
            ])
        });
    }
    rota.end();
}

#[test]
fn many_operands_of_one_kernel() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I32, DType::U8] {
        for columns in [3, 8] {
            rota.check(&format!("concat {columns}"), dtype, &|gpu| {
                let parts: Vec<Tensor> = (1..10)
                    .map(|rows| of(gpu, dtype, &[rows, columns]))
                    .collect::<Result<_>>()?;
                let parts: Vec<&Tensor> = parts.iter().collect();
                Ok(vec![Tensor::concat(&parts, 0)?])
            });
        }
    }
    rota.end();
}

/// Four axes in an order in which no two can be merged.
fn turned(gpu: &Gpu, dtype: DType) -> Result<Tensor> {
    of(gpu, dtype, &[3, 4, 5, 8])?.permute(&[3, 2, 1, 0])
}

#[test]
fn four_axes_of_each_elementwise_family() {
    let mut rota = Rota::new();
    for dtype in FLOATS {
        rota.check("four axes", dtype, &|gpu| {
            let x = turned(gpu, dtype)?;
            let column = of(gpu, dtype, &[8, 1, 4, 1])?;
            let mask = x.gt(&column)?;
            let ramp = gpu.arange(0, 6, 2, dtype)?;
            Ok(vec![
                x.neg()?,
                x.add(&column)?,
                x.mul(2.0)?,
                x.lerp(&column, &column)?,
                x.addcmul(&column, &x, 0.5)?,
                x.masked_fill(&mask, 1.0)?,
                x.tril(0)?,
                (1.0 - &x)?,
                mask.where_(&x, &column)?,
                x.cast(DType::Bool)?,
                x.cast(DType::U8)?,
                x.cast(DType::I32)?,
                x.cast(DType::U32)?,
                ramp,
            ])
        });
        rota.check("four axes in place", dtype, &|gpu| {
            let results = (0..7)
                .map(|_| of(gpu, dtype, &[8, 5, 4, 6])?.narrow(3, 1, 3))
                .collect::<Result<Vec<_>>>()?;
            let [a, b, c, d, e, f, g] = &results[..] else {
                unreachable!("there are seven");
            };
            let (x, column) = (turned(gpu, dtype)?, of(gpu, dtype, &[8, 1, 4, 1])?);
            a.neg_()?;
            b.add_(&x)?;
            b.add_(&column)?;
            c.mul_(2.0)?;
            d.addcmul_(&x, &column, 0.5)?;
            e.masked_fill_(&x.gt(&column)?, 1.0)?;
            f.copy_(&x)?;
            g.fill_(3.0)?;
            Ok(results)
        });
    }
    rota.end();
}

#[test]
fn eights_of_elements() {
    let mut rota = Rota::new();
    rota.check("eights", DType::F32, &|gpu| {
        let x = of(gpu, DType::F32, &[64, 72])?;
        let y = of(gpu, DType::F32, &[64, 72])?;
        Ok(vec![
            x.exp()?,
            x.add(&y)?,
            x.mul(3.0)?,
            (1.0 - &x)?,
            x.addcmul(&y, &x, 0.5)?,
            x.copy()?,
            x.triu(1)?,
        ])
    });
    rota.end();
}

#[test]
fn transposes_of_many_blocks() {
    let mut rota = Rota::new();
    for dtype in FLOATS {
        for shape in [[2, 60, 80], [1, 4, 300], [1, 300, 8], [3, 17, 33]] {
            rota.check(&format!("transpose {shape:?}"), dtype, &|gpu| {
                let x = of(gpu, dtype, &shape)?;
                let turned = x.permute(&[0, 2, 1])?;
                let cast = |to| turned.cast(to);
                Ok(vec![
                    turned.contiguous()?,
                    cast(DType::F32)?,
                    cast(DType::Bool)?,
                    cast(DType::I32)?,
                    cast(DType::U32)?,
                    cast(DType::U8)?,
                    cast(DType::I8)?,
                ])
            });
        }
    }
    for dtype in [DType::I32, DType::Bool] {
        rota.check("transpose of batches", dtype, &|gpu| {
            let x = of(gpu, DType::F32, &[2, 20, 3, 30])?.cast(dtype)?;
            let turned = x.permute(&[2, 0, 3, 1])?;
            Ok(vec![turned.contiguous()?, turned.cast(DType::Bool)?])
        });
    }
    rota.end();
}

#[test]
fn products_of_packed_operands_and_with_ends() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16] {
        for [rows, inner, columns] in [[97, 98, 99], [66, 258, 67]] {
            rota.check(&format!("packed {rows} {inner} {columns}"), dtype, &|gpu| {
                let a = of(gpu, dtype, &[rows, inner])?;
                let b = of(gpu, dtype, &[columns, inner])?;
                let (rows, lines) = (b.t()?.contiguous()?, a.t()?.contiguous()?);
                Ok(vec![a.matmul(&b.t()?)?, lines.t()?.matmul(&rows)?])
            });
        }
    }
    for dtype in FLOATS {
        for [rows, inner, columns] in [[2, 40, 36], [9, 33, 18], [20, 64, 32]] {
            rota.check(&format!("linear {rows} {inner} {columns}"), dtype, &|gpu| {
                let x = of(gpu, dtype, &[rows, inner])?;
                let weight = of(gpu, dtype, &[columns, inner])?;
                let bias = of(gpu, dtype, &[columns])?;
                Ok(vec![x.linear(&weight, Some(&bias))?])
            });
        }
        rota.check("ends", dtype, &|gpu| {
            let x = of(gpu, dtype, &[10, 36])?;
            let weight = of(gpu, dtype, &[36, 20])?;
            let (bias, residual) = (of(gpu, dtype, &[20])?, of(gpu, dtype, &[10, 20])?);
            let end = |activation| {
                let end = Epilogue::new().bias(&bias).activation(activation);
                x.matmul_with(&weight, &end.residual(&residual))
            };
            Ok(vec![
                end(Activation::Relu)?,
                end(Activation::Gelu)?,
                end(Activation::GeluTanh)?,
                end(Activation::Silu)?,
                end(Activation::Sigmoid)?,
                end(Activation::Tanh)?,
            ])
        });
    }
    rota.end();
}

#[test]
fn products_of_quantized_weights() {
    let mut rota = Rota::new();
    for dtype in FLOATS {
        for [rows, inner, columns] in [[1, 64, 40], [3, 96, 33], [18, 64, 36]] {
            for group in [None, Some(32)] {
                let name = format!("quantized {rows} {inner} {columns} {group:?}");
                rota.check(&name, dtype, &|gpu| {
                    let x = of(gpu, dtype, &[rows, inner])?;
                    let weights = of(gpu, DType::F32, &[columns, inner])?.quantize(group)?;
                    Ok(vec![x.matmul_quantized(&weights)?])
                });
            }
        }
    }
    rota.end();
}

#[test]
fn layers_with_the_rest_of_their_options() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16] {
        rota.check("adaptive pools", dtype, &|gpu| {
            let x = of(gpu, dtype, &[2, 3, 9, 11])?;
            Ok(vec![
                x.adaptive_avg_pool2d([4, 5])?,
                x.adaptive_max_pool2d([4, 5])?,
                of(gpu, dtype, &[2, 3, 4, 5])?.adaptive_max_pool2d_backward(&x)?,
                of(gpu, dtype, &[2, 3, 4, 5])?.adaptive_avg_pool2d_backward(&x)?,
            ])
        });
        rota.check("rms_norm", dtype, &|gpu| {
            let x = of(gpu, dtype, &[5, 33])?;
            let weight = of(gpu, dtype, &[33])?;
            let long = of(gpu, dtype, &[2, 2000])?;
            Ok(vec![
                x.rms_norm(&[33], None, 1e-5)?,
                x.rms_norm(&[33], Some(&weight), 1e-5)?,
                long.rms_norm(&[2000], None, 1e-5)?,
            ])
        });
        rota.check("masked attention", dtype, &|gpu| {
            let q = of(gpu, dtype, &[2, 34, 32])?;
            let k = of(gpu, dtype, &[2, 40, 32])?;
            let mask = of(gpu, dtype, &[34, 40])?;
            let truths = mask.gt(0.2)?;
            let row = of(gpu, dtype, &[1, 40])?;
            let attend =
                |mask: &Tensor| q.scaled_dot_product_attention(&k, &k, Some(mask), false, None);
            Ok(vec![attend(&mask)?, attend(&truths)?, attend(&row)?])
        });
    }
    for dtype in FLOATS {
        rota.check("random", dtype, &|gpu| {
            let uniform = gpu.rand_uniform(&[301], -1.0, 1.0, 9, dtype)?;
            let normal = gpu.rand_normal(&[301], 0.0, 1.0, 9, dtype)?;
            Ok(vec![uniform, normal])
        });
    }
    rota.check("wide convolution", DType::F32, &|gpu| {
        let x = of(gpu, DType::F32, &[1, 4, 12, 12])?;
        let weights = of(gpu, DType::F32, &[40, 4, 3, 3])?;
        let bias = of(gpu, DType::F32, &[40])?;
        Ok(vec![x.conv2d(&weights, Some(&bias), &Conv::default())?])
    });
    rota.end();
}

/// Operands larger than a binding on that device, and larger than all bindings of a dispatch.
#[test]
fn operands_of_several_windows() {
    let mut rota = Rota::of_windows();
    for dtype in [DType::F32, DType::Bf16] {
        rota.check("windows", dtype, &|gpu| {
            let (x, y) = (of(gpu, dtype, &[95, 64])?, of(gpu, dtype, &[64, 95])?.t()?);
            let sums = vec![x.sum(&[1])?, x.softmax(1)?, x.t()?.contiguous()?];
            let product = x.narrow(0, 0, 9)?.matmul(&y.t()?)?;
            Ok([sums, vec![x.add(&y)?, product]].concat())
        });
    }
    for dtype in FLOATS {
        rota.check("more windows than bindings", dtype, &|gpu| {
            let (x, y) = (
                of(gpu, dtype, &[130, 250])?,
                of(gpu, dtype, &[250, 130])?.t()?,
            );
            let mask = x.gt(&y)?;
            let z = x.copy()?;
            z.add_(&y)?;
            z.masked_fill_(&mask, 2.0)?;
            Ok(vec![
                (1.0 - &y)?,
                mask.where_(&x, &y)?,
                x.addcmul(&y, &x, 0.5)?,
                y.exp()?,
                y.mul(2.0)?,
                x.masked_fill(&mask, 1.0)?,
                gpu.eye(160, dtype)?,
                gpu.arange(0, 120, 1, dtype)?,
                z,
            ])
        });
    }
    rota.end();
}

#[test]
fn buffers_that_are_copied() {
    let mut rota = Rota::new();
    rota.check("copies of buffers", DType::U32, &|gpu| {
        let words: Vec<u32> = (0..50).collect();
        let copy = gpu.buffer_from(&words)?.slice(4..200)?.copy()?;
        Ok(vec![gpu.tensor_of(&copy, &[7, 7], DType::U32)?])
    });
}

/// Leaves all but the first element unwritten.
const FIRST: &str = "
    @group(0) @binding(0) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(1)
    fn first() { y[0] = 1.0; }
";

/// The kernels of diagnostics: they check canaries, freed memory, results and unwritten elements.
#[test]
fn what_looks_for_bugs() -> Result<()> {
    let (gpu, sim) = devices::that_looks_for_bugs();
    for _ in 0..2 {
        let x = of(&gpu, DType::F32, &[40, 30])?;
        let y = x.sub(2.0)?.sqrt()?;
        let half = of(&gpu, DType::F16, &[41])?.exp()?;
        let first = Kernel::new(&gpu, FIRST)?;
        let first = first.call().out("y", &[40], DType::F32);
        let first = first.groups([1, 1, 1]).run_one()?;
        let sums = [y.sum_all()?, half.sum_all()?, first.sum_all()?];
        for sum in &sums {
            numbers(sum)?;
        }
        let found = gpu.diagnostics().check()?;
        assert!(!found.is_empty(), "`sqrt` made NaN");
    }
    crate::races::reached::note(&sim);
    assert_eq!(sim.complaints(), [""; 0]);
    Ok(())
}
