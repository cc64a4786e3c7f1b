//! Transposed convolutions, and convolutions that keep the size. `tests/torch/networks.rs` compares
//! them with PyTorch.

use lapidary::{
    DType, Gpu, Result,
    operations::{Conv, ConvTranspose},
};

use crate::devices::refused;
use crate::ops_reduce::model::*;

#[test]
fn a_line_or_a_sample_alone_is_a_case_of_planes() -> Result<()> {
    for gpu in each() {
        let x = gpu.rand_normal(&[3, 2, 5], 0.0, 1.0, 1, DType::F32)?;
        let w = gpu.rand_normal(&[2, 2, 3], 0.0, 1.0, 2, DType::F32)?;
        let along = ConvTranspose {
            stride: [2],
            padding: [1],
            output_padding: [1],
            ..ConvTranspose::default()
        };
        let lines = x.conv_transpose1d(&w, None, &along)?;
        assert_eq!(lines.shape(), [3, 2, 10]);
        let over = ConvTranspose {
            stride: [1, 2],
            padding: [0, 1],
            output_padding: [0, 1],
            ..ConvTranspose::default()
        };
        let (planes, kernels) = (x.unsqueeze(-2)?, w.unsqueeze(-2)?);
        let planes = planes.conv_transpose2d(&kernels, None, &over)?;
        assert_eq!(lines.to_vec::<f32>()?, planes.to_vec::<f32>()?);
        let one = x.select(0, 2)?.conv_transpose1d(&w, None, &along)?;
        assert_eq!(one.to_vec::<f32>()?, lines.select(0, 2)?.to_vec::<f32>()?);
        let plane = x.unsqueeze(-2)?.select(0, 2)?;
        let one = plane.conv_transpose2d(&kernels, None, &over)?;
        assert_eq!(one.shape(), [2, 1, 10]);
    }
    Ok(())
}

#[test]
fn a_transposed_convolution_refuses_what_has_no_result() -> Result<()> {
    let (_, gpu) = gpus().remove(0);
    let zeros = |gpu: &Gpu, shape: &[usize]| gpu.zeros(shape, DType::F32).unwrap();
    let (x, w) = (zeros(&gpu, &[1, 4, 3, 3]), zeros(&gpu, &[4, 2, 3, 3]));
    let plain = ConvTranspose::<2>::default();
    let huge = [usize::MAX; 2];
    for (x, w, bias) in [
        (&x, &zeros(&gpu, &[3, 2, 3, 3]), None),
        (&zeros(&gpu, &[1, 4, 0, 3]), &w, None),
        (&x, &zeros(&gpu, &[4, 2, 0, 3]), None),
        (&x, &w, Some(&zeros(&gpu, &[3]))),
        (&zeros(&gpu, &[3, 3]), &w, None),
    ] {
        refused!(Shape: x.conv_transpose2d(w, bias, &plain));
    }
    type Set = fn(&mut ConvTranspose<2>, [usize; 2]);
    let settings: [Set; 10] = [
        |of, _| of.groups = 0,
        |of, _| of.groups = 3,
        |of, _| of.stride = [0, 1],
        |of, _| of.dilation = [1, 0],
        |of, _| of.padding = [3, 0],
        |of, _| of.output_padding = [1, 0],
        |of, huge| of.stride = huge,
        |of, huge| of.padding = huge,
        |of, huge| of.output_padding = huge,
        |of, huge| of.dilation = huge,
    ];
    for set in settings {
        let mut options = plain;
        set(&mut options, huge);
        refused!(Shape: x.conv_transpose2d(&w, None, &options));
    }
    let halves = w.cast(DType::F16)?;
    refused!(DType: x.conv_transpose2d(&halves, None, &plain));
    // So large that no device holds it.
    let far = ConvTranspose {
        stride: [1 << 30; 2],
        ..plain
    };
    assert!(x.conv_transpose2d(&w, None, &far).is_err());
    Ok(())
}

#[test]
fn a_convolution_with_the_padding_same_keeps_the_size() -> Result<()> {
    for gpu in each() {
        let x = gpu.rand_normal(&[2, 2, 5, 7], 0.0, 1.0, 1, DType::F32)?;
        for (kernel, dilation) in [([3, 3], [1, 2]), ([2, 4], [1, 1]), ([1, 2], [1, 3])] {
            let w = gpu.rand_normal(&[3, 2, kernel[0], kernel[1]], 0.0, 1.0, 2, DType::F32)?;
            let same = Conv {
                padding: Conv::SAME,
                dilation,
                ..Conv::default()
            };
            let valid = Conv {
                padding: [0, 0],
                ..same
            };
            let zeros = [0, 1].map(|at| dilation[at] * (kernel[at] - 1));
            let around = zeros.map(|zeros| (zeros / 2, zeros - zeros / 2));
            let wide = x.pad(&[(0, 0), (0, 0), around[0], around[1]], 0)?;
            let y = x.conv2d(&w, None, &same)?;
            let what = format!("{kernel:?} {dilation:?}");
            assert_eq!(y.shape(), [2, 3, 5, 7], "{what}");
            near(&y, &wide.conv2d(&w, None, &valid)?, 1e-4, &what);
            let got = y.conv2d_backward(&x, &w, &same)?;
            let [by_wide, by_w, by_b] = y.conv2d_backward(&wide, &w, &valid)?;
            let by_x = by_wide.narrow(2, around[0].0 as isize, 5)?;
            let by_x = by_x.narrow(3, around[1].0 as isize, 7)?;
            for (got, expected) in got.iter().zip([by_x, by_w, by_b]) {
                near(got, &expected, 1e-3, &what);
            }
        }
        let w = gpu.ones(&[3, 2, 3, 3], DType::F32)?;
        let wrong = Conv {
            padding: Conv::SAME,
            stride: [1, 2],
            ..Conv::default()
        };
        refused!(Shape: x.conv2d(&w, None, &wrong));
        let right = Conv {
            stride: [1, 1],
            ..wrong
        };
        refused!(Shape: x.reshape(&[140])?.conv2d(&w, None, &right));
    }
    Ok(())
}
