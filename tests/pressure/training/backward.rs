//! Faults of the driver during a backward that adds to the gradients of another one.

use lapidary::grad::Gradients;
use lapidary::sim::{Fault, FaultKind, SimHandle, Speed};
use lapidary::stats::MemoryStats;
use lapidary::{Budget, Gpu, Tensor};

use super::{
    FAST_KERNELS, FAST_LINK, Network, check_all, end, executed, is_lost, open, open_tight,
};
use crate::pressure::faults::{Sample, calls, faults_since, forgets_kernels, sampled};

const SAMPLE: Sample = Sample {
    short: 797,
    longer: 101,
    longest: 1,
};

/// The gradients of one backward, and the sums of two.
struct Expected {
    once: Vec<Vec<u32>>,
    twice: Vec<Vec<u32>>,
}

/// A device with a network, whose second backward is to come.
struct Prepared {
    gpu: Gpu,
    sim: SimHandle,
    network: Network,
    gradients: Gradients,
    loss: Tensor,
}

impl Prepared {
    fn new((gpu, sim): (Gpu, SimHandle)) -> Self {
        let network = Network::new(&gpu, executed()).expect("no fault yet");
        let mut gradients = Gradients::default();
        let first = network.loss().expect("no fault yet");
        let added = first.backprop().add_to(&mut gradients);
        added.expect("no fault yet");
        let loss = network.loss().expect("no fault yet");
        gpu.finish().expect("no fault yet");
        Prepared {
            gpu,
            sim,
            network,
            gradients,
            loss,
        }
    }
}

/// What comes out with all memory.
fn expected(speed: Speed) -> Expected {
    let mut prepared = Prepared::new(open(speed, Budget::default()));
    let read = |gradients: &Gradients| {
        let read = prepared.network.bits_of(gradients).into_iter();
        read.map(|bits| bits.expect("no fault")).collect()
    };
    let once = read(&prepared.gradients);
    let second = prepared.loss.backprop();
    second.add_to(&mut prepared.gradients).expect("no fault");
    let twice = read(&prepared.gradients);
    Expected { once, twice }
}

fn check(speed: Speed, fault: Fault, expected: &Expected) {
    let name = &format!("{fault:?}");
    let Prepared {
        gpu,
        sim,
        network,
        mut gradients,
        loss,
    } = Prepared::new(open_tight(speed));
    sim.arm(fault);
    let added = loss.backprop().add_to(&mut gradients);
    let _ = gpu.finish();
    sim.disarm();
    match added {
        Ok(()) => check_all(name, network.bits_of(&gradients), &expected.twice, true),
        Err(_) => assert!(gradients.is_empty(), "{name}: partial gradients"),
    }
    if is_lost(&gpu) {
        assert_eq!(fault.kind, FaultKind::Lost, "{name}");
        gpu.reopen().expect("there is another device");
    }
    network.check(name);
    drop((loss, gradients));
    network.check_saved(name);
    network.check_backward(name, &expected.once, forgets_kernels(fault));
    network.check(name);
    drop(network);
    end(name, gpu, &sim);
}

/// Returns what happened without a fault.
fn every_fault(speed: Speed) -> MemoryStats {
    let expected = expected(speed);
    let mut prepared = Prepared::new(open_tight(speed));
    let calls_before = calls(&prepared.sim);
    let second = prepared.loss.backprop();
    second.add_to(&mut prepared.gradients).expect("no fault");
    prepared.gpu.finish().expect("no fault");
    let faults = faults_since(&prepared.sim, calls_before);
    let got = prepared.network.bits_of(&prepared.gradients);
    check_all("no fault", got, &expected.twice, false);
    assert!(faults.len() > 500, "{} faults", faults.len());
    let faults = sampled(&faults, SAMPLE);
    for fault in faults {
        check(speed, fault, &expected);
    }
    prepared.gpu.memory().stats()
}

#[test]
fn every_call_of_the_driver_failed_in_a_backward_that_evicts() {
    let stats = every_fault(FAST_LINK);
    assert!(stats.evicted_bytes > 0, "{stats}");
}

#[test]
fn every_call_of_the_driver_failed_in_a_backward_that_computes_again() {
    let stats = every_fault(FAST_KERNELS);
    assert!(stats.recomputed_bytes > 0, "{stats}");
}
