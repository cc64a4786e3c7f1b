//! Convolution and pooling, and their gradients. `tests/torch/networks.rs` compares them with
//! PyTorch.

use lapidary::{
    DType, Gpu, Options, Result,
    operations::{Conv, Pool},
};

use crate::devices::refused;
use crate::ops_reduce::model::*;

#[test]
fn a_line_is_convolved_and_pooled_as_a_plane_of_one_row() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0], &[1, 1, 5])?;
        let w = gpu.tensor(&[1.0_f32, 0.0, -1.0], &[1, 1, 3])?;
        let options = Conv {
            padding: [1],
            stride: [2],
            ..Conv::default()
        };
        let y = x.conv1d(&w, None, &options)?;
        assert_eq!(y.shape(), [1, 1, 3]);
        assert_eq!(y.to_vec::<f32>()?, [-2.0, -2.0, 4.0]);
        let [by_x, by_w, by_b] = y.conv1d_backward(&x, &w, &options)?;
        assert_eq!(by_x.to_vec::<f32>()?, [0.0, 0.0, 0.0, 6.0, 0.0]);
        assert_eq!(by_w.to_vec::<f32>()?, [12.0, 12.0, -12.0]);
        assert_eq!(by_b.to_vec::<f32>()?, [0.0]);
        let pool = Pool {
            padding: [1],
            ..Pool::new([2])
        };
        let max = x.max_pool1d(&pool)?;
        assert_eq!(max.to_vec::<f32>()?, [1.0, 3.0, 5.0]);
        let mean = x.avg_pool1d(&pool)?;
        assert_eq!(mean.to_vec::<f32>()?, [0.5, 2.5, 4.5]);
        let back = max.max_pool1d_backward(&x, &pool)?;
        assert_eq!(back.to_vec::<f32>()?, [1.0, 0.0, 3.0, 0.0, 5.0]);
        let back = mean.avg_pool1d_backward(&x, &pool)?;
        assert_eq!(back.to_vec::<f32>()?, [0.25, 1.25, 1.25, 2.25, 2.25]);
    }
    Ok(())
}

#[test]
fn a_sample_without_an_axis_of_its_own_is_convolved_as_a_batch_of_one() -> Result<()> {
    for (name, gpu) in gpus() {
        let made = |shape: &[usize]| made(&gpu, shape, DType::F32);
        let (x, w, b) = (made(&[1, 3, 6, 7]), made(&[2, 3, 2, 3]), made(&[2]));
        let options = Conv::default();
        let one = x.squeeze_axis(0)?;
        let whole = x.conv2d(&w, Some(&b), &options)?;
        let y = one.conv2d(&w, Some(&b), &options)?;
        assert_eq!(y.shape(), &whole.shape()[1..]);
        near(&y, &whole.squeeze_axis(0)?, 0.0, name);
        let [by_x, by_w, by_b] = y.conv2d_backward(&one, &w, &options)?;
        let [of_x, of_w, of_b] = whole.conv2d_backward(&x, &w, &options)?;
        let of_x = of_x.squeeze_axis(0)?;
        for (got, expected) in [(by_x, of_x), (by_w, of_w), (by_b, of_b)] {
            near(&got, &expected, 0.0, name);
        }
        let (line, taps) = (one.select(1, 0)?, w.select(2, 0)?);
        let y = line.conv1d(&taps, None, &Conv::default())?;
        assert_eq!(y.shape(), [2, 5]);
        let [by_line, ..] = y.conv1d_backward(&line, &taps, &Conv::default())?;
        assert_eq!(by_line.shape(), line.shape());
        let batch = line.unsqueeze(0)?;
        let whole = batch.conv1d(&taps, None, &Conv::default())?;
        near(&y, &whole.squeeze_axis(0)?, 0.0, name);
    }
    Ok(())
}

#[test]
fn a_convolution_in_many_slabs_is_whole() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    // 9 taps of 16 channels over 200 x 200 pixels are 23 MB.
    let x = gpu.ones(&[1, 16, 200, 200], DType::F32)?;
    let w = gpu.ones(&[64, 16, 3, 3], DType::F32)?;
    let same = Conv {
        padding: [1, 1],
        ..Conv::default()
    };
    let y = x.conv2d(&w, None, &same)?;
    let column = y.select(1, 5)?.select(-1, 100)?.to_vec::<f32>()?;
    assert!(column[1..199].iter().all(|&v| v == 144.0) && column[0] == 96.0 && column[199] == 96.0);
    let [_, by_w, _] = y.conv2d_backward(&x, &w, &same)?;
    assert_eq!(by_w.shape(), w.shape());
    Ok(())
}

#[test]
fn what_does_not_go_together_is_refused() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let f = |shape: &[usize]| gpu.zeros(shape, DType::F32).unwrap();
    let (x, w) = (f(&[1, 4, 5, 5]), f(&[6, 2, 3, 3]));
    let two = Conv {
        groups: 2,
        ..Conv::default()
    };
    assert!(x.conv2d(&w, None, &two).is_ok());
    refused!(Shape: x.conv2d(&w, None, &Conv::default()));
    let settings: [fn(&mut Conv<2>); 5] = [
        |of| of.groups = 0,
        |of| of.groups = 3,
        |of| of.stride = [0, 1],
        |of| of.dilation = [1, 3],
        |of| of.padding = [usize::MAX, 0],
    ];
    for set in settings {
        let mut options = two;
        set(&mut options);
        refused!(Shape: x.conv2d(&w, None, &options));
    }
    refused!(Shape: x.conv2d(&w, Some(&f(&[5])), &two));
    refused!(Shape: f(&[5, 5]).conv2d(&w, None, &two));
    refused!(Shape: x.conv2d(&f(&[6, 2, 3, 0]), None, &two));
    let ints = gpu.zeros(&[1, 4, 5, 5], DType::I32)?;
    refused!(DType: ints.conv2d(&w, None, &two));
    refused!(Shape: x.conv2d_backward(&x, &w, &two));
    let settings: [fn(&mut Pool<2>); 4] = [
        |of| of.kernel = [0, 2],
        |of| of.kernel = [6, 2],
        |of| (of.kernel, of.padding) = ([3, 3], [2, 0]),
        |of| of.stride = [0, 1],
    ];
    for set in settings {
        let mut pool = Pool::new([2, 2]);
        set(&mut pool);
        refused!(Shape: x.max_pool2d(&pool));
    }
    refused!(DType: ints.avg_pool2d(&Pool::new([2, 2])));
    refused!(Shape: x.avg_pool1d(&Pool::new([2])));
    refused!(Shape: x.max_pool2d_backward(&x, &Pool::new([2, 2])));
    Ok(())
}
