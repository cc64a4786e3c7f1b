//! Convolution and pooling, and their gradients. `tests/torch/networks.rs` compares them with
//! PyTorch.

use lapidary::{
    DType, Error, Gpu, Options,
    operations::{Conv, Pool},
};

use crate::ops_reduce::model::*;

#[test]
fn a_line_is_convolved_and_pooled_as_a_plane_of_one_row() {
    for (_, gpu) in gpus() {
        let x = gpu
            .tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0], &[1, 1, 5])
            .unwrap();
        let w = gpu.tensor(&[1.0_f32, 0.0, -1.0], &[1, 1, 3]).unwrap();
        let options = Conv {
            padding: [1],
            stride: [2],
            ..Conv::default()
        };
        let y = x.conv1d(&w, None, &options).unwrap();
        assert_eq!(
            (y.shape(), y.to_vec::<f32>().unwrap()),
            (&[1, 1, 3][..], vec![-2.0, -2.0, 4.0])
        );
        let [by_x, by_w, by_b] = y.conv1d_backward(&x, &w, &options).unwrap();
        assert_eq!(by_x.to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0, 6.0, 0.0]);
        assert_eq!(
            (by_w.to_vec::<f32>().unwrap(), by_b.to_vec::<f32>().unwrap()),
            (vec![12.0, 12.0, -12.0], vec![0.0])
        );
        let pool = Pool {
            padding: [1],
            ..Pool::new([2])
        };
        let max = x.max_pool1d(&pool).unwrap();
        assert_eq!(max.to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0]);
        let mean = x.avg_pool1d(&pool).unwrap();
        assert_eq!(mean.to_vec::<f32>().unwrap(), [0.5, 2.5, 4.5]);
        let back = max.max_pool1d_backward(&x, &pool).unwrap();
        assert_eq!(back.to_vec::<f32>().unwrap(), [1.0, 0.0, 3.0, 0.0, 5.0]);
        let back = mean.avg_pool1d_backward(&x, &pool).unwrap();
        assert_eq!(
            back.to_vec::<f32>().unwrap(),
            [0.25, 1.25, 1.25, 2.25, 2.25]
        );
    }
}

#[test]
fn a_sample_without_an_axis_of_its_own_is_convolved_as_a_batch_of_one() {
    for (name, gpu) in gpus() {
        let made = |shape: &[usize]| {
            let array = Array::new(shape, noise(DType::F32));
            array.rounded(DType::F32).upload(&gpu, DType::F32)
        };
        let (x, w, b) = (made(&[1, 3, 6, 7]), made(&[2, 3, 2, 3]), made(&[2]));
        let options = Conv::default();
        let one = x.squeeze_axis(0).unwrap();
        let whole = x.conv2d(&w, Some(&b), &options).unwrap();
        let y = one.conv2d(&w, Some(&b), &options).unwrap();
        assert_eq!(y.shape(), &whole.shape()[1..]);
        let expected = download(&whole.squeeze_axis(0).unwrap());
        assert_close(&download(&y), &expected, 0.0, name);
        let [by_x, by_w, by_b] = y.conv2d_backward(&one, &w, &options).unwrap();
        let [of_x, of_w, of_b] = whole.conv2d_backward(&x, &w, &options).unwrap();
        let of_x = of_x.squeeze_axis(0).unwrap();
        for (got, expected) in [(by_x, of_x), (by_w, of_w), (by_b, of_b)] {
            assert_close(&download(&got), &download(&expected), 0.0, name);
        }
        let (line, taps) = (one.select(1, 0).unwrap(), w.select(2, 0).unwrap());
        let y = line.conv1d(&taps, None, &Conv::default()).unwrap();
        assert_eq!(y.shape(), [2, 5]);
        let [by_line, ..] = y.conv1d_backward(&line, &taps, &Conv::default()).unwrap();
        assert_eq!(by_line.shape(), line.shape());
        let batch = line.unsqueeze(0).unwrap();
        let whole = batch.conv1d(&taps, None, &Conv::default()).unwrap();
        assert_close(
            &download(&y),
            &download(&whole.squeeze_axis(0).unwrap()),
            0.0,
            name,
        );
    }
}

#[test]
fn a_convolution_in_many_slabs_is_whole() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    // 9 taps of 16 channels over 200 x 200 pixels are 23 MB.
    let x = gpu.ones(&[1, 16, 200, 200], DType::F32).unwrap();
    let w = gpu.ones(&[64, 16, 3, 3], DType::F32).unwrap();
    let same = Conv {
        padding: [1, 1],
        ..Conv::default()
    };
    let y = x.conv2d(&w, None, &same).unwrap();
    let column = y
        .select(1, 5)
        .unwrap()
        .select(-1, 100)
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    assert!(column[1..199].iter().all(|&v| v == 144.0) && column[0] == 96.0 && column[199] == 96.0);
    let [_, by_w, _] = y.conv2d_backward(&x, &w, &same).unwrap();
    assert_eq!(by_w.shape(), w.shape());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let f = |shape: &[usize]| gpu.zeros(shape, DType::F32).unwrap();
    let (x, w) = (f(&[1, 4, 5, 5]), f(&[6, 2, 3, 3]));
    let two = Conv {
        groups: 2,
        ..Conv::default()
    };
    assert!(x.conv2d(&w, None, &two).is_ok());
    for (x, w, bias, options) in [
        (&x, &w, None, Conv::default()),
        (&x, &w, None, Conv { groups: 0, ..two }),
        (&x, &w, None, Conv { groups: 3, ..two }),
        (
            &x,
            &w,
            None,
            Conv {
                stride: [0, 1],
                ..two
            },
        ),
        (
            &x,
            &w,
            None,
            Conv {
                dilation: [1, 3],
                ..two
            },
        ),
        (
            &x,
            &w,
            None,
            Conv {
                padding: [usize::MAX, 0],
                ..two
            },
        ),
        (&x, &w, Some(f(&[5])), two),
        (&f(&[5, 5]), &w, None, two),
        (&x, &f(&[6, 2, 3, 0]), None, two),
    ] {
        let refused = x.conv2d(w, bias.as_ref(), &options).unwrap_err();
        assert!(matches!(refused, Error::Shape { .. }), "{refused}");
    }
    let ints = gpu.zeros(&[1, 4, 5, 5], DType::I32).unwrap();
    assert!(matches!(
        ints.conv2d(&w, None, &two),
        Err(Error::DType { .. })
    ));
    assert!(matches!(
        x.conv2d_backward(&x, &w, &two),
        Err(Error::Shape { .. })
    ));
    for pool in [
        Pool::new([0, 2]),
        Pool::new([6, 2]),
        Pool {
            padding: [2, 0],
            ..Pool::new([3, 3])
        },
        Pool {
            stride: [0, 1],
            ..Pool::new([2, 2])
        },
    ] {
        assert!(
            matches!(x.max_pool2d(&pool), Err(Error::Shape { .. })),
            "{pool:?}"
        );
    }
    assert!(matches!(
        ints.avg_pool2d(&Pool::new([2, 2])),
        Err(Error::DType { .. })
    ));
    assert!(matches!(
        x.avg_pool1d(&Pool::new([2])),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        x.max_pool2d_backward(&x, &Pool::new([2, 2])),
        Err(Error::Shape { .. })
    ));
}
