//! Pooling and its gradients, against a loop over the windows.

use lapidary::{DType, Error, Gpu, Options, Result, Tensor, operations::Pool};

use crate::ops_reduce::model::*;

/// The indices of a window along an axis, and the number of elements for a mean.
type Span = (Vec<usize>, usize);

/// PyTorch's windows along one axis.
fn spans(input: usize, pool: &Pool<2>, at: usize) -> Vec<Span> {
    let (kernel, stride) = (pool.kernel[at], pool.stride[at]);
    let (padding, dilation) = (pool.padding[at], pool.dilation[at]);
    let whole = input + 2 * padding;
    let reach = (kernel - 1) * dilation + 1;
    let mut count = (whole - reach) / stride + 1;
    if pool.ceil_mode && !(whole - reach).is_multiple_of(stride) && count * stride < input + padding
    {
        count += 1;
    }
    let span = |window: usize| {
        let taps = (0..kernel).map(move |tap| window * stride + tap * dilation);
        let inside = taps
            .clone()
            .filter(|at| (padding..padding + input).contains(at));
        let places: Vec<usize> = inside.map(|at| at - padding).collect();
        let counted = match pool.count_include_pad {
            true => taps.filter(|&at| at < whole).count(),
            false => places.len(),
        };
        (places, counted)
    };
    (0..count).map(span).collect()
}

fn adaptive_spans(input: usize, output: usize) -> Vec<Span> {
    let span = |window: usize| {
        let end = ((window + 1) * input).div_ceil(output);
        let places: Vec<usize> = (window * input / output..end).collect();
        let count = places.len();
        (places, count)
    };
    (0..output).map(span).collect()
}

/// The expected results of poolings of an array, and of their gradients.
struct Expected {
    max: Array,
    mean: Array,
    place: Array,
    by_max: Array,
    by_mean: Array,
    grad: Array,
}

fn expected(x: &Array, rows: &[Span], columns: &[Span], divisor: Option<usize>) -> Expected {
    let [samples, channels, height, width] = x.shape[..] else {
        panic!("{:?}", x.shape)
    };
    let shape = [samples, channels, rows.len(), columns.len()];
    let zeros = |shape: &[usize]| Array::new(shape, |_| 0.0);
    let mut made = Expected {
        max: Array::new(&shape, |_| f64::NEG_INFINITY),
        mean: zeros(&shape),
        place: zeros(&shape),
        by_max: zeros(&x.shape),
        by_mean: zeros(&x.shape),
        grad: Array::new(&shape, |at| (at % 7) as f64 - 2.0),
    };
    for flat in 0..made.max.values.len() {
        let at = made.max.index(flat);
        let (rows, columns) = (&rows[at[2]], &columns[at[3]]);
        let start = (at[0] * channels + at[1]) * height * width;
        let divisor = divisor.unwrap_or(rows.1 * columns.1) as f64;
        let grad = made.grad.values[flat];
        let places = rows
            .0
            .iter()
            .flat_map(|row| columns.0.iter().map(move |c| row * width + c));
        let mut best = None;
        for place in places {
            let value = x.values[start + place];
            made.mean.values[flat] += value / divisor;
            made.by_mean.values[start + place] += grad / divisor;
            if best.is_none() || value > made.max.values[flat] || value.is_nan() {
                best = Some(place);
                made.max.values[flat] = value;
            }
        }
        if let Some(place) = best {
            made.place.values[flat] = place as f64;
            made.by_max.values[start + place] += grad;
        }
    }
    made
}

/// The results of pooling `name`: the values and, for a maximum, the indices.
struct Made {
    max: Result<Tensor>,
    with_indices: Result<(Tensor, Tensor)>,
    mean: Result<Tensor>,
    by_max: Result<Tensor>,
    by_mean: Result<Tensor>,
}

fn agree(what: &str, made: Made, expected: &Expected, dtype: DType) {
    let tolerance = 2.0 * tolerance(dtype);
    let (max, places) = made.with_indices.expect(what);
    assert_eq!(places.dtype(), DType::U32);
    for (name, got, expected) in [
        ("max", made.max.expect(what), &expected.max),
        ("max with indices", max, &expected.max),
        ("places", places, &expected.place),
        ("mean", made.mean.expect(what), &expected.mean),
        ("by max", made.by_max.expect(what), &expected.by_max),
        ("by mean", made.by_mean.expect(what), &expected.by_mean),
    ] {
        assert_close(
            &download(&got),
            expected,
            tolerance,
            &format!("{what}: {name}"),
        );
    }
}

fn check(what: &str, array: &Array, x: &Tensor, gpu: &Gpu, pool: &Pool<2>) {
    let spans = [0, 1].map(|at| spans(array.shape[2 + at], pool, at));
    let expected = expected(array, &spans[0], &spans[1], pool.divisor_override);
    let grad = expected.grad.upload(gpu, x.dtype());
    let of_max = Pool {
        count_include_pad: true,
        divisor_override: None,
        ..*pool
    };
    let made = Made {
        max: x.max_pool2d(&of_max),
        with_indices: x.max_pool2d_with_indices(&of_max),
        mean: x.avg_pool2d(pool),
        by_max: grad.max_pool2d_backward(x, &of_max),
        by_mean: grad.avg_pool2d_backward(x, pool),
    };
    agree(what, made, &expected, x.dtype());
}

/// Noise as an array and as a tensor; with a NaN and an infinity if the type is wide.
fn operand(gpu: &Gpu, shape: &[usize], dtype: DType) -> (Array, Tensor) {
    let mut array = Array::new(shape, noise(dtype)).rounded(dtype);
    if dtype == DType::F32 && array.values.len() > 40 {
        array.values[33] = f64::NAN;
        array.values[7] = f64::NEG_INFINITY;
    }
    let x = array.upload(gpu, dtype);
    (array, x)
}

/// Poolings that differ in every option.
fn pools() -> Vec<Pool<2>> {
    let overlapping = Pool {
        stride: [2, 1],
        padding: [1, 1],
        ..Pool::new([3, 2])
    };
    vec![
        Pool::new([2, 2]),
        overlapping,
        Pool {
            stride: [3, 4],
            ..Pool::new([2, 2])
        },
        Pool {
            count_include_pad: false,
            ..overlapping
        },
        Pool {
            ceil_mode: true,
            stride: [2, 3],
            ..overlapping
        },
        Pool {
            ceil_mode: true,
            count_include_pad: false,
            stride: [2, 2],
            padding: [0, 1],
            ..Pool::new([3, 3])
        },
        Pool {
            divisor_override: Some(5),
            ceil_mode: true,
            ..overlapping
        },
        Pool {
            dilation: [2, 1],
            padding: [1, 0],
            stride: [1, 2],
            ..Pool::new([2, 2])
        },
    ]
}

#[test]
fn pooling_and_its_gradients_agree_with_the_model() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for pool in pools() {
                for shape in [[2, 3, 8, 9], [1, 1, 3, 3], [0, 2, 4, 4]] {
                    let (array, x) = operand(&gpu, &shape, dtype);
                    let what = format!("{name} {dtype} {shape:?} {pool:?}");
                    check(&what, &array, &x, &gpu, &pool);
                }
            }
        }
    }
}

#[test]
fn a_dilated_window_may_have_a_gap_where_the_plane_begins() {
    for (name, gpu) in gpus() {
        let pool = Pool {
            dilation: [4, 3],
            padding: [2, 3],
            ..Pool::new([2, 3])
        };
        let pool = Pool {
            stride: [1, 1],
            ..pool
        };
        let (array, x) = operand(&gpu, &[1, 2, 5, 6], DType::F32);
        check(name, &array, &x, &gpu, &pool);
    }
}

#[test]
fn adaptive_pooling_agrees_with_the_model_at_any_size() {
    for (name, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16] {
            for size in [[3, 4], [4, 3], [1, 1], [5, 9], [8, 9], [11, 2], [0, 3]] {
                let (array, x) = operand(&gpu, &[2, 3, 8, 9], dtype);
                let what = format!("{name} {dtype} {size:?}");
                let [rows, columns] = [0, 1].map(|at| adaptive_spans([8, 9][at], size[at]));
                let expected = expected(&array, &rows, &columns, None);
                let grad = expected.grad.upload(&gpu, dtype);
                let made = Made {
                    max: x.adaptive_max_pool2d(size),
                    with_indices: x.adaptive_max_pool2d_with_indices(size),
                    mean: x.adaptive_avg_pool2d(size),
                    by_max: grad.adaptive_max_pool2d_backward(&x),
                    by_mean: grad.adaptive_avg_pool2d_backward(&x),
                };
                agree(&what, made, &expected, dtype);
            }
        }
    }
}

#[test]
fn lines_are_pooled_as_planes_of_one_row() {
    for (_, gpu) in gpus() {
        let x = gpu
            .tensor(&[1.0_f32, 7.0, 3.0, 4.0, 5.0], &[1, 1, 5])
            .unwrap();
        let pool = Pool {
            stride: [2],
            ceil_mode: true,
            ..Pool::new([2])
        };
        let (values, places) = x.max_pool1d_with_indices(&pool).unwrap();
        assert_eq!(values.to_vec::<f32>().unwrap(), [7.0, 4.0, 5.0]);
        assert_eq!(places.to_vec::<u32>().unwrap(), [1, 3, 4]);
        let mean = x.avg_pool1d(&pool).unwrap();
        assert_eq!(mean.to_vec::<f32>().unwrap(), [4.0, 3.5, 5.0]);
        let (values, places) = x.adaptive_max_pool1d_with_indices([2]).unwrap();
        assert_eq!(values.to_vec::<f32>().unwrap(), [7.0, 5.0]);
        assert_eq!(places.to_vec::<u32>().unwrap(), [1, 4]);
        let mean = x.adaptive_avg_pool1d([2]).unwrap();
        assert_eq!(mean.shape(), [1, 1, 2]);
        // WGSL grants quotients 2.5 units in the last place.
        let is_near = |got: f32, expected: f32| (got - expected).abs() <= 1e-6 * expected;
        let means = mean.to_vec::<f32>().unwrap();
        assert!(
            is_near(means[0], 11.0 / 3.0) && means[1] == 4.0,
            "{means:?}"
        );
        let by_x = mean.adaptive_avg_pool1d_backward(&x).unwrap();
        let by_x = by_x.to_vec::<f32>().unwrap();
        assert!(is_near(by_x[0], 11.0 / 9.0), "{by_x:?}");
        assert!(is_near(by_x[2], 11.0 / 9.0 + 4.0 / 3.0), "{by_x:?}");
        let by_x = values.adaptive_max_pool1d_backward(&x).unwrap();
        assert_eq!(by_x.to_vec::<f32>().unwrap(), [0.0, 7.0, 0.0, 0.0, 5.0]);
    }
}

#[test]
fn planes_without_samples_are_pooled_as_one_sample() {
    for (name, gpu) in gpus() {
        let (array, batch) = operand(&gpu, &[1, 3, 6, 7], DType::F32);
        let x = array.upload(&gpu, DType::F32).squeeze_axis(0).unwrap();
        let pool = Pool {
            padding: [1, 1],
            count_include_pad: false,
            ..Pool::new([3, 2])
        };
        let whole = batch.avg_pool2d(&pool).unwrap();
        let one = x.avg_pool2d(&pool).unwrap();
        assert_eq!(one.shape(), &whole.shape()[1..]);
        let by_batch = whole.avg_pool2d_backward(&batch, &pool).unwrap();
        let by_one = one.avg_pool2d_backward(&x, &pool).unwrap();
        assert_eq!(by_one.shape(), x.shape());
        for (one, whole) in [(&one, &whole), (&by_one, &by_batch)] {
            let whole = download(&whole.squeeze_axis(0).unwrap());
            assert_close(&download(one), &whole, 0.0, name);
        }
        assert_eq!(
            x.select(1, 0)
                .unwrap()
                .adaptive_max_pool1d([2])
                .unwrap()
                .shape(),
            [3, 2]
        );
        let mixed = whole.avg_pool2d_backward(&x, &pool);
        assert!(matches!(mixed, Err(Error::Shape { .. })));
    }
}

#[test]
fn windows_too_large_for_a_software_adapter_are_folded_along_one_axis_first() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let x = gpu.arange(0, 400 * 401, 1, DType::F32).unwrap();
    let x = x.reshape(&[1, 400, 401]).unwrap();
    let max = x.adaptive_max_pool2d([3, 2]).unwrap();
    let corner = |row: usize, column: usize| (row * 401 + column) as f32;
    let expected = [133, 266, 399].map(|row| [corner(row, 200), corner(row, 400)]);
    assert_eq!(max.to_vec::<f32>().unwrap(), expected.concat());
    let mean = x
        .adaptive_avg_pool2d([3, 2])
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    assert!(
        (mean[0] - (corner(0, 0) + corner(133, 200)) / 2.0).abs() < 1.0,
        "{mean:?}"
    );
}

#[test]
fn poolings_that_cannot_be_are_refused() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let x = gpu.zeros(&[1, 4, 5, 5], DType::F32).unwrap();
    let two = Pool::new([2, 2]);
    for pool in [
        Pool {
            dilation: [0, 1],
            ..two
        },
        Pool {
            dilation: [5, 1],
            ..two
        },
        Pool {
            padding: [2, 0],
            ..two
        },
        Pool {
            divisor_override: Some(2),
            ..two
        },
        Pool {
            count_include_pad: false,
            ..two
        },
        Pool {
            kernel: [usize::MAX, 1],
            dilation: [usize::MAX, 1],
            ..two
        },
    ] {
        let refused = x.max_pool2d(&pool).unwrap_err();
        assert!(
            matches!(refused, Error::Shape { .. }),
            "{pool:?}: {refused}"
        );
    }
    let zero = Pool {
        divisor_override: Some(0),
        ..two
    };
    assert!(matches!(x.avg_pool2d(&zero), Err(Error::Shape { .. })));
    let none = gpu.zeros(&[1, 4, 0, 5], DType::F32).unwrap();
    assert!(matches!(
        none.adaptive_avg_pool2d([2, 2]),
        Err(Error::Shape { .. })
    ));
    // With its padding this axis would have a window without elements.
    let padded = Pool {
        padding: [1, 1],
        ..two
    };
    for refused in [none.max_pool2d(&padded), none.avg_pool2d(&padded)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("an axis of 0 elements"), "{refused}");
    }
    let many = x.adaptive_max_pool2d([1, usize::MAX]);
    assert!(matches!(many, Err(Error::Shape { .. })));
    let many = x.adaptive_max_pool2d([1, 1 << 31]);
    assert!(matches!(many, Err(Error::Shape { .. })));
    let flat = gpu.zeros(&[5], DType::F32).unwrap();
    assert!(matches!(
        flat.adaptive_max_pool2d([1, 1]),
        Err(Error::Shape { .. })
    ));
    let grad = gpu.zeros(&[2], DType::F32).unwrap();
    assert!(matches!(
        grad.adaptive_avg_pool2d_backward(&x),
        Err(Error::Shape { .. })
    ));
}
