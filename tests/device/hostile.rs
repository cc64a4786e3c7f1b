//! Absurd sizes and indices give errors and never panics, and the device still works.

use lapidary::{DType, Error, Gpu, Result, Tensor};

use super::{floats, gpu, ramp};

const HUGE: usize = usize::MAX;

/// Asserts that a call fails, but not for lack of memory or of a device.
#[track_caller]
fn refused<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    match result {
        Err(Error::DeviceLost { .. } | Error::OutOfMemory(_) | Error::Driver { .. }) => {
            panic!("{what}: {:?}", result.err())
        }
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(value) => panic!("{what} gave {value:?}"),
    }
}

/// The device still computes.
#[track_caller]
fn works(gpu: &Gpu) -> Result<()> {
    let x = gpu.tensor(&ramp(0, 3), &[3])?;
    assert_eq!(floats(&(&x + 1.0)?), ramp(1, 3));
    Ok(())
}

#[test]
fn shapes_beyond_all_memory_are_refused() -> Result<()> {
    let gpu = gpu();
    for dtype in DType::ALL {
        for shape in [
            &[HUGE][..],
            &[HUGE, HUGE],
            &[HUGE / 2, 2],
            &[2, HUGE / 2 + 1],
            &[1 << 32, 1 << 32],
            &[1 << 62],
            &[1 << 40],
            &[1 << 33],
            &[HUGE, 2, HUGE, 3],
        ] {
            let what = format!("{dtype}{shape:?}");
            refused(&what, gpu.zeros(shape, dtype));
            refused(&what, gpu.full(shape, 1, dtype));
            refused(&what, gpu.tensor(&[0_u8; 4], shape));
        }
    }
    refused("eye", gpu.eye(HUGE, DType::F32));
    refused("eye", gpu.eye(1 << 31, DType::U8));
    refused("arange", gpu.arange(0.0, 1e30, 1.0, DType::F32));
    refused("arange", gpu.arange(0, i64::MAX, 1, DType::I32));
    refused("arange", gpu.arange(0.0, 1.0, 0.0, DType::F32));
    refused("arange", gpu.arange(0.0, f64::NAN, 1.0, DType::F32));
    refused(
        "uniform",
        gpu.rand_uniform(&[HUGE, 9], 0.0, 1.0, 0, DType::F32),
    );
    refused(
        "uniform",
        gpu.rand_uniform(&[9], 0.0, f32::NAN, 0, DType::F32),
    );
    works(&gpu)
}

#[test]
fn a_huge_shape_without_elements_takes_no_memory() -> Result<()> {
    let gpu = gpu();
    // Such a shape may be allowed or not, but nothing may break.
    for shape in [&[0, HUGE][..], &[HUGE, HUGE, 0], &[HUGE, 0, HUGE]] {
        if let Ok(none) = gpu.zeros(shape, DType::F32) {
            assert_eq!(none.len(), 0);
            assert!(none.is_empty());
            assert!(none.to_vec::<f32>()?.is_empty());
            let _ = none.exp();
            let _ = none.sum(&[0]);
            let _ = none.flip(&[0]);
            let _ = Tensor::concat(&[&none, &none], 0);
        }
    }
    works(&gpu)
}

#[test]
fn views_beyond_the_tensor_are_refused() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&ramp(0, 12), &[3, 4])?;
    refused("narrow", x.narrow(0, 0, HUGE));
    refused("narrow", x.narrow(0, HUGE, 1));
    refused("narrow", x.narrow(0, HUGE, HUGE));
    refused("narrow", x.narrow(isize::MIN, 0, 1));
    refused("select", x.select(0, isize::MAX));
    refused("select", x.select(0, isize::MIN));
    refused("permute", x.permute(&[isize::MIN, isize::MAX]));
    refused("permute", x.permute(&[0, 0]));
    refused("transpose", x.transpose(isize::MAX, isize::MIN));
    refused("flip", x.flip(&[2]));
    refused("unsqueeze", x.unsqueeze(isize::MIN));
    refused("squeeze", x.squeeze_axis(isize::MAX));
    refused("reshape", x.reshape(&[HUGE, HUGE]));
    refused("view_as", x.view_as(&[HUGE / 2 + 1, 2]));
    refused("slice", x.slice(0, None, None, 0));
    refused("broadcast", x.broadcast_to(&[HUGE, HUGE, 3, 4]));
    let all = x.slice(0, isize::MIN, isize::MAX, 1)?;
    assert_eq!(floats(&all), ramp(0, 12));
    let one = x.slice(1, None, None, isize::MAX)?;
    assert_eq!(floats(&one), [0.0, 4.0, 8.0]);
    let last = x.slice(1, None, None, isize::MIN)?;
    assert_eq!(floats(&last), [3.0, 7.0, 11.0]);
    works(&gpu)
}

#[test]
fn a_view_that_repeats_itself_beyond_all_memory_is_not_computed_with() -> Result<()> {
    let gpu = gpu();
    let one = gpu.scalar(1.0_f32)?;
    for shape in [
        &[1_usize << 40][..],
        &[1 << 20, 1 << 20],
        &[1 << 33],
        &[HUGE],
    ] {
        let Ok(wide) = one.broadcast_to(shape) else {
            continue;
        };
        refused("contiguous", wide.contiguous());
        refused("add", &wide + &wide);
        refused("cast", wide.cast(DType::U8));
        refused("softmax", wide.softmax(0));
        refused("read", wide.to_vec::<f32>());
        refused("fill", wide.fill_(0.0));
        let _ = wide.sum_all().and_then(|sum| sum.item::<f32>());
        let _ = wide.argmax(0).and_then(|at| at.to_vec::<u32>());
        let _ = wide.size_bytes();
    }
    works(&gpu)
}

#[test]
fn operands_that_do_not_fit_are_refused() -> Result<()> {
    let gpu = gpu();
    let x = gpu.tensor(&ramp(0, 12), &[3, 4])?;
    let bytes = gpu.tensor(&[1_u8, 2, 3], &[3])?;
    refused("length", gpu.tensor(&ramp(0, 5), &[6]));
    refused("write", x.write(&ramp(0, 11)));
    refused("type of a read", x.to_vec::<i32>());
    refused("item", x.item::<f32>());
    refused("types", x.add(&bytes));
    refused("silu", bytes.silu());
    refused("scalar", &bytes + 300);
    refused("scalar", &bytes + 0.5);
    refused("shapes", x.add(&x.t()?));
    refused("matmul", x.matmul(&x));
    refused("sum", x.sum(&[isize::MIN]));
    refused("sum", x.sum(&[0, 0]));
    refused("argmax", x.argmax(2));
    refused("softmax", x.softmax(-3));
    refused("layer_norm", x.layer_norm(&[HUGE], None, None, 1e-5));
    refused("layer_norm", x.layer_norm(&[], None, None, 1e-5));
    refused("concat", Tensor::concat(&[&x, &x], isize::MIN));
    refused("concat", Tensor::concat(&[&x, &bytes], 0));
    refused("index_select", x.index_select(0, &x));
    refused("index_select", x.index_select(7, &bytes));
    refused("where", x.where_(&x, &x));
    works(&gpu)
}

#[test]
fn many_dimensions_are_refused_or_computed_with() -> Result<()> {
    let gpu = gpu();
    for rank in [6, 8, 9, 16, 40] {
        let shape = vec![1; rank];
        let Ok(x) = gpu.tensor(&[2.0_f32], &shape) else {
            continue;
        };
        assert_eq!(x.rank(), rank);
        if let Ok(y) = &x + &x {
            assert_eq!(floats(&y), [4.0]);
        }
    }
    let x = gpu.tensor(&ramp(0, 128), &[2; 7])?;
    let axes: Vec<isize> = (0..7).rev().collect();
    let turned = x.permute(&axes)?;
    let expected: Vec<f32> = (0..128_u8)
        .map(|i| f32::from(i.reverse_bits() >> 1))
        .collect();
    assert_eq!(floats(&turned.contiguous()?), expected);
    let sum = (&(&turned + &x)? + &x.flip(&[0, 2, 4])?)?;
    assert_eq!(sum.shape(), [2; 7]);
    assert_eq!(
        sum.sum_all()?.item::<f32>()?,
        3.0 * ramp(0, 128).iter().sum::<f32>()
    );
    works(&gpu)
}
