//! The heap in the host's memory when something goes wrong while blocks move: a lower budget, a
//! loss, a refusal. Each call gives the documented error or none, and no byte is lost.

use std::task::{Context, Waker};

use lapidary::shares::ShareOptions;
use lapidary::sim::{Fault, FaultKind, Repeat, SimHandle, SimOptions, Site};
use lapidary::{Budget, DType, Error, Gpu, Residency, Source, Tensor};

use super::heap::{LEN, check, open};
use crate::engine::{ended, numbers, options};

const MIB: u64 = 1 << 20;

/// A device whose work runs so many submissions late.
fn open_late(budget: Budget, lag_submissions: u32) -> (Gpu, SimHandle) {
    let device = SimOptions {
        lag_submissions,
        ..options()
    };
    open(budget, device)
}

/// Tensors of 64 KiB on the device, with 1, 2, 3, …
fn filled(gpu: &Gpu, count: u16) -> Vec<Tensor> {
    let one = |number: u16| gpu.full(&[LEN], f32::from(number), DType::F32).unwrap();
    let tensors: Vec<Tensor> = (1..=count).map(one).collect();
    gpu.flush().unwrap();
    tensors
}

fn slabs(gpu: &Gpu) -> u64 {
    gpu.memory().stats().host_slab_bytes.now
}

/// The last move waits in the batch: nobody has submitted it.
fn evict(tensors: &[Tensor]) {
    for tensor in tensors {
        tensor.evict().unwrap();
        assert_eq!(tensor.residency(), Residency::Host);
    }
}

/// Refusals of submissions: how many of the next ones, and why.
const REFUSALS: [Option<(u64, FaultKind)>; 3] = [
    None,
    Some((2, FaultKind::OutOfMemory)),
    Some((1, FaultKind::Invalid)),
];

fn refuse(sim: &SimHandle, refusals: Option<(u64, FaultKind)>) {
    let Some((count, kind)) = refusals else {
        return;
    };
    for nth in 1..=count {
        sim.arm(Fault::once(Site::Submit, nth, kind));
    }
}

fn is_refusal(error: &Error) -> bool {
    match error {
        Error::OutOfMemory(_) | Error::Driver { .. } => true,
        Error::Poisoned { cause, .. } => is_refusal(cause),
        _ => false,
    }
}

fn lower_budgets() -> [Budget; 3] {
    [(2, None), (4, Some(0)), (1, Some(1))].map(|(device_mib, host_mib)| Budget {
        host_bytes: host_mib.map(|mib: u64| mib * MIB),
        ..Budget::device(device_mib * MIB)
    })
}

/// Lowers the budget while submissions are refused. If that fails, again without refusals.
#[track_caller]
fn lower(gpu: &Gpu, sim: &SimHandle, budget: Budget, refusals: Option<(u64, FaultKind)>) {
    refuse(sim, refusals);
    let set = gpu.memory().set_budget(budget);
    sim.disarm();
    let shortfall_bytes = match set {
        Ok(0) => 0,
        Err(error) if refusals.is_none() || !is_refusal(&error) => panic!("{error}"),
        _ => gpu.memory().set_budget(budget).unwrap(),
    };
    let stats = gpu.memory().stats();
    assert_eq!(shortfall_bytes, 0, "{stats}");
    let most = budget.device_bytes.unwrap();
    assert!(stats.device_bytes.now <= most, "{budget:?}\n{stats}");
    let most = budget.host_bytes.unwrap_or(u64::MAX);
    assert!(stats.host_slab_bytes.now <= most, "{budget:?}\n{stats}");
}

/// The budget is lowered wherever a pass waits that moves many blocks in one batch.
#[test]
fn a_budget_is_lowered_in_the_middle_of_a_pass_that_moves_blocks() {
    for budget in lower_budgets() {
        for refusals in REFUSALS {
            for polls in 0.. {
                let device = SimOptions {
                    pauses: 1,
                    ..options()
                };
                let (gpu, sim) = open(Budget::device(4 * MIB), device);
                let tensors = filled(&gpu, 48);
                gpu.finish().unwrap();
                let more: Vec<Tensor> = tensors.iter().map(|one| (one + 1).unwrap()).collect();
                let mut context = Context::from_waker(Waker::noop());
                let mut flush = Box::pin(gpu.flush_async());
                let mut poll = || flush.as_mut().poll(&mut context).is_ready();
                let has_ended = (0..polls).any(|_| poll());
                lower(&gpu, &sim, budget, refusals);
                match has_ended {
                    true => drop(flush),
                    false => {
                        let flushed = pollster::block_on(flush);
                        let is_explained = |error| refusals.is_some() && is_refusal(&error);
                        assert!(flushed.err().is_none_or(is_explained), "{budget:?}");
                    }
                }
                for (one, number) in more.iter().zip(2_u16..) {
                    match one.to_vec::<f32>() {
                        Ok(found) => assert!(found == vec![f32::from(number); LEN], "{number}"),
                        Err(error) => assert!(refusals.is_some() && is_refusal(&error), "{error}"),
                    }
                }
                check(&tensors);
                drop((tensors, more));
                ended(gpu, &sim);
                if has_ended {
                    assert!(polls > 1, "it never waits");
                    break;
                }
            }
        }
    }
}

/// All submissions are refused for a while. The moves wait, and nothing overtakes them.
#[test]
fn moves_outlive_a_driver_that_takes_nothing_for_a_while() {
    for kind in [FaultKind::OutOfMemory, FaultKind::Invalid] {
        let (gpu, sim) = open_late(Budget::device(4 * MIB), 3);
        let tensors = filled(&gpu, 32);
        evict(&tensors[..16]);
        sim.arm(Fault::for_ever(Site::Submit, 1, kind));
        for mib in [3, 2, 1] {
            let _ = gpu.memory().set_budget(Budget::device(mib * MIB));
            let _ = (tensors[0].evict(), tensors[20].evict(), gpu.flush());
            let error = tensors[3].to_vec::<f32>().unwrap_err();
            assert!(is_refusal(&error), "{error}");
        }
        sim.disarm();
        gpu.memory().set_budget(Budget::device(4 * MIB)).unwrap();
        check(&tensors);
        drop(tensors);
        ended(gpu, &sim);
    }
}

/// Where a device is when it is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// The moves are in the batch.
    InBatch,
    /// The device has not begun with the moves.
    Submitted,
    /// The submission of the moves meets the loss.
    AtSubmission,
    /// They were refused, and wait for the next submission.
    Refused,
}

#[test]
fn a_device_is_lost_with_moves_in_flight() {
    for loss in [
        Loss::InBatch,
        Loss::Submitted,
        Loss::AtSubmission,
        Loss::Refused,
    ] {
        for host_bytes in [None, Some(2 * MIB)] {
            let budget = Budget {
                host_bytes,
                staging_bytes: Some(MIB),
                ..Budget::device(8 * MIB)
            };
            let (gpu, sim) = open_late(budget, u32::MAX);
            let tensors = filled(&gpu, 48);
            // A source outlives the device.
            let bytes: Vec<u8> = (0..LEN).flat_map(|at| (at as f32).to_ne_bytes()).collect();
            let source = Source::bytes(bytes.into());
            let backed = gpu.backed(source, &[LEN], DType::F32).unwrap();
            (&backed + 1).unwrap().force().unwrap();
            gpu.flush().unwrap();
            // The second limit of the host has no room for all of them.
            let evict = |tensors: &[Tensor]| tensors.iter().try_for_each(Tensor::evict).unwrap();
            evict(&tensors[..32]);
            (&tensors[0] + 1).unwrap().force().unwrap();
            evict(&tensors[32..40]);
            match loss {
                Loss::InBatch => {}
                Loss::Submitted => gpu.flush().unwrap(),
                Loss::AtSubmission => {
                    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
                    let error = (&tensors[47] + 1).unwrap().force().unwrap_err();
                    assert!(is_loss(&error), "{error}");
                }
                Loss::Refused => {
                    sim.arm(Fault::once(Site::Submit, 1, FaultKind::OutOfMemory));
                    let _ = gpu.flush();
                }
            }
            if loss != Loss::AtSubmission {
                sim.lose("pulled out");
            }
            sim.disarm();
            // Nothing hangs, and each call tells of the loss.
            for done in [
                tensors[1].evict(),
                tensors[45].evict(),
                tensors[2].force(),
                tensors[3].to_vec::<f32>().map(drop),
                gpu.memory().set_budget(budget).map(drop),
                gpu.flush(),
            ] {
                let error = done.expect_err("the device is lost");
                assert!(is_loss(&error), "{loss:?}: {error}");
            }
            gpu.reopen().unwrap();
            let stats = gpu.memory().stats();
            assert_eq!(stats.host_slab_bytes.now, 0, "{loss:?}\n{stats}");
            assert!(backed.to_vec::<f32>().unwrap() == numbers(0, LEN));
            for (tensor, number) in tensors.iter().zip(1_u16..) {
                match tensor.to_vec::<f32>() {
                    Ok(found) => assert!(found == vec![f32::from(number); LEN], "{number}"),
                    Err(error) => assert!(is_loss(&error), "{loss:?}: {error}"),
                }
                tensor.write(&vec![f32::from(number); LEN]).unwrap();
            }
            // The heap of the new device takes what the old one had.
            evict(&tensors[..16]);
            check(&tensors);
            drop((tensors, backed));
            ended(gpu, &sim);
        }
    }
}

fn is_loss(error: &Error) -> bool {
    match error {
        Error::DeviceLost { .. } => true,
        Error::Poisoned { cause, .. } => is_loss(cause),
        _ => false,
    }
}

/// The tensors of two shares do not fit on the device together. Each command restores what the one
/// has, and evicts what the other one has, many in one batch.
#[test]
fn blocks_of_two_shares_move_past_each_other_in_one_batch() {
    for priority in [0, 1] {
        pass_each_other(priority, None);
        for nth in 1..=2 {
            let fault = Fault::once(Site::Submit, nth, FaultKind::OutOfMemory);
            pass_each_other(priority, Some(fault));
        }
    }
}

fn pass_each_other(priority: i8, fault: Option<Fault>) {
    let (gpu, sim) = open_late(Budget::device(2 * MIB), u32::MAX);
    let one = ShareOptions::guaranteed(0).with_priority(priority);
    let one = gpu.share("one", one).unwrap();
    let other = gpu.share("other", ShareOptions::guaranteed(0)).unwrap();
    let mut of_one = filled(&one, 16);
    let mut of_other = filled(&other, 24);
    sim.disarm();
    fault.into_iter().for_each(|fault| sim.arm(fault));
    let sum = |tensors: &[Tensor]| {
        let sum = tensors[0].copy().unwrap();
        for tensor in tensors {
            sum.add_(tensor).unwrap();
        }
        sum
    };
    let mut most_in_a_batch = 0;
    for round in 0..4 {
        let before = gpu.memory().stats();
        // One that was written leaves by a new move.
        of_one[round].mul_(1).unwrap();
        of_other[round].mul_(1).unwrap();
        let sums = (sum(&of_one), sum(&of_other));
        let flushed = gpu.flush();
        assert!(flushed.is_ok() || fault.is_some(), "{flushed:?}");
        drop(sums);
        let after = gpu.memory().stats();
        let moves = (after.restored_bytes - before.restored_bytes) >> 16;
        most_in_a_batch = most_in_a_batch.max(moves / (after.submissions - before.submissions));
    }
    sim.disarm();
    let stats = gpu.memory().stats();
    assert!(most_in_a_batch >= 4, "{most_in_a_batch}\n{stats}");
    assert_eq!(stats.waits().host.times, 0, "{stats}");
    for (share, tensors) in [(&one, &mut of_one), (&other, &mut of_other)] {
        for (tensor, number) in tensors.iter_mut().zip(1_u16..) {
            if let Err(error) = tensor.force() {
                // The refused batch would have written it.
                assert!(fault.is_some() && number <= 4, "{number}: {error}");
                *tensor = share.full(&[LEN], f32::from(number), DType::F32).unwrap();
            }
        }
        check(tensors);
    }
    drop((of_one, of_other, one, other));
    ended(gpu, &sim);
}

/// Evicts without a slab of the heap: the driver refuses it, and the bytes go to plain memory.
#[test]
fn a_driver_refuses_slabs_of_the_host_at_first_and_later() {
    for kind in [FaultKind::OutOfMemory, FaultKind::Invalid] {
        for is_first in [true, false] {
            let (gpu, sim) = open_late(Budget::device(8 * MIB), 3);
            let tensors = filled(&gpu, 48);
            let early = if is_first { 0 } else { 12 };
            for tensor in &tensors[..early] {
                tensor.evict().unwrap();
            }
            let before = slabs(&gpu);
            assert_eq!(before == 0, is_first);
            // Only the slab of the heap is a new buffer, until something is read back.
            sim.arm(Fault::once(Site::CreateBuffer, 1, kind));
            for tensor in &tensors[early..] {
                tensor.evict().unwrap();
                assert_eq!(tensor.residency(), Residency::Host);
            }
            assert_eq!(sim.counters().faults, 1);
            let stats = gpu.memory().stats();
            assert_eq!(stats.host_slab_bytes.now, before, "{stats}");
            assert_eq!(stats.host_bytes.now, 48 << 16, "{stats}");
            check(&tensors);
            // A new budget asks the driver again.
            gpu.memory().set_budget(Budget::device(8 * MIB)).unwrap();
            for tensor in &tensors {
                tensor.add_(0).unwrap();
                tensor.force().unwrap();
                tensor.evict().unwrap();
            }
            assert!(slabs(&gpu) > before);
            check(&tensors);
            drop(tensors);
            ended(gpu, &sim);
        }
    }
}

/// What the driver refuses counts for no limit, whatever it refuses and how often.
#[test]
fn a_driver_refuses_some_slabs_within_the_hosts_limit() {
    for calls in 1..=4 {
        for seed in 0..4 {
            let budget = Budget {
                host_bytes: Some(3 * MIB),
                staging_bytes: Some(MIB),
                ..Budget::device(4 * MIB)
            };
            let device = SimOptions { seed, ..options() };
            let (gpu, sim) = open(budget, device);
            let tensors = filled(&gpu, 40);
            sim.arm(Fault {
                repeat: Repeat::OneIn(calls),
                ..Fault::once(Site::CreateBuffer, 1, FaultKind::OutOfMemory)
            });
            for round in 0..3 {
                for tensor in tensors.iter().skip(round).step_by(3) {
                    let evicted = tensor.evict();
                    let refused = evicted.as_ref().err();
                    assert!(refused.is_none_or(is_refusal), "{evicted:?}");
                    let stats = gpu.memory().stats();
                    assert!(stats.host_slab_bytes.now <= 3 * MIB, "{stats}");
                }
                // A release of a slab lets the heap ask again.
                let _ = gpu.memory().set_budget(budget);
            }
            sim.disarm();
            gpu.memory().set_budget(budget).unwrap();
            check(&tensors);
            drop(tensors);
            gpu.memory().trim(0).unwrap();
            let stats = gpu.memory().stats();
            let left = [stats.host_slab_bytes, stats.host_bytes, stats.spilled_bytes];
            assert_eq!(left.map(|level| level.now), [0; 3], "{stats}");
            ended(gpu, &sim);
        }
    }
}

/// The creation of a slab of the heap meets the loss of the device.
#[test]
fn a_device_is_lost_at_the_first_slab_of_the_heap() {
    let (gpu, sim) = open_late(Budget::device(8 * MIB), 3);
    let tensors = filled(&gpu, 8);
    sim.arm(Fault::once(Site::CreateBuffer, 1, FaultKind::Lost));
    let error = tensors[0].evict().unwrap_err();
    assert!(is_loss(&error), "{error}");
    gpu.reopen().unwrap();
    assert!(is_loss(&tensors[0].to_vec::<f32>().unwrap_err()));
    for (tensor, number) in tensors.iter().zip(1_u16..) {
        tensor.write(&vec![f32::from(number); LEN]).unwrap();
        tensor.evict().unwrap();
    }
    assert!(slabs(&gpu) > 0);
    check(&tensors);
    drop(tensors);
    ended(gpu, &sim);
}

#[test]
fn a_buffer_that_is_refused_leaves_no_copy_between_two_parts() {
    // A part is as large as a tensor, until the driver refuses buffers while one is copied on.
    let budget = Budget {
        staging_bytes: Some(MIB),
        host_bytes: Some(MIB),
        ..Budget::device(3 * MIB)
    };
    for nth in 3..12 {
        let (gpu, sim) = open(budget, options());
        let urgent = ShareOptions::guaranteed(0).with_priority(1);
        let urgent = gpu.share("urgent", urgent).unwrap();
        for nth in [nth, nth + 1] {
            sim.arm(Fault::once(Site::CreateBuffer, nth, FaultKind::OutOfMemory));
        }
        let full = |number: u16| {
            let full = gpu.full(&[2 * LEN], f32::from(number), DType::F32);
            gpu.flush().unwrap();
            full.unwrap()
        };
        let tensors: Vec<Tensor> = (1..=48).map(full).collect();
        for (tensor, number) in tensors.iter().zip(1_u16..) {
            let found = tensor.to_vec::<f32>().unwrap();
            assert!(found == vec![f32::from(number); 2 * LEN], "{nth}: {number}");
        }
        drop((tensors, urgent));
        ended(gpu, &sim);
    }
}
