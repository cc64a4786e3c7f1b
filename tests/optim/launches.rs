//! Many parameters share a launch, large ones take several, and a step makes nothing new.

use lapidary::optim::{AdamW, AdamWOptions, Sgd, SgdOptions};
use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Error, Gpu, Options, Tensor, grad::Gradients};

use super::{elements, gradients, parameter};

fn open(max_binding_bytes: u64) -> (Gpu, SimHandle) {
    let options = SimOptions {
        max_binding_bytes,
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).unwrap()
}

fn parameters(gpu: &Gpu, lens: &[usize]) -> Vec<Tensor> {
    let elements = |len: usize| (0..len).map(|at| (at % 7) as f32 - 3.0).collect::<Vec<_>>();
    let parameters = lens
        .iter()
        .map(|&len| parameter(gpu, &elements(len), &[len]));
    parameters.collect()
}

fn gradients_of(parameters: &[Tensor]) -> Gradients {
    let elements = |of: &Tensor| (0..of.len()).map(|at| (at % 5) as f32 - 2.5).collect();
    let made: Vec<Vec<f32>> = parameters.iter().map(elements).collect();
    let pairs: Vec<_> = parameters
        .iter()
        .zip(made.iter().map(|all| &all[..]))
        .collect();
    gradients(&pairs)
}

/// The launches of a step of each optimizer, and of clipping, for 100 parameters.
fn launches_of_a_hundred(max_storage_bindings: u32) -> [u64; 3] {
    let options = SimOptions {
        max_storage_bindings,
        ..SimOptions::default()
    };
    let (gpu, sim) = Gpu::simulated(options).unwrap();
    let lens: Vec<usize> = (1..=100).collect();
    let parameters = parameters(&gpu, &lens);
    let all: Vec<&Tensor> = parameters.iter().collect();
    let mut adam = AdamW::new(&all, AdamWOptions::default()).unwrap();
    let mut sgd = Sgd::new(&all, SgdOptions::default()).unwrap();
    let mut gradients = gradients_of(&parameters);
    gpu.finish().unwrap();
    let launches = |work: &mut dyn FnMut()| {
        let before = sim.counters().dispatches;
        work();
        gpu.finish().unwrap();
        sim.counters().dispatches - before
    };
    [
        launches(&mut || adam.step(&gradients).unwrap()),
        launches(&mut || sgd.step(&gradients).unwrap()),
        launches(&mut || drop(gradients.clip_global_norm(1.0).unwrap())),
    ]
}

#[test]
fn a_hundred_parameters_take_far_fewer_launches() {
    // One launch counts the step. Of the others each updates three parameters, or two where AdamW
    // has only seven bindings. Seven or six gradients share a launch for their norm, and another
    // one for the product. The sum and the root of the norm are one launch.
    assert_eq!(launches_of_a_hundred(16), [1 + 34, 1 + 34, 15 + 1 + 15]);
    assert_eq!(launches_of_a_hundred(8), [1 + 50, 1 + 34, 17 + 1 + 17]);
}

#[test]
fn a_step_with_another_rate_makes_no_pipeline_and_no_buffer() {
    let (gpu, sim) = open(128 << 20);
    let parameters = parameters(&gpu, &[3, 1000, 20_000]);
    let all: Vec<&Tensor> = parameters.iter().collect();
    let mut adam = AdamW::new(&all, AdamWOptions::default()).unwrap();
    let gradients = gradients_of(&parameters);
    let mut counts = Vec::new();
    for round in 0..6 {
        adam.set_learning_rate(1e-3 / f64::from(1 + round)).unwrap();
        adam.step(&gradients).unwrap();
        gpu.finish().unwrap();
        let counters = sim.counters();
        counts.push((counters.pipelines_created, counters.buffers_created));
    }
    assert_eq!(counts[2], counts[5]);
}

#[test]
fn state_is_in_tensors_with_a_name_that_may_be_evicted() {
    let (gpu, _) = open(128 << 20);
    let parameters = parameters(&gpu, &[1000]);
    let mut adam = AdamW::new(&[&parameters[0]], AdamWOptions::default()).unwrap();
    let gradients = gradients_of(&parameters);
    adam.step(&gradients).unwrap();
    let kept = elements(&adam.state("adam")[1].1);
    for (name, tensor) in adam.state("adam") {
        let tag = tensor.tag();
        assert_eq!(tag.name(), Some("optimizer state"), "{name}");
        assert!(tag.file().ends_with("launches.rs"), "{tag}");
        tensor.force().unwrap();
        tensor.evict().unwrap();
    }
    assert_eq!(elements(&adam.state("adam")[1].1), kept);
    adam.step(&gradients).unwrap();
}

#[test]
fn a_training_that_does_not_fit_is_evicted_and_gives_the_same_bits() {
    let run = |budget: Budget| {
        let options = Options {
            budget: Some(budget),
            ..Options::from_env().unwrap()
        };
        let (gpu, _) = Gpu::simulated_with(SimOptions::default(), options).unwrap();
        // Of 1 MiB each: with gradients and moments 33 MiB.
        let parameters = parameters(&gpu, &[1 << 18; 8]);
        let small = parameter(&gpu, &[1.0; 9], &[9]);
        let mut all: Vec<&Tensor> = parameters.iter().collect();
        all.push(&small);
        let mut adam = AdamW::new(&all, AdamWOptions::default()).unwrap();
        for _ in 0..2 {
            let mut gradients = Gradients::default();
            for parameter in &all {
                let loss = parameter.square().unwrap().sum_all().unwrap();
                loss.backprop().add_to(&mut gradients).unwrap();
            }
            gradients.clip_global_norm(1.0).unwrap();
            adam.step(&gradients).unwrap();
        }
        let values: Vec<Vec<f32>> = all.into_iter().map(elements).collect();
        (values, gpu.memory().stats().evicted_bytes)
    };
    let (expected, _) = run(Budget::default());
    let (values, evicted_bytes) = run(Budget::device(10 << 20));
    assert!(values == expected);
    assert!(evicted_bytes > 0);
}

#[test]
fn a_history_from_before_a_step_finds_out() {
    let (gpu, _) = open(128 << 20);
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let mut sgd = Sgd::new(&[&w], SgdOptions::default()).unwrap();
    let loss = w.square().unwrap().sum_all().unwrap();
    sgd.step(&gradients(&[(&w, &[1.0, 1.0])])).unwrap();
    let error = loss.backward().unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }), "{error}");
    assert!(error.to_string().contains("launches.rs"), "{error}");
}

#[test]
fn a_parameter_that_is_a_view_is_updated_in_its_place() {
    let (gpu, _) = open(128 << 20);
    let whole = gpu
        .tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])
        .unwrap();
    let part = whole
        .t()
        .unwrap()
        .narrow(0, 1, 2)
        .unwrap()
        .requires_grad()
        .unwrap();
    let options = SgdOptions {
        lr: 1.0,
        momentum: 0.5,
        ..SgdOptions::default()
    };
    let mut sgd = Sgd::new(&[&part], options).unwrap();
    sgd.step(&gradients(&[(&part, &[0.5, 0.25, 1.0, 2.0])]))
        .unwrap();
    assert_eq!(elements(&whole), [1.0, 1.5, 2.0, 4.0, 4.75, 4.0]);
}
