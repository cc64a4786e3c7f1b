//! scatter_, scatter_add_, scatter_reduce_, index_add_ and index_put_ beside the forms that copy.

use lapidary::{DType, Gpu, Result, Tensor, operations::ScatterReduce};

use super::indexed::indices;
use super::model::*;

const FOLDS: [ScatterReduce; 5] = [
    ScatterReduce::Sum,
    ScatterReduce::Prod,
    ScatterReduce::Mean,
    ScatterReduce::Max,
    ScatterReduce::Min,
];

#[test]
fn no_target_is_copied() -> Result<()> {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
            let (rows, columns) = (1024, 64);
            let target = gpu.zeros(&[rows, columns], dtype)?;
            let of_each = gpu.tensor(&vec![7_u32; columns], &[1, columns])?;
            let of_all = gpu.tensor(&[9_u32, 9], &[2])?;
            let row = gpu.ones(&[1, columns], dtype)?;
            let both = gpu.ones(&[2, columns], dtype)?;
            gpu.finish()?;
            gpu.memory().reset_peaks();
            let before = gpu.memory().stats().live_bytes.now;
            target.scatter_(0, &of_each, &row)?;
            target.scatter_add_(0, &of_each, &row)?;
            target.index_add_(0, &of_all, &both)?;
            target.scatter_reduce_(0, &of_each, &row, ScatterReduce::Max, true)?;
            target.index_put_(&[Some(&of_all)], &both, true)?;
            gpu.finish()?;
            let grown = gpu.memory().stats().live_bytes.peak - before;
            assert!(
                grown < target.size_bytes() / 4,
                "{name} {dtype}: {grown} bytes"
            );
            let sums = target.cast(DType::F32)?.sum(&[1])?.to_vec::<f32>()?;
            let named: Vec<_> = (sums.iter().enumerate())
                .filter(|(_, sum)| **sum != 0.0)
                .collect();
            assert_eq!(named, [(7, &128.0), (9, &256.0)], "{name} {dtype}");
        }
    }
    Ok(())
}

/// With the whole target, and with a part of a larger tensor whose other elements must not change.
fn check(
    gpu: &Gpu,
    what: &str,
    x: &Tensor,
    copied: impl Fn(&Tensor) -> Result<Tensor>,
    in_place: impl Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    let expected = download(&copied(x)?).values;
    let whole = x.copy()?;
    in_place(&whole)?;
    same(
        &format!("{what}, whole"),
        &download(&whole).values,
        &expected,
    );
    let rows = x.shape()[0];
    for lead in [1, 4] {
        let mut shape = x.shape().to_vec();
        shape[0] = rows + lead + 1;
        let around = gpu.ones(&shape, x.dtype())?;
        let part = around.narrow(0, lead, rows)?;
        part.copy_(x)?;
        in_place(&part)?;
        let what = format!("{what}, after {lead} rows");
        same(&what, &download(&part).values, &expected);
        for (from, len) in [(0, lead), (rows + lead, 1)] {
            let beside = download(&around.narrow(0, from, len)?).values;
            assert!(beside.iter().all(|&value| value == 1.0), "{what}");
        }
    }
    Ok(())
}

#[track_caller]
fn same(what: &str, got: &[f64], expected: &[f64]) {
    let is_same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    assert!(
        got.iter().zip(expected).all(is_same),
        "{what}: {got:?}, not {expected:?}"
    );
}

#[test]
fn in_place_they_make_what_the_copies_are() -> Result<()> {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            // The size behind the axis is a multiple of 4, or not.
            for shape in [[6, 8], [5, 6], [4, 1]] {
                let x = Array::new(&shape, noise(dtype)).upload(&gpu, dtype);
                for count in [1, 7] {
                    let of_source = [count, shape[1]];
                    let source = Array::new(&of_source, noise(dtype)).upload(&gpu, dtype);
                    let (_, each) = indices(&gpu, &of_source, shape[0], DType::I32);
                    let (_, shared) = indices(&gpu, &[count], shape[0], DType::U32);
                    let what = |form: &str| format!("{name} {dtype} {form} {shape:?} {count}");
                    check(
                        &gpu,
                        &what("scatter"),
                        &x,
                        |x| x.scatter(0, &each, &source),
                        |x| x.scatter_(0, &each, &source),
                    )?;
                    check(
                        &gpu,
                        &what("scatter_add"),
                        &x,
                        |x| x.scatter_add(0, &each, &source),
                        |x| x.scatter_add_(0, &each, &source),
                    )?;
                    check(
                        &gpu,
                        &what("index_add"),
                        &x,
                        |x| x.index_add(0, &shared, &source),
                        |x| x.index_add_(0, &shared, &source),
                    )?;
                    for accumulate in [false, true] {
                        check(
                            &gpu,
                            &what("index_put"),
                            &x,
                            |x| x.index_put(&[Some(&shared)], &source, accumulate),
                            |x| x.index_put_(&[Some(&shared)], &source, accumulate),
                        )?;
                    }
                    for fold in FOLDS {
                        if fold == ScatterReduce::Mean && dtype == DType::Bool {
                            continue;
                        }
                        for with_own in [false, true] {
                            check(
                                &gpu,
                                &what(&format!("{fold:?}, {with_own}")),
                                &x,
                                |x| x.scatter_reduce(0, &each, &source, fold, with_own),
                                |x| x.scatter_reduce_(0, &each, &source, fold, with_own),
                            )?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn several_index_tensors_name_elements_of_the_target() -> Result<()> {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16] {
            let x = Array::new(&[3, 5, 4], noise(dtype)).upload(&gpu, dtype);
            let values = Array::new(&[6, 4], noise(dtype)).upload(&gpu, dtype);
            let (_, i) = indices(&gpu, &[6], 3, DType::I32);
            let (_, j) = indices(&gpu, &[6], 5, DType::U32);
            for accumulate in [false, true] {
                check(
                    &gpu,
                    &format!("{name} {dtype}"),
                    &x,
                    |x| x.index_put(&[Some(&i), Some(&j)], &values, accumulate),
                    |x| x.index_put_(&[Some(&i), Some(&j)], &values, accumulate),
                )?;
                // Axes in another order: the target is copied, with the same result.
                let apart = values.narrow(0, 0, 5)?.transpose(0, 1)?;
                let (_, k) = indices(&gpu, &[4, 1], 3, DType::I32);
                check(
                    &gpu,
                    &format!("{name} {dtype}, apart"),
                    &x,
                    |x| {
                        x.index_put(
                            &[Some(&k), None, Some(&k)],
                            &apart.unsqueeze(1)?,
                            accumulate,
                        )
                    },
                    |x| {
                        x.index_put_(
                            &[Some(&k), None, Some(&k)],
                            &apart.unsqueeze(1)?,
                            accumulate,
                        )
                    },
                )?;
            }
        }
    }
    Ok(())
}
