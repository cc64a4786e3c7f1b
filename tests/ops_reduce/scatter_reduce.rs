//! scatter_reduce against a loop over the elements.

use lapidary::{DType, Error, operations::ScatterReduce};

use super::indexed::{indices, is_there};
use super::model::*;

const ALL: [ScatterReduce; 5] = [
    ScatterReduce::Sum,
    ScatterReduce::Prod,
    ScatterReduce::Mean,
    ScatterReduce::Max,
    ScatterReduce::Min,
];

fn folded(reduce: ScatterReduce, values: &[f64], is_whole: bool) -> f64 {
    let nan_or = |fold: fn(f64, f64) -> f64| {
        let join = |a: f64, b: f64| {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                fold(a, b)
            }
        };
        values.iter().copied().reduce(join).expect("one at least")
    };
    match reduce {
        ScatterReduce::Sum => values.iter().sum(),
        ScatterReduce::Prod => values.iter().product(),
        ScatterReduce::Mean => {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            if is_whole { mean.floor() } else { mean }
        }
        ScatterReduce::Max => nan_or(f64::max),
        ScatterReduce::Min => nan_or(f64::min),
    }
}

/// The elements that each result combines, by PyTorch's rule.
fn expected(
    (array, dtype): (&Array, DType),
    axis: usize,
    indices: &Array,
    src: &Array,
    (reduce, include_self): (ScatterReduce, bool),
) -> Array {
    let mut named = vec![vec![]; array.values.len()];
    for (flat, &index) in indices.values.iter().enumerate() {
        let mut at = indices.index(flat);
        if is_there(index, array.shape[axis]) {
            let value = src.at(&at);
            at[axis] = index as usize;
            let to = (at.iter().zip(&array.shape)).fold(0, |to, (at, dim)| to * dim + at);
            named[to].push(value);
        }
    }
    let value = |at: usize| {
        let own = array.values[at];
        let mut values = named[at].clone();
        if values.is_empty() {
            return own;
        }
        if include_self {
            values.insert(0, own);
        }
        folded(reduce, &values, !dtype.is_float())
    };
    Array::new(&array.shape, value)
}

#[test]
fn what_names_one_element_is_folded_whatever_the_type_and_the_view() {
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            // Small numbers, few of which meet. All results except means are exact.
            let least = if matches!(dtype, DType::U8 | DType::U32) {
                0.0
            } else {
                2.0
            };
            let number = |at: usize| ((at * 7919) % 5) as f64 - least;
            let mut array = Array::new(&[3, 4, 5], number);
            if dtype.is_float() {
                array.values[7] = f64::NAN;
                array.values[20] = f64::NEG_INFINITY;
            }
            let array = array.rounded(dtype);
            let tensor = array.upload(&gpu, dtype);
            for (view, array, tensor) in views(&array, &tensor) {
                let axis = array.shape.len() - 1;
                let mut shape: Vec<usize> = array.shape.clone();
                shape[axis] = 6;
                let (given, of_given) = indices(&gpu, &shape, array.shape[axis], DType::I32);
                let mut src = Array::new(&shape, |at| number(at + 3));
                if dtype.is_float() && src.values.len() > 30 {
                    src.values[11] = f64::NAN;
                }
                let src = src.rounded(dtype);
                let of_src = src.upload(&gpu, dtype);
                for (reduce, include_self) in ALL.into_iter().flat_map(|r| [(r, true), (r, false)])
                {
                    let what = format!("{name} {dtype} {view} {reduce:?} with self {include_self}");
                    let along = axis as isize;
                    let got =
                        tensor.scatter_reduce(along, &of_given, &of_src, reduce, include_self);
                    if dtype == DType::Bool && reduce == ScatterReduce::Mean {
                        assert!(matches!(got, Err(Error::DType { .. })));
                        continue;
                    }
                    let how = (reduce, include_self);
                    let expected = expected((&array, dtype), axis, &given, &src, how);
                    let expected = expected.rounded(dtype);
                    let got = download(&got.expect(&what));
                    assert_close(&got, &expected, tolerance(dtype), &what);
                }
            }
        }
    }
}

#[test]
fn very_many_that_name_one_element_are_all_folded() {
    const COUNT: usize = 31_001;
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
            let array = Array::new(&[3], |at| [50.0, 9.0, 4.0][at]);
            let x = array.upload(&gpu, dtype);
            let given = gpu.full(&[COUNT], 1, DType::U32).unwrap();
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
                    let what = format!("{name} {dtype} {reduce:?} with self {include_self}");
                    let expected = Array::new(&[3], |at| [50.0, middle, 4.0][at]);
                    let tolerance = if reduce == ScatterReduce::Mean {
                        1e-3
                    } else {
                        0.0
                    };
                    assert_close(&download(&got.unwrap()), &expected, tolerance, &what);
                }
            }
        }
    }
}

#[test]
fn a_view_is_folded_into_in_place() {
    for (name, gpu) in gpus() {
        let t = gpu.full(&[2, 5], 2, DType::I32).unwrap();
        let part = t.narrow(1, 1, 3).unwrap();
        let at = gpu.tensor(&[0, 0, 2], &[1, 3]).unwrap();
        let src = gpu.tensor(&[3, 5, 7], &[1, 3]).unwrap();
        part.scatter_reduce_(1, &at, &src, ScatterReduce::Prod, true)
            .unwrap();
        let got = t.to_vec::<i32>().unwrap();
        assert_eq!(got, [2, 30, 2, 14, 2, 2, 2, 2, 2, 2], "{name}");
    }
}

#[test]
fn many_that_name_elements_a_few_times_are_folded_for_every_type() {
    const COUNT: usize = 16_001;
    for (name, gpu) in gpus() {
        for dtype in DType::ALL {
            let least = if matches!(dtype, DType::U8 | DType::U32) {
                0.0
            } else {
                1.0
            };
            let number = |at: usize| ((at * 7919) % 3) as f64 - least;
            let array = Array::new(&[20_000], number).rounded(dtype);
            let x = array.upload(&gpu, dtype);
            // Two or three sources for each of most elements, and some for none.
            let given = Array::new(&[COUNT], |at| ((at * 7919) % 6007) as f64 * 3.0 + 1999.0);
            let of_given = given.upload(&gpu, DType::U32);
            let src = Array::new(&[COUNT], |at| number(at / 3)).rounded(dtype);
            let of_src = src.upload(&gpu, dtype);
            for (reduce, include_self) in ALL.into_iter().flat_map(|r| [(r, true), (r, false)]) {
                if dtype == DType::Bool && reduce == ScatterReduce::Mean {
                    continue;
                }
                let what = format!("{name} {dtype} {reduce:?} with self {include_self}");
                let how = (reduce, include_self);
                let expected = expected((&array, dtype), 0, &given, &src, how).rounded(dtype);
                let got = x.scatter_reduce(0, &of_given, &of_src, reduce, include_self);
                assert_close(
                    &download(&got.expect(&what)),
                    &expected,
                    tolerance(dtype),
                    &what,
                );
            }
        }
        // Integers wrap at their own width.
        let x = gpu.zeros(&[2], DType::U8).unwrap();
        let given = gpu.full(&[COUNT], 1, DType::U32).unwrap();
        let ones = gpu.full(&[COUNT], 1, DType::U8).unwrap();
        let sum = x
            .scatter_add(0, &given, &ones)
            .unwrap()
            .to_vec::<u8>()
            .unwrap();
        assert_eq!(sum, [0, (COUNT % 256) as u8], "{name}");
    }
}
