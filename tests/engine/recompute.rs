//! Tensors that are given up when memory is short, and computed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lapidary::sim::{Fault, FaultKind, Site};
use lapidary::{DType, Error, Residency, Tensor};

use crate::{ended, numbers, open, options};

/// What twice the numbers from `start` on and one is, by two operations.
fn doubled(x: &Tensor) -> lapidary::Result<Tensor> {
    x.mul_scalar(2)?.add_scalar(1)
}

fn expected(start: usize) -> Vec<f32> {
    numbers(start, 64).iter().map(|n| 2.0 * n + 1.0).collect()
}

#[test]
fn what_is_given_up_is_computed_again_when_somebody_uses_it() {
    let (gpu, sim) = open(options());
    let times = Arc::new(AtomicU32::new(0));
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = doubled(&x).unwrap();
    let counted = times.clone();
    y.recompute_with(&[&x], move |inputs| {
        counted.fetch_add(1, Ordering::Relaxed);
        doubled(&inputs[0])
    })
    .unwrap();
    for round in 1..4 {
        y.evict().unwrap();
        assert_eq!(y.residency(), Residency::Backed);
        // The input may be away as well.
        x.evict().unwrap();
        let z = y.add(&y.flip(&[0]).unwrap()).unwrap();
        assert_eq!(z.to_vec::<f32>().unwrap(), vec![2.0 * 69.0 + 2.0; 64]);
        assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));
        assert_eq!(times.load(Ordering::Relaxed), round);
    }
    let memory = gpu.memory();
    assert!(memory.dropped_bytes >= 3 * 256, "{memory}");
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn what_a_refused_submission_should_have_computed_again_is_not_there() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = doubled(&x).unwrap();
    y.recompute_with(&[&x], |inputs| doubled(&inputs[0]))
        .unwrap();
    y.evict().unwrap();
    y.prefetch().unwrap();
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Invalid));
    gpu.flush().unwrap();
    assert_eq!(sim.counters().faults, 1);
    assert_eq!(y.residency(), Residency::Backed);
    assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));
    drop((x, y));
    ended(gpu, &sim);
}

#[test]
fn one_recipe_may_need_another() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = doubled(&x).unwrap();
    y.recompute_with(&[&x], |inputs| doubled(&inputs[0]))
        .unwrap();
    let z = doubled(&y).unwrap();
    z.recompute_with(&[&y], |inputs| doubled(&inputs[0]))
        .unwrap();
    z.evict().unwrap();
    y.evict().unwrap();
    let twice: Vec<f32> = expected(3).iter().map(|n| 2.0 * n + 1.0).collect();
    assert_eq!(z.to_vec::<f32>().unwrap(), twice);
    drop((x, y, z));
    ended(gpu, &sim);
}

#[test]
fn a_recipe_whose_input_has_changed_is_none() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let y = doubled(&x).unwrap();
    y.recompute_with(&[&x], |inputs| doubled(&inputs[0]))
        .unwrap();
    x.write(&numbers(100, 64)).unwrap();
    // Still there, so it is kept as any other.
    y.evict().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected(3));

    let z = doubled(&x).unwrap();
    z.recompute_with(&[&x], |inputs| doubled(&inputs[0]))
        .unwrap();
    z.evict().unwrap();
    x.write(&numbers(0, 64)).unwrap();
    let error = z.to_vec::<f32>().unwrap_err();
    assert!(error.to_string().contains("written to since"), "{error}");
    drop((x, y, z));
    ended(gpu, &sim);
}

#[test]
fn recipes_that_fail_concern_their_tensor_and_nothing_else() {
    let (gpu, sim) = open(options());
    let x = gpu.tensor(&numbers(3, 64), &[64]).unwrap();
    let kept = gpu.zeros(&[64], DType::F32).unwrap();
    let held = kept.clone();
    type Recipe = Box<dyn Fn(&[Tensor]) -> lapidary::Result<Tensor> + Send + Sync>;
    let recipes: Vec<Recipe> = vec![
        Box::new(|_| panic!("a recipe's own affair")),
        Box::new(|inputs| inputs[0].narrow(0, 0, 8)),
        Box::new(|inputs| inputs[0].narrow(0, 0, 8)?.copy()),
        Box::new(|inputs| inputs[0].cast(DType::I32)),
        Box::new(|inputs| Ok(inputs[0].clone())),
        Box::new(|inputs| inputs[0].to_vec::<f32>().map(|_| inputs[0].clone())),
        Box::new(move |_| Ok(held.clone())),
    ];
    for recipe in recipes {
        let y = doubled(&x).unwrap();
        y.recompute_with(&[&x], recipe).unwrap();
        y.evict().unwrap();
        let error = y.to_vec::<f32>().unwrap_err();
        assert!(!matches!(error, Error::DeviceLost { .. }), "{error}");
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(3, 64));
        y.write(&numbers(9, 64)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), numbers(9, 64));
    }
    assert_eq!(kept.to_vec::<f32>().unwrap(), vec![0.0; 64]);
    drop((x, kept));
    ended(gpu, &sim);
}
