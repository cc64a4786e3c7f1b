//! Batch normalization with known statistics and with those of the batch, and its gradients.

use lapidary::{DType, Error, Result};

use crate::devices::{reference, refused};

use super::model::*;

const SHAPE: [usize; 3] = [4, 3, 5];

/// The elements of each channel.
fn channels(array: &Array) -> Vec<Vec<f64>> {
    array.rows(&[0, 2]).1
}

fn channel(flat: usize) -> usize {
    flat / SHAPE[2] % SHAPE[1]
}

#[test]
fn a_batch_is_normalized_by_its_own_statistics_and_rounded_once() {
    for gpu in each() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let array = Array::new(&SHAPE, noise(dtype)).rounded(dtype);
            let weight = Array::new(&[3], |at| 1.1 + 0.7 * at as f64).rounded(DType::F32);
            let bias = Array::new(&[3], |at| 0.3 - 0.9 * at as f64).rounded(DType::F32);
            let [w, b] = [&weight, &bias].map(|one| one.upload(&gpu, DType::F32));
            let x = array.upload(&gpu, dtype);
            for (view, array, x) in views(&array, &x) {
                if array.shape != SHAPE {
                    continue;
                }
                let what = format!("{dtype} {view}");
                let rows = channels(&array);
                let count = rows[0].len() as f64;
                let mean = Array::new(&[3], |at| rows[at].iter().sum::<f64>() / count);
                let population = Array::new(&[3], |at| {
                    let far = rows[at].iter().map(|v| (v - mean.values[at]).powi(2));
                    far.sum::<f64>() / count
                });
                let sample = population.values.iter().map(|v| v * count / (count - 1.0));
                let sample: Vec<f64> = sample.collect();
                let [y, got_mean, got_variance] =
                    x.batch_norm_train(Some(&w), Some(&b), 1e-3).expect(&what);
                assert_eq!((y.dtype(), got_mean.dtype()), (dtype, DType::F32));
                assert_close(&download(&got_mean), &mean, 1e-5, &what);
                let sample = Array::new(&[3], |at| sample[at]);
                assert_close(&download(&got_variance), &sample, 1e-5, &what);
                let known = population.upload(&gpu, DType::F32);
                let known = x.batch_norm(&got_mean, &known, Some(&w), Some(&b), 1e-3);
                for y in [y, known.expect(&what)] {
                    for (at, &got) in download(&y).values.iter().enumerate() {
                        let of = channel(at);
                        let away = array.values[at] - mean.values[of];
                        let value = away / (population.values[of] + 1e-3).sqrt();
                        let wanted = value * weight.values[of] + bias.values[of];
                        // Half a unit in the last place of this many bits.
                        let bits = match dtype {
                            DType::F32 => 20.0,
                            DType::F16 => 11.0,
                            _ => 8.0,
                        };
                        let half = (wanted.abs().log2().floor().max(-14.0) - bits).exp2();
                        let fault = format!("{what}: element {at} is {got}, not {wanted}");
                        assert!((got - wanted).abs() <= half + 4e-6, "{fault}");
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_of_a_normalized_batch_agree_with_differences() -> Result<()> {
    for (name, gpu) in gpus() {
        let array = Array::new(&SHAPE, noise(DType::F32)).rounded(DType::F32);
        let weight = Array::new(&[3], |at| 0.5 + at as f64).rounded(DType::F32);
        let grad = Array::new(&SHAPE, |at| (at % 7) as f64 - 3.0);
        let [x, g] = [&array, &grad].map(|one| one.upload(&gpu, DType::F32));
        let w = weight.upload(&gpu, DType::F32);
        let [by_x, by_w, by_b] = g.batch_norm_backward(&x, Some(&w), 1e-3)?;
        assert_eq!(
            (by_x.shape(), by_w.shape(), by_b.shape()),
            (&SHAPE[..], &[3][..], &[3][..])
        );
        let loss = |values: &[f64], weight: &[f64]| {
            let rows = channels(&Array::new(&SHAPE, |at| values[at]));
            let normal = |at: usize| {
                let row = &rows[channel(at)];
                let mean = row.iter().sum::<f64>() / row.len() as f64;
                let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
                (values[at] - mean) / (square / row.len() as f64 + 1e-3).sqrt()
            };
            let term = |at: usize| normal(at) * weight[channel(at)] * grad.values[at];
            (0..values.len()).map(term).sum::<f64>()
        };
        let by_x = download(&by_x);
        for at in (0..array.values.len()).step_by(7) {
            let moved = |by: f64| {
                let mut values = array.values.clone();
                values[at] += by;
                loss(&values, &weight.values)
            };
            let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (by_x.values[at] - wanted).abs() < 1e-3,
                "{name}: {at}, {wanted}"
            );
        }
        let by_w = download(&by_w);
        for at in 0..3 {
            let moved = |by: f64| {
                let mut weight = weight.values.clone();
                weight[at] += by;
                loss(&array.values, &weight)
            };
            let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (by_w.values[at] - wanted).abs() < 1e-3,
                "{name}: {at}, {wanted}"
            );
        }
        let sums = Array::new(&[3], |at| channels(&grad)[at].iter().sum());
        assert_close(&download(&by_b), &sums, 1e-5, name);
    }
    Ok(())
}

#[test]
fn batches_that_cannot_be_normalized_are_refused() -> Result<()> {
    for gpu in each() {
        let x = gpu.ones(&[2, 3, 4], DType::F32)?;
        let [three, four] = [3, 4].map(|len| gpu.ones(&[len], DType::F32).unwrap());
        let is_shape = |made: Result<_>| matches!(made, Err(Error::Shape { .. }));
        assert!(is_shape(x.batch_norm(&four, &three, None, None, 0.0)));
        assert!(is_shape(x.batch_norm(
            &three,
            &three,
            Some(&four),
            None,
            0.0
        )));
        assert!(is_shape(three.batch_norm(&three, &three, None, None, 0.0)));
        let one = gpu.ones(&[1, 3], DType::F32)?;
        assert!(one.batch_norm(&three, &three, None, None, 0.0).is_ok());
        let refused = one.batch_norm_train(None, None, 0.0).unwrap_err();
        assert!(
            refused.to_string().contains("1 elements a channel"),
            "{refused}"
        );
        let none = gpu.ones(&[2, 0, 4], DType::F32)?;
        assert_eq!(
            none.batch_norm_train(None, None, 0.0)?[0].shape(),
            [2, 0, 4]
        );
        let ints = gpu.ones(&[2, 3], DType::I32)?;
        refused!(DType: ints.batch_norm(&three, &three, None, None, 0.0));
        let other = reference();
        let foreign = other.ones(&[3], DType::F32)?;
        refused!(Foreign: x.batch_norm(&foreign, &three, None, None, 0.0));
        refused!(Shape: three.batch_norm_backward(&x, None, 0.0));
    }
    Ok(())
}
