//! Loss scaling: what is skipped, and how the scale moves.

use lapidary::optim::{AdamW, AdamWOptions, LossScaler, LossScalerOptions, Sgd, SgdOptions};
use lapidary::{DType, Error, Gpu, Tensor};

use super::{elements, gradients, parameter};
use crate::devices::gpus;

const OPTIONS: LossScalerOptions = LossScalerOptions {
    initial_scale: 8.0,
    growth_factor: 4.0,
    backoff_factor: 0.5,
    growth_interval: 3,
};

fn bits(tensors: &[Tensor]) -> Vec<u32> {
    let all = tensors.iter().flat_map(elements);
    all.map(f32::to_bits).collect()
}

#[test]
fn a_step_with_a_nan_is_skipped_and_counted_and_the_scale_moves() {
    for (device, gpu) in gpus() {
        let w = parameter(&gpu, &[1.0; 70], &[70]);
        let b = parameter(&gpu, &[1.0; 3], &[3]);
        let mut adam = AdamW::new(&[&w, &b], AdamWOptions::default()).unwrap();
        let mut scaler = LossScaler::new(&gpu, OPTIONS).unwrap();
        let mut before = Vec::new();
        // For each step: the last gradient of `b`, the scale after it, the skipped steps.
        let steps = [
            (1.0, 8.0, 0),
            (f32::NAN, 4.0, 1),
            (f32::NEG_INFINITY, 2.0, 2),
            (2.0, 2.0, 2),
            (3.0, 2.0, 2),
            (-1.0, 8.0, 2),
            (f32::INFINITY, 4.0, 3),
        ];
        for (gradient, scale, skipped) in steps {
            let of_b = [0.5, 1.0, gradient];
            let gradients = gradients(&[(&w, &[1.0; 70]), (&b, &of_b)]);
            adam.step_scaled(&gradients, &mut scaler).unwrap();
            scaler.update().unwrap();
            let now = scaler.current_scale().unwrap().item::<f32>().unwrap();
            let count = scaler.skipped_steps().unwrap().item::<u32>().unwrap();
            assert_eq!((now, count), (scale, skipped), "{device}, {gradient}");
            let state = adam.state("adam").into_iter().map(|(_, tensor)| tensor);
            let after = bits(&[vec![w.clone(), b.clone()], state.collect()].concat());
            assert_eq!(
                after == before,
                !gradient.is_finite(),
                "{device}, {gradient}"
            );
            before = after;
        }
        assert_eq!(elements(&adam.state("adam")[0].1), [4.0, 4.0], "{device}");
    }
}

#[test]
fn a_skipped_step_leaves_no_trace_and_a_scale_changes_no_bit() {
    let run = |gpu: &Gpu, scale: f32, bad: usize| {
        let w = parameter(gpu, &[0.5, -1.5, 2.0], &[3]);
        let mut adam = AdamW::new(&[&w], AdamWOptions::default()).unwrap();
        let options = LossScalerOptions {
            initial_scale: scale,
            backoff_factor: 0.999,
            ..LossScalerOptions::default()
        };
        for step in 0..5 {
            // Each step has a scaler of its own, so that the scale stays a power of two.
            let mut scaler = LossScaler::new(gpu, options).unwrap();
            let loss = w.square().unwrap().sum_all().unwrap();
            let loss = match step == bad {
                true => (loss / 0.0).unwrap(),
                false => loss,
            };
            let gradients = scaler.scale(&loss).unwrap().backward().unwrap();
            adam.step_scaled(&gradients, &mut scaler).unwrap();
        }
        bits(&[w])
    };
    for (device, gpu) in gpus() {
        let without = run(&gpu, 1.0, 0);
        assert_eq!(run(&gpu, 1.0, 2), without, "{device}");
        assert_eq!(run(&gpu, 1024.0, 4), without, "{device}");
    }
}

#[test]
fn small_gradients_in_f16_survive_by_the_scale() {
    for (device, gpu) in gpus() {
        let make = || {
            let made = gpu.tensor(&[1.0_f32; 5], &[5]).unwrap();
            made.cast(DType::F16).unwrap().requires_grad().unwrap()
        };
        let options = SgdOptions {
            lr: 1e6,
            ..SgdOptions::default()
        };
        let step = |w: &Tensor, scaler: &mut LossScaler| {
            let mut sgd = Sgd::new(&[w], options).unwrap();
            let loss = (w.sum_all().unwrap().cast(DType::F32).unwrap() * 1e-7).unwrap();
            let gradients = scaler.scale(&loss).unwrap().backward().unwrap();
            sgd.step_scaled(&gradients, scaler).unwrap();
        };
        let (w, lost) = (make(), make());
        let scaled = |initial_scale| {
            let options = LossScalerOptions {
                initial_scale,
                ..LossScalerOptions::default()
            };
            LossScaler::new(&gpu, options).unwrap()
        };
        step(&w, &mut scaled(32768.0));
        step(&lost, &mut scaled(0.125));
        let expected = [0.9_f32; 5];
        for (made, expected) in elements(&w).into_iter().zip(expected) {
            assert!((made - expected).abs() < 1e-3, "{device}: {made}");
        }
        assert_eq!(elements(&lost), [1.0; 5], "{device}");
    }
}

#[test]
fn unscaled_gradients_are_clipped_as_they_are() {
    for (device, gpu) in gpus() {
        let w = parameter(&gpu, &[3.0, 4.0], &[2]);
        let mut sgd = Sgd::new(
            &[&w],
            SgdOptions {
                lr: 1.0,
                ..SgdOptions::default()
            },
        )
        .unwrap();
        let mut scaler = LossScaler::new(&gpu, OPTIONS).unwrap();
        let loss = (w.square().unwrap().sum_all().unwrap() * 0.5).unwrap();
        let mut gradients = scaler.scale(&loss).unwrap().backward().unwrap();
        scaler.unscale(&mut gradients).unwrap();
        let norm = gradients.clip_global_norm(1.0).unwrap();
        assert_eq!(norm.item::<f32>().unwrap(), 5.0, "{device}");
        sgd.step_scaled(&gradients, &mut scaler).unwrap();
        let made = elements(&w);
        assert!(
            (made[0] - 2.4).abs() + (made[1] - 3.2).abs() < 1e-5,
            "{made:?}"
        );
        // The scale is that of gradients before `unscale`, and each is divided once.
        let twice = scaler.unscale(&mut gradients);
        assert!(matches!(twice, Err(Error::Gradient { .. })), "{device}");
        let loss = w.square().unwrap().sum_all().unwrap();
        let added = loss.backprop().add_to(&mut gradients);
        assert!(matches!(added, Err(Error::Gradient { .. })), "{device}");
        assert_eq!(gradients.len(), 1, "{device}");
        scaler.update().unwrap();
        let again = scaler.update().unwrap_err().to_string();
        assert!(again.contains("no gradients were checked"), "{again}");
        let late = sgd.step_scaled(&gradients, &mut scaler);
        assert!(matches!(late, Err(Error::Gradient { .. })), "{device}");
    }
}

#[test]
fn a_scale_grows_no_further_than_floats_and_shrinks_to_no_zero() {
    let (_, gpu) = gpus().swap_remove(0);
    let run = |initial_scale, gradient| {
        let w = parameter(&gpu, &[1.0], &[1]);
        let options = LossScalerOptions {
            initial_scale,
            growth_interval: 1,
            ..LossScalerOptions::default()
        };
        let mut scaler = LossScaler::new(&gpu, options).unwrap();
        for _ in 0..3 {
            let mut gradients = gradients(&[(&w, &[gradient])]);
            scaler.unscale(&mut gradients).unwrap();
            scaler.update().unwrap();
        }
        scaler.current_scale().unwrap().item::<f32>().unwrap()
    };
    // The inverse of a larger scale is 0 to some devices, and with it each gradient.
    let most = 1.0 / f32::MIN_POSITIVE;
    assert_eq!(run(most / 2.0, 1.0), most);
    assert_eq!(run(most / 3.0, 1.0), most / 3.0 * 2.0);
    assert_eq!(run(2.0 * f32::MIN_POSITIVE, f32::NAN), f32::MIN_POSITIVE);
}

#[test]
fn the_greatest_scale_leaves_gradients_as_they_are() {
    let initial_scale = 1.0 / f32::MIN_POSITIVE;
    for (device, gpu) in gpus() {
        let w = parameter(&gpu, &[1.0], &[1]);
        let options = LossScalerOptions {
            initial_scale,
            ..LossScalerOptions::default()
        };
        let mut scaler = LossScaler::new(&gpu, options).unwrap();
        let mut sgd = Sgd::new(
            &[&w],
            SgdOptions {
                lr: 1.0,
                ..Default::default()
            },
        )
        .unwrap();
        let loss = (&w * 0.5).unwrap().sum_all().unwrap();
        let gradients = scaler.scale(&loss).unwrap().backward().unwrap();
        sgd.step_scaled(&gradients, &mut scaler).unwrap();
        assert_eq!(w.to_vec::<f32>().unwrap(), [0.5], "{device}");
    }
}

#[test]
fn a_loaded_state_is_a_copy_and_no_gradients_are_checked_yet() {
    for (device, gpu) in gpus() {
        let w = parameter(&gpu, &[1.0; 3], &[3]);
        let mut adam = AdamW::new(&[&w], AdamWOptions::default()).unwrap();
        let mut scaler = LossScaler::new(&gpu, OPTIONS).unwrap();
        let before = scaler.current_scale().unwrap();
        let saved = LossScaler::new(
            &gpu,
            LossScalerOptions {
                initial_scale: 32.0,
                ..OPTIONS
            },
        );
        let saved = saved.unwrap().state("scaler");
        let get = |name: &str| {
            let mut saved = saved.iter();
            let found = saved.find(|(saved, _)| saved == name);
            Ok(found.expect("it was saved").1.clone())
        };
        let bad = gradients(&[(&w, &[f32::NAN; 3])]);
        adam.step_scaled(&bad, &mut scaler).unwrap();
        scaler.load_state("scaler", get).unwrap();
        let error = scaler.update().unwrap_err();
        assert!(matches!(error, Error::Gradient { .. }), "{device}: {error}");
        let scales = [before, scaler.current_scale().unwrap()];
        let scales = scales.map(|scale| scale.item::<f32>().unwrap());
        assert_eq!(scales, [8.0, 32.0], "{device}");
    }
}
