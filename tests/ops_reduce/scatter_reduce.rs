//! scatter_reduce, in every way to fold.

use lapidary::{DType, Gpu, Result, Tensor, operations::ScatterReduce};

use crate::devices::{gives, reference, refused};

use super::indexed::indices;
use super::model::*;

const ALL: [ScatterReduce; 5] = [
    ScatterReduce::Sum,
    ScatterReduce::Prod,
    ScatterReduce::Mean,
    ScatterReduce::Max,
    ScatterReduce::Min,
];

/// Folds in all ways, and compares with the reference.
fn check(what: &str, reference: &Gpu, axis: usize, operands: [&Tensor; 3]) {
    let dtype = operands[0].dtype();
    for (reduce, with_self) in ALL.into_iter().flat_map(|r| [(r, true), (r, false)]) {
        let fold =
            |t: &[Tensor]| t[0].scatter_reduce(axis as isize, &t[1], &t[2], reduce, with_self);
        let what = format!("{what} {reduce:?} with self {with_self}");
        match (dtype, reduce) {
            (DType::Bool, ScatterReduce::Mean) => {
                refused!(DType: fold(&operands.map(Tensor::clone)));
            }
            _ => same(&what, reference, &operands, tolerance(dtype), fold),
        }
    }
}

#[test]
fn what_names_one_element_is_folded_whatever_the_type_and_the_view() {
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            // Small numbers, few of which meet. All results except means are exact.
            let is_signed = !matches!(dtype, DType::U8 | DType::U32);
            let number = |at: usize| ((at * 7919) % 5) as f64 - f64::from(is_signed) * 2.0;
            let mut array = Array::new(&[3, 4, 5], number);
            if dtype.is_float() {
                array.values[7] = f64::NAN;
                array.values[20] = f64::NEG_INFINITY;
            }
            let array = array.rounded(dtype);
            let mut views = views(&array.upload(&gpu, dtype));
            // Types of one width are loaded and stored alike.
            if !matches!(dtype, DType::F32 | DType::F16 | DType::U8) {
                views.truncate(1);
            }
            for (view, x) in views {
                let axis = x.rank() - 1;
                let mut shape = x.shape().to_vec();
                shape[axis] = 6;
                let given = indices(&gpu, &shape, x.shape()[axis], DType::I32);
                let mut src = Array::new(&shape, |at| number(at + 3));
                if dtype.is_float() && src.values.len() > 30 {
                    src.values[11] = f64::NAN;
                }
                let src = src.rounded(dtype).upload(&gpu, dtype);
                let what = format!("{dtype} {view}");
                check(&what, &reference, axis, [&x, &given, &src]);
            }
        }
    }
}

#[test]
fn very_many_that_name_one_element_are_all_folded() -> Result<()> {
    const COUNT: usize = 31_001;
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            let array = Array::new(&[3], |at| [50.0, 9.0, 4.0][at]);
            let x = array.upload(&gpu, dtype);
            let given = gpu.full(&[COUNT], 1, DType::U32)?;
            let src = Array::new(&[COUNT], |at| if at == COUNT - 3 { 3.0 } else { 1.0 });
            let src = src.upload(&gpu, dtype);
            for (reduce, with_self, alone) in [
                (ScatterReduce::Prod, 27.0, 3.0),
                (ScatterReduce::Mean, 1.0, 1.0),
                (ScatterReduce::Max, 9.0, 3.0),
                (ScatterReduce::Min, 1.0, 1.0),
            ] {
                for (include_self, middle) in [(true, with_self), (false, alone)] {
                    let got = x.scatter_reduce(0, &given, &src, reduce, include_self);
                    let what = format!("{dtype} {reduce:?} with self {include_self}");
                    let expected = Array::new(&[3], |at| [50.0, middle, 4.0][at]);
                    let error = if reduce == ScatterReduce::Mean {
                        1e-3
                    } else {
                        0.0
                    };
                    assert_close(&download(&got?), &expected, error, &what);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_view_is_folded_into_in_place() -> Result<()> {
    for gpu in each() {
        let t = gpu.full(&[2, 5], 2, DType::I32)?;
        let part = t.narrow(1, 1, 3)?;
        // The last two name nothing.
        let at = gpu.tensor(&[0, 0, 2, -1, 3], &[1, 5])?;
        let src = gpu.tensor(&[3, 5, 7, 11, 13], &[1, 5])?;
        part.scatter_reduce_(1, &at, &src, ScatterReduce::Prod, true)?;
        let got = t.to_vec::<i32>()?;
        assert_eq!(got, [2, 30, 2, 14, 2, 2, 2, 2, 2, 2]);
    }
    Ok(())
}

#[test]
fn many_that_name_elements_a_few_times_are_folded_for_every_type() -> Result<()> {
    const COUNT: usize = 16_001;
    // It folds in one launch what software adapters fold in several.
    let reference = reference();
    for gpu in each() {
        for dtype in DType::ALL {
            let is_signed = !matches!(dtype, DType::U8 | DType::U32);
            let number = |at: usize| ((at * 7919) % 3) as f64 - f64::from(is_signed);
            let of = |array: Array| array.rounded(dtype).upload(&gpu, dtype);
            let x = of(Array::new(&[20_000], number));
            // Two or three sources for each of most elements, and some for none.
            let given = Array::new(&[COUNT], |at| ((at * 7919) % 6007) as f64 * 3.0 + 1999.0);
            let given = given.upload(&gpu, DType::U32);
            let src = of(Array::new(&[COUNT], |at| number(at / 3)));
            check(&dtype.to_string(), &reference, 0, [&x, &given, &src]);
        }
        // Integers wrap at their own width.
        let x = gpu.zeros(&[2], DType::U8)?;
        let given = gpu.full(&[COUNT], 1, DType::U32)?;
        let ones = gpu.full(&[COUNT], 1, DType::U8)?;
        gives!(u8: x.scatter_add(0, &given, &ones) => [0, (COUNT % 256) as u8]);
    }
    Ok(())
}
