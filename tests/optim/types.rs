//! Parameters and state of 16 bits, parameters of any size, and what shares a launch.

use half::{bf16, f16};
use lapidary::optim::{AdamW, AdamWOptions, Sgd, SgdOptions};
use lapidary::{DType, Tensor};

use super::{elements, gradients, parameter};
use crate::devices::gpus;

/// A number in a type, rounded to nearest.
fn rounded(x: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(x).to_f32(),
        DType::Bf16 => bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

#[test]
fn parameters_of_16_bits_are_rounded_once() {
    let start = [1.0, -2.0, 0.375, 8.0, 0.0];
    let by = [0.25, 0.5, -0.125, 3.0, 1.0];
    for (device, gpu) in gpus() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let make = |elements: &[f32]| -> Tensor {
                let made = gpu.tensor(elements, &[elements.len()]).unwrap();
                made.cast(dtype).unwrap().requires_grad().unwrap()
            };
            let (w, b) = (make(&start), make(&start[..2]));
            // The types of a group may differ.
            let wide = parameter(&gpu, &start, &[5]);
            let options = SgdOptions {
                lr: 0.0078125,
                momentum: 0.5,
                ..SgdOptions::default()
            };
            let mut sgd = Sgd::new(&[&w, &wide, &b], options).unwrap();
            let mut expected = start;
            let mut momentum = [0.0; 5];
            for _ in 0..3 {
                let gradients = gradients(&[(&w, &by), (&wide, &by), (&b, &by[..2])]);
                sgd.step(&gradients).unwrap();
                for at in 0..5 {
                    momentum[at] = 0.5 * momentum[at] + by[at];
                    let exact = expected[at] - 0.0078125 * momentum[at];
                    expected[at] = rounded(exact, dtype);
                }
            }
            assert_eq!(elements(&w), expected, "{dtype} on the {device}");
            assert_eq!(elements(&b), expected[..2], "{dtype} on the {device}");
        }
    }
}

#[test]
fn state_in_bf16_is_rounded_to_nearest_even() {
    // The halves between two neighbours go to the even one.
    let by = [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -0.3, 1e-3, 100.7];
    for (device, gpu) in gpus() {
        let [w, b] = [5, 3].map(|len| parameter(&gpu, &vec![1.0; len], &[len]));
        let options = AdamWOptions {
            betas: (0.0, 0.0),
            state_dtype: DType::Bf16,
            ..AdamWOptions::default()
        };
        let mut adam = AdamW::new(&[&w, &b], options).unwrap();
        adam.step(&gradients(&[(&w, &by), (&b, &by[..3])])).unwrap();
        let state = adam.state("adam");
        let names: Vec<&str> = state.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "adam.step",
            "adam.exp_avg.0",
            "adam.exp_avg.1",
            "adam.exp_avg_sq.0",
            "adam.exp_avg_sq.1",
        ];
        assert_eq!(names, expected);
        let of = |number: usize| (elements(&state[number].1), state[number].1.dtype());
        let first: Vec<f32> = by.iter().map(|&by| rounded(by, DType::Bf16)).collect();
        let second = by.iter().map(|&by| rounded(by * by, DType::Bf16));
        assert_eq!(of(1), (first.clone(), DType::Bf16), "{device}");
        assert_eq!(of(2), (first[..3].to_vec(), DType::Bf16), "{device}");
        assert_eq!(of(3), (second.collect(), DType::Bf16), "{device}");
    }
}

/// Elements of parameters, of which the first is wider than a small binding.
const LENS: [usize; 5] = [9001, 3, 4096, 70, 1];

#[test]
fn a_parameter_beyond_a_binding_and_a_group_give_the_same_bits_as_alone() {
    let mut seen: Vec<(bool, Vec<Vec<f32>>)> = Vec::new();
    for (device, gpu) in gpus() {
        for apart in [false, true] {
            let all = LENS.map(|len| {
                let elements: Vec<f32> = (0..len).map(|at| (at % 7) as f32 - 3.0).collect();
                let by: Vec<f32> = (0..len).map(|at| (at % 5) as f32 - 2.5).collect();
                (parameter(&gpu, &elements, &[len]), by)
            });
            let pairs = all.each_ref().map(|(parameter, by)| (parameter, &by[..]));
            let parameters = pairs.map(|(parameter, _)| parameter);
            for list in parameters.chunks(if apart { 1 } else { 5 }) {
                let mut adam = AdamW::new(list, AdamWOptions::default()).unwrap();
                for _ in 0..3 {
                    adam.step(&gradients(&pairs)).unwrap();
                }
            }
            let after: Vec<Vec<f32>> = parameters.map(elements).to_vec();
            let is_simulated = device.starts_with("simulation");
            match seen.iter().find(|(kind, _)| *kind == is_simulated) {
                Some((_, first)) => assert!(*first == after, "{device}, apart: {apart}"),
                None => seen.push((is_simulated, after)),
            }
        }
    }
}

#[test]
fn a_norm_is_that_of_all_elements_whatever_the_bindings() {
    for (device, gpu) in gpus() {
        let all = LENS.map(|len| {
            let by: Vec<f32> = (0..len).map(|at| (at % 11) as f32 / 8.0 - 0.5).collect();
            (parameter(&gpu, &vec![0.0; len], &[len]), by)
        });
        let pairs = all.each_ref().map(|(parameter, by)| (parameter, &by[..]));
        let squares = all.iter().flat_map(|(_, by)| by);
        let squares: f64 = squares.map(|&by| f64::from(by).powi(2)).sum();
        let expected = squares.sqrt();
        let mut gradients = gradients(&pairs);
        let norm = gradients.clip_global_norm(2.0).unwrap();
        let norm = f64::from(norm.item::<f32>().unwrap());
        assert!((norm / expected - 1.0).abs() < 1e-6, "{device}: {norm}");
        for (parameter, by) in pairs {
            let made = elements(&gradients.get(parameter).unwrap());
            let far = made.iter().zip(by).find(|&(&made, &by)| {
                let expected = f64::from(by) * 2.0 / (expected + 1e-6);
                (f64::from(made) - expected).abs() > 1e-7
            });
            assert_eq!(far, None, "{device}");
        }
    }
}

#[test]
fn a_parameter_without_elements_is_left_alone() {
    for (device, gpu) in gpus() {
        let [none, w] = [parameter(&gpu, &[], &[0, 3]), parameter(&gpu, &[1.0], &[])];
        let mut adam = AdamW::new(&[&none, &w], AdamWOptions::default()).unwrap();
        let mut gradients = gradients(&[(&none, &[]), (&w, &[2.0])]);
        let norm = gradients.clip_global_norm(1.0).unwrap();
        assert_eq!(norm.item::<f32>().unwrap(), 2.0, "{device}");
        adam.step(&gradients).unwrap();
        assert_eq!(elements(&adam.state("adam")[0].1), [0.0, 1.0], "{device}");
        assert_eq!(adam.state("adam")[1].1.shape(), [0, 3], "{device}");
    }
}
