//! What is fused is one dispatch, and what nobody holds takes no memory.

use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Result, Tensor};

use crate::simulated;

/// Dispatches that a piece of work takes, and the tensors that are left of it.
fn dispatches(work: impl Fn(&Gpu, &[Tensor]) -> Result<Vec<Tensor>>) -> (u64, Vec<String>) {
    let (gpu, sim) = simulated(true, SimOptions::default());
    let inputs = (0..4).map(|seed| gpu.rand_normal(&[6, 8], 0.0, 1.0, seed, DType::F32));
    let inputs: Vec<Tensor> = inputs.collect::<Result<_>>().expect("room");
    gpu.finish().expect("a device");
    let before = sim.counters().dispatches;
    let held = work(&gpu, &inputs).expect("shapes that fit");
    gpu.finish().expect("a device");
    let made = sim.counters().dispatches - before;
    drop(held);
    let names = gpu.fused_kernels().into_iter().map(|kernel| kernel.name);
    (made, names.collect())
}

#[test]
fn a_chain_is_one_dispatch_that_is_named_after_it() {
    let (made, names) = dispatches(|_, x| {
        let y = ((&x[0] * &x[1])? + &x[2])?.relu()?;
        Ok(vec![(y * &x[3])?])
    });
    assert_eq!(
        (made, &names[..]),
        (1, &["relu(a * b + c) * d".to_string()][..])
    );
}
