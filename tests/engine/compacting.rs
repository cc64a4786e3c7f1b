//! Compaction on demand: in slices, without visible effects, and around pinned tensors.

use std::time::Duration;

use lapidary::sim::{Fault, FaultKind, Repeat, SimOptions, Site};
use lapidary::{Budget, DType, Gpu, Options, Residency, Tensor, stats::Compacted};

use crate::engine::{ended, open_alone, options};

const MIB: u64 = 1 << 20;

/// Elements of a tensor of 1 MiB.
const LEN: usize = 256 << 10;

/// Tensors of 1 MiB each. Every fourth is kept, and the others leave holes.
fn scattered(gpu: &Gpu) -> Vec<(Tensor, f32)> {
    let all: Vec<(Tensor, f32)> = (0..64)
        .map(|n| (gpu.full(&[LEN], n, DType::F32).unwrap(), n as f32))
        .collect();
    gpu.finish().unwrap();
    all.into_iter().step_by(4).collect()
}

fn check(held: &[(Tensor, f32)]) {
    for (tensor, value) in held {
        let ends = tensor.slice(0, None, None, LEN as isize - 1).unwrap();
        assert_eq!(ends.to_vec::<f32>().unwrap(), [*value, *value]);
    }
}

#[test]
fn slices_move_no_more_than_they_may_and_end_where_nothing_is_left_to_gain() {
    let (gpu, sim) = open_alone(options());
    let held = scattered(&gpu);
    let before = gpu.memory().stats();
    let mut all = Compacted::default();
    loop {
        let slice = gpu.memory().compact(3 * MIB).unwrap();
        assert!(slice.moved_bytes <= 3 * MIB, "{slice:?}");
        assert!(slice.pinned.is_empty(), "{slice:?}");
        all.moved_bytes += slice.moved_bytes;
        all.released_bytes += slice.released_bytes;
        if slice.moved_bytes == 0 {
            break;
        }
    }
    let after = gpu.memory().stats();
    assert!(
        all.moved_bytes <= 16 * MIB,
        "no tensor moves twice: {all:?}"
    );
    assert_eq!(
        before.reserved_bytes.now - after.reserved_bytes.now,
        all.released_bytes
    );
    assert!(after.reserved_bytes.now <= 24 * MIB, "{before}\n{after}");
    check(&held);
    drop(held);
    ended(gpu, &sim);
}

#[test]
fn time_is_a_limit_too() {
    let (gpu, sim) = open_alone(options());
    let held = scattered(&gpu);
    assert_eq!(
        gpu.memory().compact_for(Duration::ZERO).unwrap(),
        Compacted::default()
    );
    let all = gpu.memory().compact_for(Duration::MAX).unwrap();
    assert!(all.released_bytes > 0, "{all:?}");
    check(&held);
    drop(held);
    ended(gpu, &sim);
}

#[test]
fn what_is_pinned_stays_and_is_named() {
    let (gpu, sim) = open_alone(SimOptions {
        memory_bytes: 256 * MIB,
        ..options()
    });
    let held = scattered(&gpu);
    let pins: Vec<_> = held.iter().map(|(tensor, _)| tensor.pin()).collect();
    let all = gpu.memory().compact_for(Duration::MAX).unwrap();
    let [holder] = &all.pinned[..] else {
        panic!("{all:?}");
    };
    assert!(holder.tag.starts_with(file!()), "{holder:?}");
    assert_eq!(
        (all.moved_bytes, holder.bytes, holder.storages),
        (0, 16 * MIB, 16)
    );
    check(&held);
    drop(pins);
    let rest = gpu.memory().compact_for(Duration::MAX).unwrap();
    assert!(rest.pinned.is_empty(), "{rest:?}");
    assert!(rest.released_bytes > 0, "{rest:?}");
    check(&held);
    drop(held);
    ended(gpu, &sim);
}

#[test]
fn nothing_moves_where_that_was_ruled_out_and_what_finds_no_hole_puts_others_out() {
    let budget = Budget::device(24 * MIB);
    let device = SimOptions {
        compact_always: Some(false),
        ..options()
    };
    let wishes = Options {
        budget: Some(budget),
        never_move: true,
        ..Options::from_env().unwrap()
    };
    let (gpu, sim) = Gpu::simulated_with(device, wishes).unwrap();
    let mut held = scattered(&gpu);
    assert_eq!(
        gpu.memory().compact(u64::MAX).unwrap(),
        Compacted::default()
    );
    held.push((gpu.full(&[5 * LEN], 64.0, DType::F32).unwrap(), 64.0));
    let stats = gpu.memory().stats();
    assert_eq!(stats.moved_bytes, 0, "{stats}");
    for (tensor, value) in &held {
        let first = tensor.slice(0, None, Some(1), 1).unwrap();
        assert_eq!(first.to_vec::<f32>().unwrap(), [*value]);
    }
    assert_eq!(
        gpu.memory().stats().moved_bytes,
        0,
        "{}",
        gpu.memory().stats()
    );
    drop(held);
    ended(gpu, &sim);
}

#[test]
fn neighbours_that_stay_neighbours_are_one_copy() {
    let (gpu, sim) = open_alone(options());
    // Blocks of 4 KiB that the tensors do not quite fill: 512 fill a slab.
    let all: Vec<Tensor> = (0..1000)
        .map(|n| gpu.full(&[1001], n as f32, DType::F32).unwrap())
        .collect();
    gpu.finish().unwrap();
    // The last 20 of the first slab, and all of the second, in which the 20 fit.
    let kept: Vec<(usize, Tensor)> = all.into_iter().enumerate().skip(492).collect();
    gpu.finish().unwrap();
    let copies_before = sim.counters().copies;
    let compacted = gpu.memory().compact(MIB).unwrap();
    gpu.finish().unwrap();
    assert_eq!(
        (compacted.moved_bytes, compacted.released_bytes),
        (20 * 4096, 2 * MIB)
    );
    assert_eq!(sim.counters().copies - copies_before, 1);
    for (n, tensor) in &kept {
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [*n as f32; 1001]);
    }
    drop(kept);
    ended(gpu, &sim);
}

#[test]
fn moves_that_are_refused_for_ever_are_not_tried_for_ever() {
    crate::engine::threads::watched(|| {
        let (gpu, sim) = open_alone(options());
        let held = scattered(&gpu);
        sim.arm(Fault {
            site: Site::Submit,
            nth: 1,
            repeat: Repeat::ForEver,
            kind: FaultKind::Invalid,
        });
        let all = gpu.memory().compact_for(Duration::MAX).unwrap();
        assert!(all.moved_bytes > 0, "{all:?}");
        assert!(sim.counters().faults > 0);
        // Nothing is read or written before the driver takes the moves.
        for (tensor, _) in &held {
            let is_there = tensor.residency() == Residency::Device;
            assert_eq!(tensor.to_vec::<f32>().is_err(), is_there);
        }
        sim.disarm();
        check(&held);
        let all = gpu.memory().compact_for(Duration::MAX).unwrap();
        assert_eq!(all.moved_bytes, 0, "{all:?}");
        check(&held);
        drop(held);
        ended(gpu, &sim);
    });
}

#[test]
fn compaction_on_another_device_counts_from_its_own_moves() {
    let (gpu, sim) = open_alone(options());
    let held = scattered(&gpu);
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::OutOfMemory));
    gpu.memory().compact(3 * MIB).unwrap();
    check(&held);
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
    assert!(gpu.memory().compact(3 * MIB).is_err());
    gpu.reopen().unwrap();
    drop(held);
    let held = scattered(&gpu);
    let compacted = gpu.memory().compact(3 * MIB).unwrap();
    assert!(
        (MIB..=3 * MIB).contains(&compacted.moved_bytes),
        "{compacted:?}"
    );
    check(&held);
    drop(held);
    ended(gpu, &sim);
}
