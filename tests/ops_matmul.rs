//! Matrix products against three loops in f64, for all shapes, views and types.

mod linear;
mod quantized;
mod weight;

use half::{bf16, f16};
use lapidary::{
    DType, Element, Error, Gpu, Options, Tensor,
    operations::{Activation, Epilogue},
};

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).unwrap()
}

/// Small integers. The sums of their products are exact in every type.
fn whole(gpu: &Gpu, shape: &[usize]) -> Tensor {
    let len = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..len).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    gpu.tensor(&values, shape).unwrap()
}

/// The product of two tensors of the same number of dimensions, at least two, on the host.
fn on_host(a: &Tensor, b: &Tensor) -> Vec<f64> {
    let (left, right) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    let rank = a.rank();
    let (m, k, n) = (
        a.shape()[rank - 2],
        a.shape()[rank - 1],
        b.shape()[rank - 1],
    );
    let batch: Vec<usize> = (0..rank - 2)
        .map(|axis| {
            if a.shape()[axis] == 1 {
                b.shape()[axis]
            } else {
                a.shape()[axis]
            }
        })
        .collect();
    let mut product = Vec::new();
    for matrix in 0..batch.iter().product::<usize>() {
        // The matrix of an operand whose batch axis has size 1.
        let place = |shape: &[usize]| {
            let (mut rest, mut place, mut stride) = (matrix, 0, 1);
            for axis in (0..batch.len()).rev() {
                place += rest % batch[axis] % shape[axis] * stride;
                stride *= shape[axis];
                rest /= batch[axis];
            }
            place
        };
        let (from_a, from_b) = (place(a.shape()) * m * k, place(b.shape()) * k * n);
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let terms = (0..k).map(|i| {
                f64::from(left[from_a + row * k + i]) * f64::from(right[from_b + i * n + column])
            });
            product.push(terms.sum());
        }
    }
    product
}

#[track_caller]
fn check(a: &Tensor, b: &Tensor) {
    let c = a.matmul(b).unwrap();
    let rank = a.rank();
    let (m, n) = (a.shape()[rank - 2], b.shape()[rank - 1]);
    assert_eq!(&c.shape()[rank - 2..], [m, n]);
    let got: Vec<f64> = c
        .to_vec::<f32>()
        .unwrap()
        .into_iter()
        .map(f64::from)
        .collect();
    assert_eq!(got, on_host(a, b), "{:?} times {:?}", a.shape(), b.shape());
}

#[test]
fn every_size_up_to_a_tile_and_just_beyond_is_right() {
    let gpu = gpu();
    let sizes = [1, 2, 7, 33, 64, 65, 128];
    for m in sizes {
        for n in sizes {
            for k in [1, 3, 31, 64, 127] {
                check(&whole(&gpu, &[m, k]), &whole(&gpu, &[k, n]));
            }
        }
    }
}

#[test]
fn transposed_operands_are_read_in_place() {
    let gpu = gpu();
    for (m, n, k) in [
        (1, 64, 48),
        (5, 7, 13),
        (33, 65, 127),
        (64, 64, 64),
        (127, 2, 128),
    ] {
        for (flip_a, flip_b) in [(true, false), (false, true), (true, true)] {
            let a = match flip_a {
                true => whole(&gpu, &[k, m]).t().unwrap(),
                false => whole(&gpu, &[m, k]),
            };
            let b = match flip_b {
                true => whole(&gpu, &[n, k]).t().unwrap(),
                false => whole(&gpu, &[k, n]),
            };
            check(&a, &b);
        }
    }
}

#[test]
fn any_view_is_read_in_place() {
    let gpu = gpu();
    let (a, b) = (whole(&gpu, &[40, 50]), whole(&gpu, &[60, 70]));
    let offset = a.narrow(0, 3, 33).unwrap().narrow(1, 5, 41).unwrap();
    check(&offset, &b.narrow(0, 2, 41).unwrap());
    check(
        &offset,
        &b.narrow(0, 2, 41).unwrap().narrow(1, 1, 65).unwrap(),
    );
    let stepped = a.slice(1, None, None, 2).unwrap();
    check(&stepped, &b.narrow(0, 0, 25).unwrap());
    let backwards = a.flip(&[0, 1]).unwrap();
    check(&backwards, &b.narrow(0, 0, 50).unwrap());
    check(
        &backwards,
        &b.flip(&[1]).unwrap().narrow(0, 10, 50).unwrap(),
    );
    let repeated = whole(&gpu, &[1, 50]).broadcast_to(&[40, 50]).unwrap();
    check(&repeated, &b.narrow(0, 0, 50).unwrap());
}

#[test]
fn batches_broadcast_over_any_dimensions() {
    let gpu = gpu();
    let cases: [(&[usize], &[usize]); 7] = [
        (&[3, 17, 20], &[3, 20, 33]),
        (&[3, 17, 20], &[1, 20, 33]),
        (&[1, 17, 20], &[3, 20, 33]),
        (&[5, 1, 20], &[1, 20, 64]),
        (&[2, 1, 9, 8], &[1, 3, 8, 12]),
        (&[2, 1, 2, 1, 2, 1, 9, 8], &[1, 2, 1, 2, 1, 2, 8, 5]),
        (&[2, 3, 0, 8], &[2, 3, 8, 5]),
    ];
    for (a, b) in cases {
        check(&whole(&gpu, a), &whole(&gpu, b));
    }
    let heads = whole(&gpu, &[2, 10, 4, 8]).transpose(1, 2).unwrap();
    check(&heads, &heads.transpose(2, 3).unwrap());
    let (few, many) = (whole(&gpu, &[6, 5]), whole(&gpu, &[2, 3, 5, 4]));
    assert_eq!(few.matmul(&many).unwrap().shape(), [2, 3, 6, 4]);
}

#[test]
fn one_dimension_is_a_row_on_the_left_and_a_column_on_the_right() {
    let gpu = gpu();
    let (x, matrix) = (whole(&gpu, &[100]), whole(&gpu, &[100, 37]));
    let row = x.view_as(&[1, 100]).unwrap();
    let right = x.matmul(&matrix).unwrap();
    assert_eq!(right.shape(), [37]);
    let expected = on_host(&row, &matrix);
    assert!(
        right
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .zip(&expected)
            .all(|(&got, &is)| f64::from(got) == is)
    );
    let left = matrix.t().unwrap().matmul(&x).unwrap();
    assert_eq!(
        left.to_vec::<f32>().unwrap(),
        right.to_vec::<f32>().unwrap()
    );
    let dot = x.matmul(&x).unwrap();
    assert_eq!(dot.shape(), [0_usize; 0]);
    assert_eq!(
        f64::from(dot.item::<f32>().unwrap()),
        on_host(&row, &row.t().unwrap())[0]
    );
    let batch = whole(&gpu, &[4, 9, 100]).matmul(&x).unwrap();
    assert_eq!(batch.shape(), [4, 9]);
}

#[test]
fn an_empty_sum_is_zero_and_an_empty_result_is_empty() {
    let gpu = gpu();
    let zeros = whole(&gpu, &[3, 0]).matmul(&whole(&gpu, &[0, 5])).unwrap();
    assert_eq!(zeros.to_vec::<f32>().unwrap(), [0.0; 15]);
    for (m, n, k) in [(0, 5, 3), (5, 0, 3), (0, 0, 0)] {
        let empty = whole(&gpu, &[m, k]).matmul(&whole(&gpu, &[k, n])).unwrap();
        assert_eq!(
            (empty.shape(), empty.to_vec::<f32>().unwrap().len()),
            (&[m, n][..], 0)
        );
    }
}

#[test]
fn integers_wrap_around() {
    let gpu = gpu();
    let values = [i32::MAX, 2, -3, 4];
    let a = gpu.tensor(&values, &[2, 2]).unwrap();
    let at = |row: usize, column: usize| {
        (0..2).fold(0_i32, |sum, i| {
            sum.wrapping_add(values[row * 2 + i].wrapping_mul(values[i * 2 + column]))
        })
    };
    let product = a.matmul(&a).unwrap().to_vec::<i32>().unwrap();
    assert_eq!(product, [at(0, 0), at(0, 1), at(1, 0), at(1, 1)]);
    let large: Vec<u32> = (0..40 * 40).collect();
    let square = gpu.tensor(&large, &[40, 40]).unwrap();
    let product = square
        .matmul(&square.t().unwrap())
        .unwrap()
        .to_vec::<u32>()
        .unwrap();
    assert_eq!(product[41], (40..80).map(|i: u32| i * i).sum::<u32>());
}

#[test]
fn bytes_wrap_around_at_eight_bits() {
    let gpu = gpu();
    for (m, n, k) in [(3, 5, 7), (1, 3, 300), (4, 4, 64), (2, 1, 40_000)] {
        let numbers = |count: usize| (0..count).map(|at| (at * 31 % 251) as u8);
        let (a, b): (Vec<u8>, Vec<u8>) = (numbers(m * k).collect(), numbers(k * n).collect());
        let of_a = gpu.tensor(&a, &[m, k]).unwrap();
        let of_b = gpu.tensor(&b, &[k, n]).unwrap();
        let at = |row: usize, column: usize| {
            (0..k).fold(0_u8, |sum, i| {
                sum.wrapping_add(a[row * k + i].wrapping_mul(b[i * n + column]))
            })
        };
        let expected: Vec<u8> = (0..m * n).map(|flat| at(flat / n, flat % n)).collect();
        let what = format!("{m} {n} {k}");
        let got = of_a.matmul(&of_b).unwrap().to_vec::<u8>().unwrap();
        assert_eq!(got, expected, "{what}");
        let signed = |x: &Tensor| x.cast(DType::I8).unwrap();
        let got = signed(&of_a).matmul(&signed(&of_b)).unwrap();
        let got = got.to_vec::<i8>().unwrap();
        let expected: Vec<i8> = expected.into_iter().map(|byte| byte as i8).collect();
        assert_eq!(got, expected, "{what}");
        if k == 300 {
            let bias = gpu.full(&[n], 200, DType::U8).unwrap();
            let biased = of_a.linear(&of_b.t().unwrap(), Some(&bias)).unwrap();
            let first = biased.to_vec::<u8>().unwrap()[0];
            assert_eq!(first, at(0, 0).wrapping_add(200));
        }
    }
}

#[test]
fn halves_are_added_up_in_single_precision() {
    let gpu = gpu();
    for (m, n, k) in [
        (1, 37, 64),
        (33, 64, 128),
        (33, 31, 65),
        (64, 65, 12),
        (40, 1, 100),
    ] {
        let halves = |shape: &[usize]| {
            let single = whole(&gpu, shape);
            let values: Vec<f16> = single
                .to_vec::<f32>()
                .unwrap()
                .into_iter()
                .map(f16::from_f32)
                .collect();
            (gpu.tensor(&values, shape).unwrap(), single)
        };
        let ((a, a_single), (b, b_single)) = (halves(&[m, k]), halves(&[k, n]));
        let c = a.matmul(&b).unwrap();
        assert_eq!((c.dtype(), c.shape()), (DType::F16, &[m, n][..]));
        let expected: Vec<f16> = on_host(&a_single, &b_single)
            .into_iter()
            .map(f16::from_f64)
            .collect();
        assert_eq!(c.to_vec::<f16>().unwrap(), expected, "{m} x {n} x {k}");
    }
    // 4096 ones and a 1 that only f32 keeps: a sum in f16 would stop at 2048.
    let ones = gpu.tensor(&[f16::ONE; 4096], &[4096]).unwrap();
    assert_eq!(
        ones.matmul(&ones).unwrap().item::<f16>().unwrap(),
        f16::from_f32(4096.0)
    );
}

/// Products of two tensors, and of each with small integers as i8, with the host's results.
const NARROW: [[usize; 3]; 3] = [[33, 31, 65], [1, 37, 64], [64, 65, 12]];

fn check_narrow<T: Element>(gpu: &Gpu, shapes: &[[usize; 3]], narrow: fn(f64) -> T) {
    for &[m, n, k] in shapes {
        let (a, b) = (whole(gpu, &[m, k]), whole(gpu, &[k, n]));
        let expected: Vec<T> = on_host(&a, &b).into_iter().map(narrow).collect();
        let product = |of_a, of_b| {
            let (a, b) = (a.cast(of_a).unwrap(), b.cast(of_b).unwrap());
            let c = a.matmul(&b).unwrap();
            assert_eq!((c.dtype(), c.shape()), (T::DTYPE, &[m, n][..]));
            c.to_vec::<T>().unwrap()
        };
        let mut types = vec![
            (T::DTYPE, T::DTYPE),
            (T::DTYPE, DType::I8),
            (DType::I8, T::DTYPE),
        ];
        if T::DTYPE == DType::F32 {
            let narrow = [DType::F16, DType::Bf16];
            types.extend(narrow.map(|narrow| (DType::F32, narrow)));
            types.extend(narrow.map(|narrow| (narrow, DType::F32)));
        }
        for (of_a, of_b) in types {
            assert_eq!(product(of_a, of_b), expected, "{of_a} {of_b} {m} {n} {k}");
        }
    }
}

#[test]
fn integers_of_a_byte_are_weights_of_every_float() {
    let gpu = gpu();
    check_narrow(&gpu, &NARROW, |v| v as f32);
    check_narrow(&gpu, &NARROW[..1], f16::from_f64);
    check_narrow(&gpu, &NARROW, bf16::from_f64);
    // 4096 ones: a sum in bf16 would stop at 256.
    let ones = gpu.tensor(&[bf16::ONE; 4096], &[4096]).unwrap();
    let sum = ones.matmul(&ones).unwrap().item::<bf16>().unwrap();
    assert_eq!(sum, bf16::from_f32(4096.0));
    let nothing = gpu.zeros(&[3, 0], DType::Bf16).unwrap();
    let bytes = gpu.zeros(&[0, 2], DType::I8).unwrap();
    let product = nothing.matmul(&bytes).unwrap();
    assert_eq!(product.to_vec::<bf16>().unwrap(), [bf16::ZERO; 6]);
}

#[test]
fn a_quantized_layer_ends_as_one_of_floats_however_long_its_sums() {
    let gpu = gpu();
    // In the kernel, and in a second one if the sum is long.
    for k in [64, 40_000] {
        let (x, weight) = (whole(&gpu, &[5, k]), whole(&gpu, &[7, k]));
        let bias = whole(&gpu, &[7]);
        let end = Epilogue::new().scale(0.125).bias(&bias);
        let weight = weight.t().unwrap();
        let expected = x.matmul_with(&weight, &end).unwrap();
        let bytes = weight.cast(DType::I8).unwrap();
        let got = x.matmul_with(&bytes, &end).unwrap();
        assert_eq!(
            got.to_vec::<f32>().unwrap(),
            expected.to_vec::<f32>().unwrap()
        );
    }
}

#[test]
fn what_is_not_finite_spreads_along_its_row_and_column_only() {
    let gpu = gpu();
    for size in [33, 64] {
        let mut values = vec![1.0_f32; size * size];
        values[size + 2] = f32::NAN;
        values[3 * size + 4] = f32::INFINITY;
        let a = gpu.tensor(&values, &[size, size]).unwrap();
        let ones = gpu
            .tensor(&vec![1.0_f32; size * size], &[size, size])
            .unwrap();
        let by_rows = a.matmul(&ones).unwrap().to_vec::<f32>().unwrap();
        let by_columns = ones.matmul(&a).unwrap().to_vec::<f32>().unwrap();
        for (row, column) in (0..size).flat_map(|row| (0..size).map(move |c| (row, c))) {
            let at = row * size + column;
            assert_eq!(by_rows[at].is_nan(), row == 1);
            assert_eq!(by_rows[at] == f32::INFINITY, row == 3);
            assert_eq!(by_columns[at].is_nan(), column == 2);
            assert_eq!(by_columns[at] == f32::INFINITY, column == 4);
        }
    }
}

#[test]
fn fractions_are_within_rounding_of_the_sum_in_f64() {
    let gpu = gpu();
    let mut random = fastrand::Rng::with_seed(11);
    let mut operand = |shape: [usize; 2]| {
        let values: Vec<f32> = (0..shape[0] * shape[1])
            .map(|_| random.f32() - 0.5)
            .collect();
        gpu.tensor(&values, &shape).unwrap()
    };
    let (a, b) = (operand([130, 517]), operand([517, 258]));
    let got = a.matmul(&b).unwrap().to_vec::<f32>().unwrap();
    for (got, expected) in got.into_iter().zip(on_host(&a, &b)) {
        assert!(
            (f64::from(got) - expected).abs() < 1e-4,
            "{got} for {expected}"
        );
    }
}

#[test]
fn what_does_not_go_together_is_refused_at_the_call() {
    fn zeros<T: Element>(gpu: &Gpu, shape: &[usize]) -> Tensor {
        gpu.zeros(shape, T::DTYPE).unwrap()
    }
    let gpu = gpu();
    let a = zeros::<f32>(&gpu, &[2, 3]);
    for shape in [&[2, 3][..], &[4], &[], &[2, 4, 3]] {
        let refused = a.matmul(&zeros::<f32>(&gpu, shape)).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::Shape {
                    operation: "matmul",
                    ..
                }
            ),
            "{refused}"
        );
    }
    let batches = zeros::<f32>(&gpu, &[2, 4, 3]).matmul(&zeros::<f32>(&gpu, &[3, 3, 1]));
    assert!(matches!(batches, Err(Error::Shape { .. })));
    let (f, i, d) = (zeros::<f16>, zeros::<i32>, zeros::<bf16>);
    for other in [i(&gpu, &[3, 2]), zeros::<u8>(&gpu, &[3, 2])] {
        assert!(matches!(a.matmul(&other), Err(Error::DType { .. })));
    }
    let halves = f(&gpu, &[2, 3]).matmul(&d(&gpu, &[3, 2]));
    assert!(matches!(halves, Err(Error::DType { .. })));
    let (bytes, small) = (zeros::<u8>(&gpu, &[3, 3]), zeros::<i8>(&gpu, &[3, 3]));
    let mixed = small.matmul(&bytes);
    assert!(matches!(mixed, Err(Error::DType { .. })));
    let ints = i(&gpu, &[3, 3]);
    for product in [ints.matmul(&small), small.matmul(&ints)] {
        assert!(matches!(product, Err(Error::DType { .. })));
    }
    let elsewhere = self::gpu().zeros(&[3, 2], DType::F32).unwrap();
    assert!(matches!(a.matmul(&elsewhere), Err(Error::Foreign { .. })));
}

#[test]
fn the_simulated_device_computes_the_same() {
    let (gpu, _handle) = Gpu::simulated(lapidary::sim::SimOptions::default()).unwrap();
    check(&whole(&gpu, &[33, 65]), &whole(&gpu, &[65, 7]));
    check(
        &whole(&gpu, &[20, 12]).t().unwrap(),
        &whole(&gpu, &[9, 20]).t().unwrap(),
    );
    check(&whole(&gpu, &[2, 1, 9, 8]), &whole(&gpu, &[1, 3, 8, 12]));
    check(
        &whole(&gpu, &[2, 1, 2, 1, 2, 1, 9, 8]),
        &whole(&gpu, &[1, 2, 1, 2, 1, 2, 8, 5]),
    );
    check_ends(&gpu);
    check(&whole(&gpu, &[130, 97]), &whole(&gpu, &[97, 131]));
    check_narrow(&gpu, &NARROW, |v| v as f32);
    check_narrow(&gpu, &NARROW, bf16::from_f64);
    let halves = gpu.tensor(&[f16::ONE; 21 * 10], &[21, 10]).unwrap();
    let product = halves
        .matmul(&halves.t().unwrap())
        .unwrap()
        .to_vec::<f16>()
        .unwrap();
    assert_eq!(product, [f16::from_f32(10.0); 21 * 21]);
}

/// A product with an epilogue in its kernel, against separate operations.
#[track_caller]
fn check_end(a: &Tensor, b: &Tensor, end: &Epilogue, apart: impl FnOnce(Tensor) -> Tensor) {
    let fused = a.matmul_with(b, end).unwrap();
    let product = a.matmul(b).unwrap();
    let (m, n) = (a.shape().to_vec(), b.shape().to_vec());
    let apart = apart(product);
    assert_eq!(
        (fused.shape(), fused.dtype()),
        (apart.shape(), apart.dtype())
    );
    let wide = |tensor: &Tensor| tensor.cast(DType::F32).unwrap().to_vec::<f32>().unwrap();
    let tolerance = if apart.dtype() == DType::F16 {
        2e-3
    } else {
        1e-6
    };
    for (got, expected) in wide(&fused).into_iter().zip(wide(&apart)) {
        let near = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(
            near || got == expected,
            "{m:?} times {n:?}: {got} for {expected}"
        );
    }
}

fn check_ends(gpu: &Gpu) {
    for (m, n, k) in [
        (1, 1, 1),
        (3, 5, 2),
        (1, 64, 48),
        (40, 1, 30),
        (33, 65, 31),
        (64, 64, 64),
        (5, 7, 0),
    ] {
        let (a, b) = (whole(gpu, &[m, k]), whole(gpu, &[k, n]));
        let (bias, skip) = (whole(gpu, &[n]), whole(gpu, &[m, n]));
        let end = Epilogue::new();
        check_end(&a, &b, &end, |c| c);
        check_end(&a, &b, &end.clone().bias(&bias), |c| (&c + &bias).unwrap());
        check_end(&a, &b, &end.clone().scale(-0.5), |c| (&c * -0.5).unwrap());
        check_end(&a, &b, &end.clone().residual(&bias), |c| {
            (&c + &bias).unwrap()
        });
        check_end(&a, &b, &end.clone().cast(DType::F16), |c| {
            c.cast(DType::F16).unwrap()
        });
        let all = end
            .scale(0.25)
            .bias(&bias)
            .activation(Activation::Silu)
            .residual(&skip);
        check_end(&a, &b, &all, |c| {
            let sum = (&(&c * 0.25).unwrap() + &bias).unwrap();
            (&sum.silu().unwrap() + &skip).unwrap()
        });
    }
    let (a, b) = (whole(gpu, &[2, 1, 9, 8]), whole(gpu, &[1, 3, 8, 12]));
    let skip = whole(gpu, &[3, 9, 12]);
    let end = Epilogue::new().activation(Activation::Relu).residual(&skip);
    check_end(&a, &b, &end, |c| (&c.relu().unwrap() + &skip).unwrap());
}

#[test]
fn a_product_ends_as_operations_of_their_own_would() {
    let gpu = gpu();
    check_ends(&gpu);
    let halves = |shape: &[usize]| whole(&gpu, shape).cast(DType::F16).unwrap();
    for n in [64, 37] {
        let (a, b, bias, skip) = (
            halves(&[9, 40]),
            halves(&[40, n]),
            halves(&[n]),
            halves(&[9, n]),
        );
        let end = Epilogue::new()
            .bias(&bias)
            .activation(Activation::Relu)
            .residual(&skip);
        check_end(&a, &b, &end, |c| {
            (&(&c + &bias).unwrap().relu().unwrap() + &skip).unwrap()
        });
        check_end(&a, &b, &Epilogue::new().cast(DType::F32), |c| {
            c.cast(DType::F32).unwrap()
        });
    }
    // Longer than the loop of an invocation may be on a software adapter.
    let (a, b, bias) = (
        whole(&gpu, &[2, 40_000]),
        whole(&gpu, &[40_000, 3]),
        whole(&gpu, &[3]),
    );
    let end = Epilogue::new().bias(&bias).activation(Activation::Relu);
    check_end(&a, &b, &end, |c| (&c + &bias).unwrap().relu().unwrap());
}

#[test]
fn a_linear_layer_is_a_product_with_the_transposed_weight_and_a_bias() {
    let gpu = gpu();
    let (x, weight, bias) = (
        whole(&gpu, &[2, 5, 8]),
        whole(&gpu, &[12, 8]),
        whole(&gpu, &[12]),
    );
    let product = x.matmul(&weight.t().unwrap()).unwrap();
    let plain = x.linear(&weight, None).unwrap();
    assert_eq!(
        plain.to_vec::<f32>().unwrap(),
        product.to_vec::<f32>().unwrap()
    );
    let layer = x.linear(&weight, Some(&bias)).unwrap();
    assert_eq!(layer.shape(), [2, 5, 12]);
    let expected = (&product + &bias).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(layer.to_vec::<f32>().unwrap(), expected);
    let row = whole(&gpu, &[8]).linear(&weight, Some(&bias)).unwrap();
    assert_eq!(row.shape(), [12]);
    assert!(matches!(
        x.linear(&bias, None),
        Err(Error::Shape {
            operation: "linear",
            ..
        })
    ));
}

#[test]
fn what_no_product_can_end_with_is_refused_at_the_call() {
    let gpu = gpu();
    let (a, b) = (whole(&gpu, &[3, 4]), whole(&gpu, &[4, 5]));
    let refused = |end: Epilogue| a.matmul_with(&b, &end).unwrap_err();
    for bias in [&[3][..], &[1, 5], &[1], &[]] {
        let end = Epilogue::new().bias(&whole(&gpu, bias));
        assert!(matches!(refused(end), Error::Shape { .. }), "{bias:?}");
    }
    assert!(matches!(
        refused(Epilogue::new().residual(&whole(&gpu, &[2, 3, 5]))),
        Error::Shape { .. }
    ));
    let half = whole(&gpu, &[5]).cast(DType::F16).unwrap();
    assert!(matches!(
        refused(Epilogue::new().bias(&half)),
        Error::DType { .. }
    ));
    assert!(matches!(
        refused(Epilogue::new().cast(DType::I32)),
        Error::DType { .. }
    ));
    let elsewhere = whole(&self::gpu(), &[5]);
    assert!(matches!(
        refused(Epilogue::new().bias(&elsewhere)),
        Error::Foreign { .. }
    ));
    let integers = gpu.full(&[2, 2], 1, DType::I32).unwrap();
    let scaled = integers.matmul_with(&integers, &Epilogue::new().scale(2.0));
    assert!(matches!(scaled, Err(Error::DType { .. })));
}

/// Software adapters leave a loop after 65,535 iterations without an error.
#[test]
fn sums_longer_than_an_invocation_may_loop_are_whole() {
    let gpu = gpu();
    let ones = |shape: &[usize]| gpu.full(shape, 1.0, DType::F32).unwrap();
    let sum = |a: &Tensor, b: &Tensor| a.matmul(b).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(sum(&ones(&[70_001]), &ones(&[70_001])), [70_001.0]);
    assert_eq!(
        sum(&ones(&[3, 300_000]), &ones(&[300_000, 5])),
        [300_000.0; 15]
    );
    let turned = ones(&[200_003, 2]);
    assert_eq!(sum(&turned.t().unwrap(), &turned), [200_003.0; 4]);
    let integers = gpu.full(&[2, 100_000], 1, DType::I32).unwrap();
    let product = integers.matmul(&integers.t().unwrap()).unwrap();
    assert_eq!(product.to_vec::<i32>().unwrap(), [100_000; 4]);
}

#[test]
fn reductions_of_long_rows_are_whole() {
    let gpu = gpu();
    for shape in [[4, 1_000_003], [300, 300_000], [3_000_000, 3]] {
        let ones = gpu.full(&shape, 1.0, DType::F32).unwrap();
        for axis in [0, 1] {
            let sums = ones.sum(&[axis]).unwrap().to_vec::<f32>().unwrap();
            let expected = shape[axis as usize] as f32;
            assert!(
                sums.iter().all(|&sum| sum == expected),
                "{shape:?} over {axis}"
            );
        }
        let soft = ones.softmax(1).unwrap();
        let share = 1.0 / shape[1] as f32;
        let first = soft.narrow(0, 0, 2).unwrap().to_vec::<f32>().unwrap();
        assert!(
            first.iter().all(|&p| (p - share).abs() < 1e-4 * share),
            "{shape:?}"
        );
        let last = gpu.arange(0.0, shape[1] as f64, 1.0, DType::F32).unwrap();
        let far = last.reshape(&[1, shape[1]]).unwrap().argmax(1).unwrap();
        assert_eq!(far.to_vec::<u32>().unwrap(), [shape[1] as u32 - 1]);
    }
}

#[test]
fn small_results_of_long_sums_are_right() {
    let gpu = gpu();
    // A sum of this length is cut into parts of unequal length.
    let a = whole(&gpu, &[2, 1, 16, 9001]);
    let b = whole(&gpu, &[1, 1, 9001, 31]);
    let expected = on_host(&a, &b);
    let bias = whole(&gpu, &[31]);
    let end = Epilogue::new().bias(&bias);
    let (plain, ended) = (a.matmul(&b).unwrap(), a.matmul_with(&b, &end).unwrap());
    assert_eq!(plain.shape(), [2, 1, 16, 31]);
    let bias = bias.to_vec::<f32>().unwrap();
    let [plain, ended] = [plain, ended].map(|c| c.to_vec::<f32>().unwrap());
    for (index, expected) in expected.into_iter().enumerate() {
        assert_eq!(f64::from(plain[index]), expected);
        assert_eq!(
            f64::from(ended[index]),
            expected + f64::from(bias[index % 31])
        );
    }
}
