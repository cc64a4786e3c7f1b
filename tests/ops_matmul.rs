//! Matrix products of all sizes, views and types. The references compute what is expected of
//! operands that are whole; `tests/torch/networks.rs` compares them with PyTorch.

mod quantized;
mod weight;

use half::bf16;
use lapidary::{
    DType, Gpu, Options, Result, Tensor,
    operations::{Activation, Epilogue},
};

use crate::devices::{reference, refused};
use crate::ops_reduce::model::{Array, download, near, same};

fn gpu() -> Gpu {
    Gpu::open(Options::from_env().unwrap()).unwrap()
}

/// Small integers. The sums of their products are exact in every type.
fn whole(gpu: &Gpu, shape: &[usize]) -> Tensor {
    let number = |at: usize| (at * 7 % 11) as f64 - 5.0;
    Array::new(shape, number).upload(gpu, DType::F32)
}

#[track_caller]
fn check(reference: &Gpu, a: &Tensor, b: &Tensor) {
    let what = format!("{:?} times {:?}", a.shape(), b.shape());
    same(&what, reference, &[a, b], 0.0, |t| t[0].matmul(&t[1]));
}

#[test]
fn every_size_up_to_a_tile_and_just_beyond_is_right() {
    let (gpu, reference) = (gpu(), reference());
    let sizes = [1, 2, 7, 33, 64, 65, 128];
    for m in sizes {
        for n in sizes {
            for k in [1, 3, 31, 64, 127] {
                check(&reference, &whole(&gpu, &[m, k]), &whole(&gpu, &[k, n]));
            }
        }
    }
}

#[test]
fn any_view_is_read_in_place() -> Result<()> {
    let reference = reference();
    for gpu in [gpu(), self::reference()] {
        for (m, n, k) in [
            (1, 64, 48),
            (5, 7, 13),
            (33, 65, 127),
            (64, 64, 64),
            (127, 2, 128),
        ] {
            let [a, b] = [whole(&gpu, &[m, k]), whole(&gpu, &[k, n])];
            let [of_a, of_b] = [whole(&gpu, &[k, m]).t()?, whole(&gpu, &[n, k]).t()?];
            check(&reference, &of_a, &b);
            check(&reference, &a, &of_b);
            check(&reference, &of_a, &of_b);
        }
        let (a, b) = (whole(&gpu, &[40, 50]), whole(&gpu, &[60, 70]));
        let offset = a.narrow(0, 3, 33)?.narrow(1, 5, 41)?;
        check(&reference, &offset, &b.narrow(0, 2, 41)?);
        check(&reference, &offset, &b.narrow(0, 2, 41)?.narrow(1, 1, 65)?);
        let stepped = a.slice(1, None, None, 2)?;
        check(&reference, &stepped, &b.narrow(0, 0, 25)?);
        let backwards = a.flip(&[0, 1])?;
        check(&reference, &backwards, &b.narrow(0, 0, 50)?);
        check(&reference, &backwards, &b.flip(&[1])?.narrow(0, 10, 50)?);
        let repeated = whole(&gpu, &[1, 50]).broadcast_to(&[40, 50])?;
        check(&reference, &repeated, &b.narrow(0, 0, 50)?);
        let heads = whole(&gpu, &[2, 10, 4, 8]).transpose(1, 2)?;
        check(&reference, &heads, &heads.transpose(2, 3)?);
    }
    Ok(())
}

#[test]
fn batches_broadcast_over_any_dimensions() {
    let (gpu, reference) = (gpu(), reference());
    let cases: [(&[usize], &[usize]); 9] = [
        (&[3, 17, 20], &[3, 20, 33]),
        (&[3, 17, 20], &[1, 20, 33]),
        (&[1, 17, 20], &[3, 20, 33]),
        (&[5, 1, 20], &[1, 20, 64]),
        (&[2, 1, 9, 8], &[1, 3, 8, 12]),
        (&[2, 1, 2, 1, 2, 1, 9, 8], &[1, 2, 1, 2, 1, 2, 8, 5]),
        (&[2, 3, 0, 8], &[2, 3, 8, 5]),
        (&[4, 9, 100], &[100]),
        (&[100], &[100, 37]),
    ];
    for (a, b) in cases {
        check(&reference, &whole(&gpu, a), &whole(&gpu, b));
    }
}

#[test]
fn integers_wrap_around_also_with_a_bias() -> Result<()> {
    let reference = reference();
    for gpu in [gpu(), self::reference()] {
        for dtype in [DType::I32, DType::U32, DType::U8, DType::I8] {
            let numbers = |shape: &[usize]| {
                let word = |at: usize| (at as u32 + 1).wrapping_mul(0x9e37_79b9);
                let number = |at: usize| match dtype {
                    DType::I32 => f64::from(word(at) as i32),
                    DType::U32 => f64::from(word(at)),
                    DType::U8 => f64::from(word(at) as u8),
                    _ => f64::from(word(at) as i8),
                };
                Array::new(shape, number).upload(&gpu, dtype)
            };
            for (m, n, k) in [
                (2, 2, 2),
                (3, 5, 7),
                (1, 3, 300),
                (4, 4, 64),
                (40, 40, 40),
                (2, 1, 40_000),
            ] {
                let (a, b) = (numbers(&[m, k]), numbers(&[k, n]));
                check(&reference, &a, &b);
                let bias = numbers(&[n]);
                let apart = (a.matmul(&b)? + &bias)?;
                let layer = a.linear(&b.t()?, Some(&bias))?;
                assert_eq!(download(&layer), download(&apart), "{dtype} {m} {n} {k}");
            }
        }
    }
    Ok(())
}

const SIZES: [[usize; 3]; 5] = [
    [33, 31, 65],
    [1, 37, 64],
    [64, 65, 12],
    [33, 64, 128],
    [40, 1, 100],
];

/// Products of one type of floats, and with other types beside it, against those of f32.
fn check_types(gpu: &Gpu, dtype: DType) -> Result<()> {
    let mut types = vec![(dtype, dtype), (dtype, DType::I8), (DType::I8, dtype)];
    if dtype == DType::F32 {
        for narrow in [DType::F16, DType::Bf16] {
            types.extend([(dtype, narrow), (narrow, dtype)]);
        }
    }
    for (at, [m, n, k]) in SIZES.into_iter().enumerate() {
        // Each needs a compilation.
        types.truncate(if at < 3 { types.len() } else { 1 });
        let (a, b) = (whole(gpu, &[m, k]), whole(gpu, &[k, n]));
        let expected = download(&a.matmul(&b)?.cast(dtype)?);
        for &(of_a, of_b) in &types {
            let c = a.cast(of_a)?.matmul(&b.cast(of_b)?)?;
            assert_eq!(c.dtype(), dtype);
            assert_eq!(download(&c), expected, "{of_a} {of_b} {m} {n} {k}");
        }
    }
    if dtype != DType::F32 {
        // A sum in f16 would stop at 2048, and one in bf16 at 256.
        let ones = gpu.ones(&[4096], dtype)?;
        assert_eq!(download(&ones.matmul(&ones)?).values, [4096.0]);
    }
    Ok(())
}

#[test]
fn narrow_types_are_added_up_in_single_precision() -> Result<()> {
    for gpu in [gpu(), reference()] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            check_types(&gpu, dtype)?;
        }
        let bytes = gpu.zeros(&[0, 2], DType::I8)?;
        let product = gpu.zeros(&[3, 0], DType::Bf16)?.matmul(&bytes)?;
        assert_eq!(product.to_vec::<bf16>()?, [bf16::ZERO; 6]);
    }
    Ok(())
}

#[test]
fn what_is_not_finite_spreads_along_its_row_and_column_only() -> Result<()> {
    let gpu = gpu();
    for size in [33, 64] {
        let mut values = vec![1.0_f32; size * size];
        values[size + 2] = f32::NAN;
        values[3 * size + 4] = f32::INFINITY;
        let a = gpu.tensor(&values, &[size, size])?;
        let ones = gpu.ones(&[size, size], DType::F32)?;
        let by_rows = a.matmul(&ones)?.to_vec::<f32>()?;
        let by_columns = ones.matmul(&a)?.to_vec::<f32>()?;
        for (row, column) in (0..size).flat_map(|row| (0..size).map(move |c| (row, c))) {
            let at = row * size + column;
            assert_eq!(by_rows[at].is_nan(), row == 1);
            assert_eq!(by_rows[at] == f32::INFINITY, row == 3);
            assert_eq!(by_columns[at].is_nan(), column == 2);
            assert_eq!(by_columns[at] == f32::INFINITY, column == 4);
        }
    }
    Ok(())
}

#[test]
fn fractions_are_within_rounding_of_the_sum() -> Result<()> {
    let (gpu, reference) = (gpu(), reference());
    let a = gpu.rand_uniform(&[130, 517], -0.5, 0.5, 11, DType::F32)?;
    let b = gpu.rand_uniform(&[517, 258], -0.5, 0.5, 12, DType::F32)?;
    same("fractions", &reference, &[&a, &b], 4e-5, |t| {
        t[0].matmul(&t[1])
    });
    Ok(())
}

#[test]
fn what_does_not_go_together_is_refused_at_the_call() -> Result<()> {
    let gpu = gpu();
    let zeros = |shape: &[usize], dtype| gpu.zeros(shape, dtype).unwrap();
    let a = zeros(&[2, 3], DType::F32);
    for shape in [&[2, 3][..], &[4], &[], &[2, 4, 3]] {
        let refused = a.matmul(&zeros(shape, DType::F32));
        let Err(error @ lapidary::Error::Shape { .. }) = refused else {
            panic!("{shape:?} is taken");
        };
        let text = error.to_string();
        assert!(text.starts_with("matmul: "), "{text}");
    }
    refused!(Shape: zeros(&[2, 4, 3], DType::F32).matmul(&zeros(&[3, 3, 1], DType::F32)));
    for (of_a, of_b) in [
        (DType::F32, DType::I32),
        (DType::F32, DType::U8),
        (DType::F16, DType::Bf16),
        (DType::I8, DType::U8),
        (DType::I32, DType::I8),
        (DType::I8, DType::I32),
    ] {
        refused!(DType: zeros(&[3, 3], of_a).matmul(&zeros(&[3, 3], of_b)));
    }
    refused!(Foreign: a.matmul(&self::gpu().zeros(&[3, 2], DType::F32)?));
    Ok(())
}

/// A product with an epilogue in its kernel, against separate operations.
#[track_caller]
fn check_end(
    a: &Tensor,
    b: &Tensor,
    end: &Epilogue,
    apart: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let (fused, apart) = (a.matmul_with(b, end)?, apart(&a.matmul(b)?)?);
    let error = if apart.dtype() == DType::F16 {
        2e-3
    } else {
        1e-6
    };
    let what = format!("{:?} times {:?}", a.shape(), b.shape());
    near(&fused, &apart, error, &what);
    Ok(())
}

#[test]
fn a_product_ends_as_operations_of_their_own_would() -> Result<()> {
    let end = Epilogue::new();
    for gpu in &[gpu(), reference()] {
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
            check_end(&a, &b, &end, |c| Ok(c.clone()))?;
            check_end(&a, &b, &end.clone().bias(&bias), |c| c + &bias)?;
            check_end(&a, &b, &end.clone().scale(-0.5), |c| c * -0.5)?;
            check_end(&a, &b, &end.clone().residual(&bias), |c| c + &bias)?;
            let narrow = end.clone().cast(DType::F16);
            check_end(&a, &b, &narrow, |c| c.cast(DType::F16))?;
            let all = end.clone().scale(0.25).bias(&bias).residual(&skip);
            check_end(&a, &b, &all.activation(Activation::Silu), |c| {
                ((c * 0.25)? + &bias)?.silu()? + &skip
            })?;
        }
        let (a, b) = (whole(gpu, &[2, 1, 9, 8]), whole(gpu, &[1, 3, 8, 12]));
        let skip = whole(gpu, &[3, 9, 12]);
        let relu = end.clone().activation(Activation::Relu);
        let residual = relu.clone().residual(&skip);
        check_end(&a, &b, &residual, |c| c.relu()? + &skip)?;
        let halves = |shape: &[usize]| whole(gpu, shape).cast(DType::F16);
        for n in [64, 37] {
            let (a, b) = (halves(&[9, 40])?, halves(&[40, n])?);
            let (bias, skip) = (halves(&[n])?, halves(&[9, n])?);
            let all = relu.clone().bias(&bias).residual(&skip);
            check_end(&a, &b, &all, |c| (c + &bias)?.relu()? + &skip)?;
            let wide = end.clone().cast(DType::F32);
            check_end(&a, &b, &wide, |c| c.cast(DType::F32))?;
        }
        // Longer than the loop of an invocation may be on a software adapter.
        let (a, b) = (whole(gpu, &[2, 40_000]), whole(gpu, &[40_000, 3]));
        let bias = whole(gpu, &[3]);
        check_end(&a, &b, &relu.bias(&bias), |c| (c + &bias)?.relu())?;
    }
    let gpu = gpu();
    // A sum of this length is cut into parts of unequal length.
    let (a, b) = (whole(&gpu, &[2, 1, 16, 9001]), whole(&gpu, &[9001, 31]));
    let bias = whole(&gpu, &[31]);
    check(&reference(), &a, &b);
    check_end(&a, &b, &end.clone().bias(&bias), |c| c + &bias)?;
    // Weights of a byte, also in a second kernel, if the sum is long.
    for k in [64, 40_000] {
        let (x, weight) = (whole(&gpu, &[5, k]), whole(&gpu, &[7, k]).t()?);
        let end = end.clone().scale(0.125).bias(&whole(&gpu, &[7]));
        let expected = download(&x.matmul_with(&weight, &end)?);
        let bytes = weight.cast(DType::I8)?;
        assert_eq!(download(&x.matmul_with(&bytes, &end)?), expected);
    }
    Ok(())
}

#[test]
fn a_linear_layer_is_a_product_with_the_transposed_weight_and_a_bias() -> Result<()> {
    let gpu = gpu();
    let (weight, bias) = (whole(&gpu, &[12, 8]), whole(&gpu, &[12]));
    for shape in [&[2, 5, 8][..], &[8]] {
        let x = whole(&gpu, shape);
        let product = x.matmul(&weight.t()?)?;
        assert_eq!(download(&x.linear(&weight, None)?), download(&product));
        let layer = x.linear(&weight, Some(&bias))?;
        assert_eq!(download(&layer), download(&(&product + &bias)?));
    }
    let (x, ints) = (whole(&gpu, &[5, 8]), bias.cast(DType::I32)?);
    let [no_matrix, ints] = [x.linear(&bias, None), x.linear(&weight, Some(&ints))];
    for refused in [no_matrix, ints, x.linear(&weight, Some(&x))] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with("linear: "), "{refused}");
    }
    Ok(())
}

#[test]
fn what_no_product_can_end_with_is_refused_at_the_call() -> Result<()> {
    let gpu = gpu();
    let (a, b) = (whole(&gpu, &[3, 4]), whole(&gpu, &[4, 5]));
    let end = Epilogue::new();
    let ended = |end: Epilogue| a.matmul_with(&b, &end);
    for bias in [&[3][..], &[1, 5], &[1], &[]] {
        refused!(Shape: ended(end.clone().bias(&whole(&gpu, bias))));
    }
    refused!(Shape: ended(end.clone().residual(&whole(&gpu, &[2, 3, 5]))));
    refused!(DType: ended(end.clone().bias(&whole(&gpu, &[5]).cast(DType::F16)?)));
    refused!(DType: ended(end.clone().cast(DType::I32)));
    refused!(Foreign: ended(end.clone().bias(&whole(&self::gpu(), &[5]))));
    let integers = gpu.full(&[2, 2], 1, DType::I32)?;
    refused!(DType: integers.matmul_with(&integers, &end.scale(2.0)));
    Ok(())
}

/// Software adapters leave a loop after 65,535 iterations without an error.
#[test]
fn sums_longer_than_an_invocation_may_loop_are_whole() -> Result<()> {
    let gpu = gpu();
    let ones = |shape: &[usize]| gpu.full(shape, 1.0, DType::F32).unwrap();
    let sum = |a: &Tensor, b: &Tensor| a.matmul(b).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(sum(&ones(&[70_001]), &ones(&[70_001])), [70_001.0]);
    let of_rows = sum(&ones(&[3, 300_000]), &ones(&[300_000, 5]));
    assert_eq!(of_rows, [300_000.0; 15]);
    let turned = ones(&[200_003, 2]);
    assert_eq!(sum(&turned.t()?, &turned), [200_003.0; 4]);
    let integers = gpu.full(&[2, 100_000], 1, DType::I32)?;
    let product = integers.matmul(&integers.t()?)?;
    assert_eq!(product.to_vec::<i32>()?, [100_000; 4]);
    Ok(())
}

#[test]
fn reductions_of_long_rows_are_whole() -> Result<()> {
    let gpu = gpu();
    for shape in [[4, 1_000_003], [64, 300_000], [3_000_000, 3]] {
        let ones = gpu.full(&shape, 1.0, DType::F32)?;
        for axis in [0, 1] {
            let sums = ones.sum(&[axis])?.to_vec::<f32>()?;
            let expected = shape[axis as usize] as f32;
            let is_whole = sums.iter().all(|&sum| sum == expected);
            assert!(is_whole, "{shape:?} over {axis}");
        }
        let soft = ones.softmax(1)?;
        let share = 1.0 / shape[1] as f32;
        let first = soft.narrow(0, 0, 2)?.to_vec::<f32>()?;
        let is_share = |p: &f32| (p - share).abs() < 1e-4 * share;
        assert!(first.iter().all(is_share), "{shape:?}");
        let last = gpu.arange(0.0, shape[1] as f64, 1.0, DType::F32)?;
        let far = last.reshape(&[1, shape[1]])?.argmax(1)?;
        assert_eq!(far.to_vec::<u32>()?, [shape[1] as u32 - 1]);
    }
    Ok(())
}
