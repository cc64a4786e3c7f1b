//! Operations that consist of others: isclose, nan_to_num, thresholds and gates.

use half::{bf16, f16};
use lapidary::{DType, Error, Result};

use crate::devices::gpus;
use crate::ops_elementwise::model::{ODD_FLOATS, assert_close, floats, rounded};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

#[test]
fn nearness_is_that_of_pytorch() -> Result<()> {
    let values = [
        0.0,
        -0.0,
        1.0,
        1.001,
        1.01,
        -1.0,
        1e-9,
        1e30,
        1.0005e30,
        f32::MAX,
        -f32::MAX,
        INF,
        -INF,
        NAN,
    ];
    let close = |a: f32, b: f32, [rtol, atol]: [f32; 2], equal_nan: bool| {
        let gap = (f64::from(a) - f64::from(b)).abs();
        let allowed = f64::from(atol) + (f64::from(rtol) * f64::from(b)).abs();
        // f32 overflows where f64 does not, but then the numbers are far apart.
        a == b || equal_nan && a.is_nan() && b.is_nan() || gap.is_finite() && gap <= allowed
    };
    for (device, gpu) in gpus() {
        let a = gpu.tensor(&values, &[14, 1])?;
        let b = gpu.tensor(&values, &[14])?;
        for tolerances in [[1e-5, 1e-8], [2e-3, 0.0], [0.0, 0.5], [0.0, 0.0]] {
            for equal_nan in [false, true] {
                let got = a.is_close(&b, tolerances[0], tolerances[1], equal_nan)?;
                assert_eq!((got.dtype(), got.shape()), (DType::Bool, &[14, 14][..]));
                for (k, got) in got.to_vec::<bool>()?.into_iter().enumerate() {
                    let (a, b) = (values[k / 14], values[k % 14]);
                    let wanted = close(a, b, tolerances, equal_nan);
                    assert_eq!(got, wanted, "{a:?} and {b:?} by {tolerances:?} on {device}");
                }
            }
        }
        let h = gpu.tensor(&[1.0, 1.01, NAN].map(bf16::from_f32), &[3])?;
        let one = gpu.tensor(&[bf16::ONE], &[1])?;
        let near = h.is_close(&one, 0.02, 0.0, true)?.to_vec::<bool>()?;
        assert_eq!(near, [true, true, false]);
        let n = gpu.tensor(&[1], &[1])?;
        let refused = n.is_close(&n, 0.0, 0.0, false);
        assert!(matches!(refused, Err(Error::DType { .. })));
    }
    Ok(())
}

#[test]
fn what_is_not_finite_becomes_a_number() -> Result<()> {
    for (device, gpu) in gpus() {
        let x = gpu.tensor(&[NAN, INF, -INF, -0.0, 2.5], &[5])?;
        let finite = x.nan_to_num(0.0, None, None)?.to_vec::<f32>()?;
        assert_eq!(finite, [0.0, f32::MAX, -f32::MAX, 0.0, 2.5], "{device}");
        assert!(finite[3].is_sign_negative());
        let chosen = x.nan_to_num(INF, Some(-INF), Some(7.0))?.to_vec::<f32>()?;
        // The replacement of NaN is not replaced again.
        assert_eq!(chosen, [INF, -INF, 7.0, -0.0, 2.5], "{device}");
        let h = x.cast(DType::F16)?.nan_to_num(1.0, None, None)?;
        assert_eq!(floats(&h)?, [1.0, 65504.0, -65504.0, 0.0, 2.5]);
        let u = x.cast(DType::Bf16)?.nan_to_num(1.0, None, Some(-3.0))?;
        assert_eq!(floats(&u)?[..3], [1.0, bf16::MAX.to_f32(), -3.0]);
        let truths = |of: Result<lapidary::Tensor>| of?.to_vec::<bool>();
        let wanted = [false, true, false, false, false];
        assert_eq!(truths(x.is_pos_inf())?, wanted);
        let wanted = [false, false, true, false, false];
        assert_eq!(truths(x.is_neg_inf())?, wanted);
        x.narrow(0, 0, 2)?.nan_to_num_(0.5, None, None)?;
        assert_eq!(x.to_vec::<f32>()?, [0.5, f32::MAX, -INF, 0.0, 2.5]);
        let n = gpu.tensor(&[1], &[1])?;
        for refused in [
            n.nan_to_num(0.0, None, None),
            n.is_pos_inf(),
            n.is_neg_inf(),
        ] {
            assert!(matches!(refused, Err(Error::DType { .. })));
        }
    }
    Ok(())
}

#[test]
fn thresholds_hold_integers_too() -> Result<()> {
    for (_, gpu) in gpus() {
        let n = gpu.tensor(&[-9, -2, 0, 3, 8], &[5])?;
        assert_eq!(n.relu6()?.to_vec::<i32>()?, [0, 0, 0, 3, 6]);
        assert_eq!(n.hardtanh(-2, 3)?.to_vec::<i32>()?, [-2, -2, 0, 3, 3]);
        assert_eq!(n.threshold(0, 20)?.to_vec::<i32>()?, [20, 20, 20, 3, 8]);
        assert!(matches!(n.hardshrink(0.5), Err(Error::DType { .. })));
        assert!(matches!(n.softshrink(0.5), Err(Error::DType { .. })));
        assert!(matches!(n.threshold(0.5, 0), Err(Error::DType { .. })));
        let b = gpu.tensor(&[true], &[1])?;
        assert!(matches!(b.threshold(true, false), Err(Error::DType { .. })));
    }
    Ok(())
}

#[test]
fn slopes_are_one_for_all_or_one_a_channel() -> Result<()> {
    let values: Vec<f32> = ODD_FLOATS[..24].to_vec();
    for (device, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let x = gpu.tensor(&values, &[2, 3, 4])?.cast(dtype)?;
            let slopes = [0.25, 0.0, -2.0];
            let weight = gpu.tensor(&slopes, &[3])?.cast(dtype)?;
            let one = weight.narrow(0, 0, 1)?;
            let inputs = floats(&x)?;
            for weights in [&weight, &one] {
                let got = x.prelu(weights)?;
                assert_eq!((got.dtype(), got.shape()), (dtype, x.shape()));
                for (k, got) in floats(&got)?.into_iter().enumerate() {
                    let slope = slopes[k / 4 % weights.len()];
                    let x = inputs[k];
                    let (wanted, more) =
                        rounded(dtype, f64::from(if x > 0.0 { x } else { slope * x }));
                    let what = format!("prelu({x:?}) by {slope} on {device}");
                    assert_close(&what, &[got], &[wanted], more, 0.0);
                }
            }
            assert!(matches!(
                x.prelu(&weight.narrow(0, 0, 2)?),
                Err(Error::Shape { .. })
            ));
        }
        let row = gpu.tensor(&[-1.0_f32, 2.0], &[2])?;
        let slope = gpu.tensor(&[0.5_f32], &[1])?;
        assert_eq!(row.prelu(&slope)?.to_vec::<f32>()?, [-0.5, 2.0]);
        let half = gpu.tensor(&[f16::ONE], &[1])?;
        assert!(matches!(row.prelu(&half), Err(Error::DType { .. })));
        assert!(matches!(row.prelu(&row), Err(Error::Shape { .. })));
    }
    Ok(())
}

#[test]
fn one_half_of_an_axis_is_the_gate_of_the_other() -> Result<()> {
    let values: Vec<f32> = (0..96).map(|n| (n as f32 - 48.0) * 0.21).collect();
    for (device, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let x = gpu.tensor(&values, &[4, 6, 4])?.cast(dtype)?;
            for (axis, dim) in [(0, 4), (1, 6), (-1, 4)] {
                let got = x.glu(axis)?;
                let [a, gate] = [0, dim / 2].map(|start| x.narrow(axis, start, dim / 2));
                let (a, gate) = (a?, gate?);
                assert_eq!((got.dtype(), got.shape()), (dtype, a.shape()));
                let (a, gate) = (floats(&a)?, floats(&gate)?);
                for (k, got) in floats(&got)?.into_iter().enumerate() {
                    let exact = f64::from(a[k]) / (1.0 + (-f64::from(gate[k])).exp());
                    let (wanted, more) = rounded(dtype, exact);
                    let what = format!("glu({:?}, {:?}) on {device}", a[k], gate[k]);
                    assert_close(&what, &[got], &[wanted], 2e-5 + more, 1e-7);
                }
            }
        }
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        assert!(matches!(x.glu(1), Err(Error::Shape { .. })));
        assert!(matches!(x.glu(2), Err(Error::Axis { .. })));
        assert_eq!(x.narrow(1, 0, 0)?.glu(1)?.shape(), [2, 0]);
        let n = gpu.zeros(&[2], DType::I32)?;
        assert!(matches!(n.glu(0), Err(Error::DType { .. })));
    }
    Ok(())
}
