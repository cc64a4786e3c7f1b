//! Operations that consist of others: isclose, nan_to_num, thresholds and gates. Of f32 they are
//! PyTorch's, as `tests/torch/elementwise.rs` says.

use half::{bf16, f16};
use lapidary::{DType, Result, Tensor};

use crate::devices::{each, gives, reference, refused};
use crate::ops_elementwise::model::{ODD_FLOATS, check_all, floats};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn at(element: usize) -> String {
    format!("element {element}")
}

#[test]
fn nearness_of_other_types() -> Result<()> {
    for gpu in each() {
        let h = gpu.tensor(&[1.0, 1.01, NAN].map(bf16::from_f32), &[3])?;
        let one = gpu.tensor(&[bf16::ONE], &[1])?;
        gives!(bool: h.is_close(&one, 0.02, 0.0, true) => [true, true, false]);
        let n = gpu.tensor(&[1], &[1])?;
        refused!(DType: n.is_close(&n, 0.0, 0.0, false));
    }
    Ok(())
}

#[test]
fn what_is_not_finite_becomes_a_number() -> Result<()> {
    for gpu in each() {
        let x = gpu.tensor(&[NAN, INF, -INF, -0.0, 2.5], &[5])?;
        let finite = x.nan_to_num(0.0, None, None)?.to_vec::<f32>()?;
        assert_eq!(finite, [0.0, f32::MAX, -f32::MAX, 0.0, 2.5]);
        assert!(finite[3].is_sign_negative());
        let chosen = x.nan_to_num(INF, Some(-INF), Some(7.0))?.to_vec::<f32>()?;
        // The replacement of NaN is not replaced again.
        assert_eq!(chosen, [INF, -INF, 7.0, -0.0, 2.5]);
        let h = x.cast(DType::F16)?.nan_to_num(1.0, None, None)?;
        assert_eq!(floats(&h)?, [1.0, 65504.0, -65504.0, 0.0, 2.5]);
        let u = x.cast(DType::Bf16)?.nan_to_num(1.0, None, Some(-3.0))?;
        assert_eq!(floats(&u)?[..3], [1.0, bf16::MAX.to_f32(), -3.0]);
        let truths = |of: Result<Tensor>| of?.to_vec::<bool>();
        let wanted = [false, true, false, false, false];
        assert_eq!(truths(x.is_pos_inf())?, wanted);
        let wanted = [false, false, true, false, false];
        assert_eq!(truths(x.is_neg_inf())?, wanted);
        x.narrow(0, 0, 2)?.nan_to_num_(0.5, None, None)?;
        assert_eq!(x.to_vec::<f32>()?, [0.5, f32::MAX, -INF, 0.0, 2.5]);
        let n = gpu.tensor(&[1], &[1])?;
        refused!(DType: n.nan_to_num(0.0, None, None));
        refused!(DType: n.is_pos_inf());
        refused!(DType: n.is_neg_inf());
    }
    Ok(())
}

#[test]
fn thresholds_hold_integers_too() -> Result<()> {
    for gpu in each() {
        let n = gpu.tensor(&[-9, -2, 0, 3, 8], &[5])?;
        gives!(i32: n.relu6() => [0, 0, 0, 3, 6]);
        gives!(i32: n.hardtanh(-2, 3) => [-2, -2, 0, 3, 3]);
        gives!(i32: n.threshold(0, 20) => [20, 20, 20, 3, 8]);
        refused!(DType: n.hardshrink(0.5));
        refused!(DType: n.softshrink(0.5));
        refused!(DType: n.threshold(0.5, 0));
        let b = gpu.tensor(&[true], &[1])?;
        refused!(DType: b.threshold(true, false));
    }
    Ok(())
}

#[test]
fn slopes_are_one_for_all_or_one_a_channel() -> Result<()> {
    let values: Vec<f32> = ODD_FLOATS[..24].to_vec();
    let reference = reference();
    let far = |x: &Tensor| x.to(&reference);
    for gpu in each() {
        for dtype in [DType::F16, DType::Bf16] {
            let x = gpu.tensor(&values, &[2, 3, 4])?.cast(dtype)?;
            let weight = gpu.tensor(&[0.25, 0.0, -2.0], &[3])?.cast(dtype)?;
            for weights in [&weight, &weight.narrow(0, 0, 1)?] {
                let (got, wanted) = (x.prelu(weights)?, far(&x)?.prelu(&far(weights)?)?);
                let what = format!("prelu by {weights}");
                check_all(&what, &got, &wanted, |_| Some([0.0; 2]), at)?;
            }
            refused!(Shape: x.prelu(&weight.narrow(0, 0, 2)?));
        }
        let row = gpu.tensor(&[-1.0_f32, 2.0], &[2])?;
        let slope = gpu.tensor(&[0.5_f32], &[1])?;
        gives!(f32: row.prelu(&slope) => [-0.5, 2.0]);
        let half = gpu.tensor(&[f16::ONE], &[1])?;
        refused!(DType: row.prelu(&half));
        refused!(Shape: row.prelu(&row));
    }
    Ok(())
}

#[test]
fn one_half_of_an_axis_is_the_gate_of_the_other() -> Result<()> {
    let values: Vec<f32> = (0..96).map(|n| (n as f32 - 48.0) * 0.21).collect();
    let reference = reference();
    let far = |x: &Tensor| x.to(&reference);
    for gpu in each() {
        for dtype in [DType::F16, DType::Bf16] {
            let x = gpu.tensor(&values, &[4, 6, 4])?.cast(dtype)?;
            for axis in [0, 1, -1] {
                let (got, wanted) = (x.glu(axis)?, far(&x)?.glu(axis)?);
                let what = format!("glu along {axis}");
                check_all(&what, &got, &wanted, |_| Some([2e-5, 1e-7]), at)?;
            }
        }
        let x = gpu.zeros(&[2, 3], DType::F32)?;
        refused!(Shape: x.glu(1));
        refused!(Axis: x.glu(2));
        assert_eq!(x.narrow(1, 0, 0)?.glu(1)?.shape(), [2, 0]);
        let n = gpu.zeros(&[2], DType::I32)?;
        refused!(DType: n.glu(0));
    }
    Ok(())
}
