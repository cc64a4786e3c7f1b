//! Dummy operators need the same memory as real ones.

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{Budget, Error};

use crate::engine::{ended, nothing_leaves, open, options};

const MIB: u64 = 1 << 20;

#[test]
fn operands_that_left_are_back_when_they_are_read() {
    let (gpu, sim) = open(SimOptions {
        mode: SimMode::SizesOnly,
        ..options()
    });
    let budget = Budget {
        staging_bytes: Some(4 << 20),
        ..Budget::device(24 << 20)
    };
    assert_eq!(gpu.memory().set_budget(budget).unwrap(), 0);
    let mut made = Vec::new();
    for _ in 0..4 {
        made.extend(gpu.dummy_operator(&[], &[], &[8 * MIB]).unwrap());
    }
    gpu.dummy_operator(&[&made[0]], &[&made[1]], &[]).unwrap();
    gpu.finish().unwrap();
    let memory = gpu.memory().stats();
    assert!(memory.evicted_bytes >= 16 << 20, "{memory}");
    assert!(memory.restored_bytes >= 8 << 20, "{memory}");
    assert!(memory.device_bytes.peak <= 24 << 20, "{memory}");
    drop(made);
    ended(gpu, &sim);
}

#[test]
fn room_for_one_of_two_results_is_room_for_none() {
    let (gpu, sim) = open(SimOptions {
        memory_bytes: 15 << 20,
        ..options()
    });
    nothing_leaves(&gpu);
    let both = gpu.dummy_operator(&[], &[], &[8 * MIB, 8 * MIB]).unwrap();
    let refused = both[0].force();
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    drop(both);
    let one = gpu.dummy_operator(&[], &[], &[8 * MIB]).unwrap();
    one[0].force().unwrap();
    drop(one);
    ended(gpu, &sim);
}

#[test]
fn buffers_of_another_device_are_refused() {
    let ((gpu, sim), (other, _)) = (open(options()), open(options()));
    let foreign = other.buffer(4).unwrap();
    let refused = gpu.dummy_operator(&[&foreign], &[], &[4]);
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    ended(gpu, &sim);
}
