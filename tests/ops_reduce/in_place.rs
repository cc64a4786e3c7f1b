//! scatter_, scatter_add_, scatter_reduce_, index_add_ and index_put_ beside the forms that copy.

use lapidary::{DType, Gpu, Result, Tensor, operations::ScatterReduce};

use crate::ops_elementwise::model::alike;

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
    for gpu in each() {
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
            assert!(grown < target.size_bytes() / 4, "{dtype}: {grown} bytes");
            let sums = target.cast(DType::F32)?.sum(&[1])?.to_vec::<f32>()?;
            let named: Vec<_> = (sums.iter().enumerate())
                .filter(|(_, sum)| **sum != 0.0)
                .collect();
            assert_eq!(named, [(7, &128.0), (9, &256.0)], "{dtype}");
        }
    }
    Ok(())
}

type Copied<'a> = &'a dyn Fn(&Tensor) -> Result<Tensor>;
type InPlace<'a> = &'a dyn Fn(&Tensor) -> Result<()>;

/// With the whole target, and with a part of a larger tensor whose other elements must not change.
fn check(
    gpu: &Gpu,
    what: &str,
    x: &Tensor,
    copied: Copied<'_>,
    in_place: InPlace<'_>,
) -> Result<()> {
    let expected = download(&copied(x)?).values;
    let whole = x.copy()?;
    in_place(&whole)?;
    let whole = download(&whole).values;
    assert!(alike(&whole, &expected), "{what}: {whole:?}");
    // At a vec4, or not.
    for lead in [8, 2] {
        let around = gpu.ones(&[lead + x.len() + 3], x.dtype())?;
        let part = around.narrow(0, lead, x.len())?.view_as(x.shape())?;
        part.copy_(x)?;
        in_place(&part)?;
        let got = download(&around).values;
        let (before, got) = got.split_at(lead);
        let (got, behind) = got.split_at(expected.len());
        assert!(alike(got, &expected), "{what}, after {lead}: {got:?}");
        let mut beside = before.iter().chain(behind);
        assert!(beside.all(|&value| value == 1.0), "{what}, beside it");
    }
    Ok(())
}

/// The size behind the axis is a multiple of 4, or not.
const SHAPES: [[usize; 2]; 3] = [[6, 8], [5, 6], [4, 1]];

/// The shapes to test for a type. Each needs compilations. They make a difference where elements
/// share words: writes in place are four at a time, or there is a copy, whatever the type.
fn shapes_for(dtype: DType) -> &'static [[usize; 2]] {
    match dtype {
        DType::F32 | DType::F16 | DType::U8 => &SHAPES,
        DType::I32 | DType::U32 => &SHAPES[1..2],
        _ => &SHAPES[..1],
    }
}

/// The folds to test for a type: all for one type of each width. Both forms fold by the same
/// functions, and `scatter_reduce` tests the copies with all types.
fn folds_for(dtype: DType) -> &'static [ScatterReduce] {
    match dtype {
        DType::F32 | DType::F16 | DType::U8 => &FOLDS,
        _ => &FOLDS[3..4],
    }
}

#[test]
fn in_place_they_make_what_the_copies_are() -> Result<()> {
    for gpu in each() {
        for dtype in DType::ALL {
            for &shape in shapes_for(dtype) {
                let x = Array::new(&shape, noise(dtype)).upload(&gpu, dtype);
                for count in [1, 7] {
                    let of_source = [count, shape[1]];
                    let source = Array::new(&of_source, noise(dtype)).upload(&gpu, dtype);
                    let each = indices(&gpu, &of_source, shape[0], DType::I32);
                    let shared = indices(&gpu, &[count], shape[0], DType::U32);
                    let to = [Some(&shared)];
                    let check = |form: &str, copied: Copied<'_>, in_place: InPlace<'_>| {
                        let what = format!("{dtype} {form} {shape:?} {count}");
                        check(&gpu, &what, &x, copied, in_place)
                    };
                    check("scatter", &|x| x.scatter(0, &each, &source), &|x| {
                        x.scatter_(0, &each, &source)
                    })?;
                    check("scatter_add", &|x| x.scatter_add(0, &each, &source), &|x| {
                        x.scatter_add_(0, &each, &source)
                    })?;
                    check("index_add", &|x| x.index_add(0, &shared, &source), &|x| {
                        x.index_add_(0, &shared, &source)
                    })?;
                    for sums in [false, true] {
                        check("index_put", &|x| x.index_put(&to, &source, sums), &|x| {
                            x.index_put_(&to, &source, sums)
                        })?;
                        for &fold in folds_for(dtype) {
                            check(
                                &format!("{fold:?}, {sums}"),
                                &|x| x.scatter_reduce(0, &each, &source, fold, sums),
                                &|x| x.scatter_reduce_(0, &each, &source, fold, sums),
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
    for gpu in each() {
        for dtype in [DType::F32, DType::F16] {
            let x = Array::new(&[3, 5, 4], noise(dtype)).upload(&gpu, dtype);
            let values = Array::new(&[6, 4], noise(dtype)).upload(&gpu, dtype);
            let i = indices(&gpu, &[6], 3, DType::I32);
            let j = indices(&gpu, &[6], 5, DType::U32);
            // Axes in another order: the target is copied, with the same result.
            let apart = values.narrow(0, 0, 5)?.transpose(0, 1)?.unsqueeze(1)?;
            let k = indices(&gpu, &[4, 1], 3, DType::I32);
            for (to, values) in [
                (&[Some(&i), Some(&j)][..], &values),
                (&[Some(&k), None, Some(&k)], &apart),
            ] {
                for sums in [false, true] {
                    let what = format!("{dtype} {to:?} {sums}");
                    let copied: Copied<'_> = &|x| x.index_put(to, values, sums);
                    check(&gpu, &what, &x, copied, &|x| x.index_put_(to, values, sums))?;
                }
            }
        }
    }
    Ok(())
}
