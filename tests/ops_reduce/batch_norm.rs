//! Batch normalization with known statistics and with those of the batch, and its gradients.

use lapidary::{DType, Result, Tensor};

use crate::devices::{reference, refused};

use super::model::*;

const SHAPE: [usize; 3] = [4, 3, 5];

#[test]
fn a_batch_is_normalized_by_its_own_statistics_and_rounded_once() -> Result<()> {
    let reference = reference();
    for gpu in each() {
        let weight = Array::new(&[3], |at| 1.1 + 0.7 * at as f64).upload(&gpu, DType::F32);
        let bias = Array::new(&[3], |at| 0.3 - 0.9 * at as f64).upload(&gpu, DType::F32);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (view, x) in views(&made(&gpu, &SHAPE, dtype)) {
                if x.shape() != SHAPE {
                    continue;
                }
                let what = format!("{dtype} {view}");
                let norm = |t: &[Tensor]| t[0].batch_norm_train(Some(&t[1]), Some(&t[2]), 1e-3);
                all_same(&what, &reference, &[&x, &weight, &bias], 1e-5, |t| {
                    norm(t).map(|[_, mean, variance]| [mean, variance])
                });
                let far = [&x.cast(DType::F32)?, &weight, &bias];
                let far = far.map(|t| t.to(&reference).unwrap());
                let [wanted, ..] = norm(&far)?;
                let [y, mean, _] = norm(&[x.clone(), weight.clone(), bias.clone()])?;
                let known = far[0].var(&[0, 2], 0)?.to(&gpu)?;
                let known = x.batch_norm(&mean, &known, Some(&weight), Some(&bias), 1e-3)?;
                for y in [y, known] {
                    assert_eq!((y.dtype(), mean.dtype()), (dtype, DType::F32));
                    is_rounded_once(&y, &wanted, &what);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_of_a_normalized_batch_are_those_of_the_reference() {
    let reference = reference();
    for (name, gpu) in gpus() {
        let x = made(&gpu, &SHAPE, DType::F32);
        let weight = Array::new(&[3], |at| 0.5 + at as f64).upload(&gpu, DType::F32);
        let grad = Array::new(&SHAPE, |at| (at % 7) as f64 - 3.0).upload(&gpu, DType::F32);
        all_same(name, &reference, &[&grad, &x, &weight], 1e-4, |t| {
            t[0].batch_norm_backward(&t[1], Some(&t[2]), 1e-3)
        });
    }
}

#[test]
fn batches_that_cannot_be_normalized_are_refused() -> Result<()> {
    for gpu in each() {
        let x = gpu.ones(&[2, 3, 4], DType::F32)?;
        let [three, four] = [3, 4].map(|len| gpu.ones(&[len], DType::F32).unwrap());
        refused!(Shape: x.batch_norm(&four, &three, None, None, 0.0));
        refused!(Shape: x.batch_norm(&three, &three, Some(&four), None, 0.0));
        refused!(Shape: three.batch_norm(&three, &three, None, None, 0.0));
        let one = gpu.ones(&[1, 3], DType::F32)?;
        assert!(one.batch_norm(&three, &three, None, None, 0.0).is_ok());
        let refused = one.batch_norm_train(None, None, 0.0).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("1 elements a channel"), "{refused}");
        let none = gpu.ones(&[2, 0, 4], DType::F32)?;
        let [none, ..] = none.batch_norm_train(None, None, 0.0)?;
        assert_eq!(none.shape(), [2, 0, 4]);
        let ints = gpu.ones(&[2, 3], DType::I32)?;
        refused!(DType: ints.batch_norm(&three, &three, None, None, 0.0));
        let other = reference();
        let foreign = other.ones(&[3], DType::F32)?;
        refused!(Foreign: x.batch_norm(&foreign, &three, None, None, 0.0));
        refused!(Shape: three.batch_norm_backward(&x, None, 0.0));
    }
    Ok(())
}
