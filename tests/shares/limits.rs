//! Guarantees and ceilings, as the app sets, changes and ends them.

use std::sync::Barrier;
use std::thread;

use lapidary::shares::{Amount, Share, ShareOptions};
use lapidary::{Budget, Buffer, DType, Error, Gpu, Kernel, Residency, Source};

use super::{MIB, assert_filled, device, filled, on_device, open, open_with_handle, with_budget};

#[test]
fn a_guarantee_comes_back_from_whoever_borrowed_it() {
    let gpu = device(64 * MIB);
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(32 * MIB))
        .unwrap();
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let lent: Vec<_> = (0..60).map(|_| filled(&job, MIB, 7)).collect();
    assert_eq!(on_device(&lent), 60, "nobody else wants the memory");
    let wanted: Vec<_> = (0..32).map(|_| filled(&frame, MIB, 8)).collect();
    assert_eq!(on_device(&wanted), 32);
    assert_eq!(on_device(&lent), 32, "no more than needed comes back");
    // What was lent longest ago leaves first.
    assert_eq!(on_device(&lent[..28]), 0);
    // The job takes nothing from the frame, whose memory is guaranteed.
    assert_filled(&lent, 7);
    assert_eq!(on_device(&wanted), 32);
    assert_filled(&wanted, 8);
    let [frame, job] = [frame, job].map(|gpu| gpu.memory().share_use().unwrap());
    assert_eq!((frame.evictions, frame.refusals, job.refusals), (0, 0, 0));
    assert!(job.evictions >= 28, "{job:?}");
}

#[test]
fn uploads_have_their_staging_beside_guarantees_of_nearly_everything() {
    for mib in [1, 2, 16, 256] {
        let gpu = with_budget(Budget::device(mib * MIB));
        // All that slabs may have: staging keeps 1/32 of the budget.
        let share = ShareOptions::guaranteed(mib * MIB / 32 * 31);
        let frame = gpu.share("frame", share).unwrap();
        // Nothing is on the device yet, so staging could take far more than is left to it.
        let buffers = [&gpu, &frame].map(|gpu| filled(gpu, mib * MIB / 4, 5));
        assert_filled(&buffers, 5);
    }
}

#[test]
fn a_ceiling_is_never_exceeded() {
    let gpu = device(64 * MIB);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let buffers: Vec<_> = (0..40).map(|_| filled(&job, MIB, 3)).collect();
    assert_filled(&buffers, 3);
    let held = job.memory().share_use().unwrap();
    assert_eq!(held.bytes.peak, 10 * MIB);
    assert_eq!(
        (held.own_bytes, held.ceiling_bytes),
        (10 * MIB, Some(10 * MIB))
    );
    // Within the ceiling, but not together with another operand of the same size.
    let large = filled(&job, 6 * MIB, 1);
    let error = large.copy().unwrap().force().unwrap_err();
    let Error::NeverFits { limit_bytes, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(limit_bytes, 10 * MIB);
    assert!(error.to_string().contains("ceiling"), "{error}");
    assert_filled(&[large], 1);
    assert_eq!(job.memory().share_use().unwrap().bytes.peak, 10 * MIB);
}

/// The operands fit in the budget, and beside each other only if the engine repacks them.
#[test]
fn a_ceiling_holds_for_operands_that_are_repacked() {
    let (gpu, sim) = open_with_handle(
        Budget {
            staging_bytes: Some(8 * MIB),
            ..Budget::device(34 * MIB)
        },
        false,
    );
    let share = ShareOptions::guaranteed(0).with_ceiling(17 * MIB);
    let job = gpu.share("job", share).unwrap();
    let later = [filled(&job, 8 * MIB, 2), filled(&job, 4 * MIB, 3)];
    later.iter().for_each(|one| one.evict().unwrap());
    // It leaves one slab, whose middle is taken.
    drop(filled(&gpu, 22 * MIB, 1));
    let before = filled(&gpu, 7 * MIB, 1);
    let middle = filled(&job, 8 * MIB, 1);
    drop(before);
    let kernel = Kernel::new(&gpu, THREE).unwrap();
    let call = kernel.call().bind("x", &middle);
    let call = call.bind("y", &later[0]).bind("z", &later[1]);
    let made = call.out("sum", &[1], DType::U32).groups([1, 1, 1]);
    let made = made.run_one().unwrap();
    let error = made.force().unwrap_err();
    assert!(error.to_string().contains("ceiling"), "{error}");
    assert!(job.memory().share_use().unwrap().bytes.peak <= 17 * MIB);
    assert_filled(&[middle], 1);
    assert_eq!(sim.complaints(), [""; 0]);
}

const THREE: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> y: array<u32>;
@group(0) @binding(2) var<storage, read> z: array<u32>;
@group(0) @binding(3) var<storage, read_write> sum: array<u32>;
@compute @workgroup_size(1)
fn add() {
    sum[0] = x[0] + y[0] + z[0];
}";

#[test]
fn nested_shares_keep_the_ceilings_around_them() {
    let gpu = device(64 * MIB);
    let share = ShareOptions::guaranteed(16 * MIB).with_ceiling(20 * MIB);
    let app = gpu.share("app", share).unwrap();
    let user = app
        .share("user", ShareOptions::guaranteed(12 * MIB))
        .unwrap();
    let guest = app.share("guest", ShareOptions::guaranteed(0)).unwrap();
    let of_guest: Vec<_> = (0..30).map(|_| filled(&guest, MIB, 1)).collect();
    let of_user: Vec<_> = (0..12).map(|_| filled(&user, MIB, 2)).collect();
    assert_eq!((on_device(&of_guest), on_device(&of_user)), (8, 12));
    assert_filled(&of_guest, 1);
    assert_eq!(on_device(&of_user), 12);
    let of_app = filled(&app, MIB, 3);
    assert_eq!(on_device(&of_user), 12);
    let uses = gpu.memory().stats().shares;
    let paths: Vec<&str> = uses.iter().map(|one| &*one.path).collect();
    assert_eq!(paths, ["app", "app/guest", "app/user"]);
    assert_eq!(
        (uses[0].bytes.now, uses[0].bytes.peak),
        (20 * MIB, 20 * MIB)
    );
    assert_eq!((uses[0].own_bytes, uses[2].bytes.now), (MIB, 12 * MIB));
    assert_eq!(of_app.residency(), Residency::Device);
    // A percentage is one of what is around: of the ceiling here, of the budget at the device.
    let half = ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(50));
    let inner = app
        .share("inner", half)
        .unwrap()
        .memory()
        .share_use()
        .unwrap();
    assert_eq!(inner.ceiling_bytes, Some(10 * MIB));
    let outer = gpu
        .share("outer", half)
        .unwrap()
        .memory()
        .share_use()
        .unwrap();
    assert_eq!(outer.ceiling_bytes, Some(32 * MIB));
}

#[test]
fn limits_change_while_work_runs() {
    let gpu = device(64 * MIB);
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let buffers: Vec<_> = (0..40).map(|_| filled(&job, MIB, 5)).collect();
    let lower = ShareOptions::guaranteed(0).with_ceiling(8 * MIB);
    assert_eq!(job.resize(lower).unwrap(), 0);
    assert_eq!(on_device(&buffers), 8);
    // Pinned memory stays, and the call says how much of it there is above the ceiling.
    let pins = buffers[..6].iter().map(|one| one.pin().unwrap());
    let pins: Vec<_> = pins.collect();
    let lowest = ShareOptions::guaranteed(0).with_ceiling(4 * MIB);
    assert_eq!(job.resize(lowest).unwrap(), 2 * MIB);
    drop(pins);
    assert_filled(&buffers, 5);
    assert_eq!(job.memory().share_use().unwrap().bytes.now, 4 * MIB);
    // A part of the budget follows the budget.
    let half = ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(50));
    job.resize(half).unwrap();
    assert_filled(&buffers, 5);
    let budget = Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device(24 * MIB)
    };
    gpu.memory().set_budget(budget).unwrap();
    assert_eq!(
        job.memory().share_use().unwrap().ceiling_bytes,
        Some(8 * MIB)
    );
    assert!(on_device(&buffers) <= 8);
    assert_filled(&buffers, 5);
}

#[test]
fn shares_end_when_closed_or_with_their_last_holder() {
    let gpu = device(64 * MIB);
    let first = gpu
        .share("job", ShareOptions::guaranteed(40 * MIB))
        .unwrap();
    let inner = first.share("inner", ShareOptions::guaranteed(MIB)).unwrap();
    let held = filled(&inner, MIB, 9);
    let refuse = |error: Error, why: &str| {
        assert!(matches!(error, Error::Share { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    let again = gpu.share("other", ShareOptions::guaranteed(30 * MIB));
    refuse(again.unwrap_err(), "more than what is left");
    first.close().unwrap();
    refuse(
        first
            .share("late", ShareOptions::guaranteed(0))
            .unwrap_err(),
        "closed",
    );
    refuse(inner.zeros(&[4], DType::F32).unwrap_err(), "closed");
    refuse(held.copy().unwrap_err(), "closed");
    assert_filled(&[held.to(&gpu).unwrap(), held.clone()], 9);
    // What it was guaranteed is free for others, though a buffer lives on.
    drop(
        gpu.share("other", ShareOptions::guaranteed(60 * MIB))
            .unwrap(),
    );
    drop((first, inner));
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().shares.len(), 2, "its buffer holds it");
    drop(held);
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().shares, []);
    let third = gpu
        .share("third", ShareOptions::guaranteed(60 * MIB))
        .unwrap();
    drop(gpu);
    assert_filled(&[filled(&third, MIB, 2)], 2);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let gpu = device(64 * MIB);
    let app = gpu
        .share("app", ShareOptions::guaranteed(32 * MIB))
        .unwrap();
    let reason = |made: lapidary::Result<Share>| match made {
        Err(Error::Share { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let tell = |name: &str, share: ShareOptions| reason(gpu.share(name, share));
    assert!(tell("", ShareOptions::guaranteed(0)).contains("no name"));
    assert!(tell("a/b", ShareOptions::guaranteed(0)).contains('/'));
    assert!(tell(&"x".repeat(999), ShareOptions::guaranteed(0)).contains("longer"));
    assert!(tell("x", ShareOptions::guaranteed(33 * MIB)).contains("32.0 MiB"));
    assert!(tell("x", ShareOptions::guaranteed(2).with_ceiling(1)).contains("below"));
    assert!(tell("x", ShareOptions::guaranteed(Amount::OfDevice(9))).contains("give bytes"));
    let beyond = ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(101));
    assert!(tell("x", beyond).contains("101 percent is more than there is"));
    let within = reason(app.share("x", ShareOptions::guaranteed(33 * MIB)));
    assert!(within.contains("the share around it"), "{within}");
    assert!(app.memory().set_budget(Budget::device(8 * MIB)).is_err());
    let error = gpu.memory().set_budget(Budget::device(32 * MIB));
    assert!(error.unwrap_err().to_string().contains("guaranteed"));
    assert_eq!(gpu.memory().budget().device_bytes, Some(72 * MIB));
    assert_eq!(gpu.memory().stats().shares.len(), 1);
    // Two shares do not meet in an operation, and the error names the way out.
    let [a, b] = [&app, &gpu].map(|gpu| gpu.zeros(&[4], DType::F32).unwrap());
    let error = (&a + &b).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("`to`"), "{error}");
    assert_eq!(
        (&a.to(&gpu).unwrap() + &b)
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        [0.0; 4]
    );
}

/// A device of 32 MiB with `host_bytes` on the host and nothing on disk. It has two shares, and one
/// is guaranteed half of the device.
fn handles(host_bytes: u64) -> (Gpu, Share, Share) {
    let gpu = with_budget(Budget {
        host_bytes: Some(host_bytes),
        disk_bytes: Some(0),
        staging_bytes: Some(8 * MIB),
        ..Budget::device(40 * MIB)
    });
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    (gpu, frame, job)
}

#[test]
fn what_nobody_could_give_back_is_not_lent() {
    let (_gpu, frame, job) = handles(0);
    let held: Vec<_> = (0..16).map(|_| filled(&job, MIB, 1)).collect();
    let more = job.buffer_zeroed(MIB).unwrap();
    let error = more.force().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert!(error.to_string().contains("its share `job`"), "{error}");
    let wanted: Vec<_> = (0..16).map(|_| filled(&frame, MIB, 2)).collect();
    assert_filled(&wanted, 2);
    drop(held);
    more.force().unwrap();
}

#[test]
fn what_a_borrower_filled_is_still_given_back() {
    let (_gpu, frame, job) = handles(24 * MIB);
    // In one pass the job fills the host's memory, too.
    let held: Vec<_> = (0..64).map(|_| job.buffer_zeroed(MIB).unwrap()).collect();
    job.flush().unwrap();
    let wanted: Vec<_> = (0..16).map(|_| filled(&frame, MIB, 2)).collect();
    assert_filled(&wanted, 2);
    drop(held);
}

#[test]
fn percentages_follow_a_smaller_budget() {
    let gpu = device(64 * MIB);
    let job = gpu
        .share("job", ShareOptions::guaranteed(Amount::OfBudget(75)))
        .unwrap();
    let budget = Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device(40 * MIB)
    };
    gpu.memory().set_budget(budget).unwrap();
    assert_eq!(job.memory().share_use().unwrap().guaranteed_bytes, 24 * MIB);
}

#[test]
fn a_closed_share_still_computes_what_it_lost() {
    let gpu = device(64 * MIB);
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let a = job.tensor(&[1.0_f32, 2.0], &[2]).unwrap();
    let b = (&a + &a).unwrap();
    b.recompute_with(&[&a], |inputs| &inputs[0] + &inputs[0])
        .unwrap();
    job.close().unwrap();
    b.evict().unwrap();
    assert_eq!(b.to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn pins_leave_what_is_guaranteed_to_others() {
    let gpu = device(64 * MIB);
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(60 * MIB))
        .unwrap();
    let job = gpu.share("job", ShareOptions::guaranteed(2 * MIB)).unwrap();
    let held: Vec<_> = (0..6).map(|_| filled(&job, MIB, 1)).collect();
    let pins: Vec<_> = held[..4].iter().map(|one| one.pin().unwrap()).collect();
    let error = held[4].pin().unwrap_err();
    assert!(
        error.to_string().contains("1.00 MiB of the guarantees"),
        "{error}"
    );
    let wanted: Vec<_> = (0..60).map(|_| filled(&frame, MIB, 2)).collect();
    assert_eq!(on_device(&wanted), 60);
    drop(pins);
    drop(held[4].pin().unwrap());
}

#[test]
fn a_share_without_a_guarantee_slows_down_and_does_not_fail() {
    let gpu = device(16 * MIB);
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let of_frame: Vec<_> = (0..16).map(|_| filled(&frame, MIB, 1)).collect();
    assert_eq!(on_device(&of_frame), 16);
    // All that there is belongs to the frame. So it lends what one command of the job needs.
    let of_job: Vec<_> = (0..8).map(|_| filled(&job, MIB, 2)).collect();
    let more = gpu.buffer_zeroed(2 * MIB).unwrap();
    more.force().unwrap();
    assert!(on_device(&of_frame) >= 12);
    assert_filled(&of_job, 2);
    // The frame's next commands take everything back.
    let pins = of_frame.iter().map(Buffer::pin);
    let pins: Vec<_> = pins.collect::<lapidary::Result<_>>().unwrap();
    assert_eq!((on_device(&of_frame), on_device(&of_job)), (16, 0));
    drop(pins);
    assert_filled(&of_frame, 1);
}

#[test]
fn a_share_that_is_closed_while_it_is_resized_is_guaranteed_nothing() {
    let gpu = with_budget(Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        staging_bytes: Some(8 * MIB),
        ..Budget::device(72 * MIB)
    });
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let closes = job.clone();
    let source = Source::reader(move |_, bytes| {
        let closed = closes.close();
        bytes.fill(1);
        closed.map_err(std::io::Error::other)
    });
    // Only the queue holds the memory in the way, and a command there calls the source.
    let large = gpu.zeros(&[30 << 18], DType::F32).unwrap();
    large.force().unwrap();
    let sum = large.sum_all().unwrap();
    drop(large);
    let backed = gpu.buffer_backed(source, 4096).unwrap();
    let copy = backed.copy().unwrap();
    let resized = job.resize(ShareOptions::guaranteed(60 * MIB));
    drop((copy, sum, backed));
    assert!(matches!(resized, Err(Error::Share { .. })), "{resized:?}");
    let held = job.memory().share_use().unwrap();
    assert!(held.is_closed);
    assert_eq!(held.guaranteed_bytes, 0);
    gpu.share("other", ShareOptions::guaranteed(60 * MIB))
        .unwrap();
}

#[test]
fn a_lower_budget_and_a_new_share_do_not_both_succeed() {
    let gpu = device(64 * MIB);
    // From the first share on, budgets are checked.
    let _keep = gpu.share("keep", ShareOptions::guaranteed(0)).unwrap();
    let budget = |mib: u64| Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device((mib + 8) * MIB)
    };
    let (rounds, start) = (20_000, Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                start.wait();
                let made = gpu.share("new", ShareOptions::guaranteed(40 * MIB));
                start.wait();
                // The other thread looks at the shares.
                start.wait();
                drop(made);
                start.wait();
            }
        });
        let mut contradictions = 0;
        for _ in 0..rounds {
            start.wait();
            let lowered = gpu.memory().set_budget(budget(32));
            start.wait();
            let shares = gpu.memory().stats().shares;
            start.wait();
            start.wait();
            gpu.memory().set_budget(budget(64)).unwrap();
            let promised_bytes: u64 = shares.iter().map(|one| one.guaranteed_bytes).sum();
            contradictions += u32::from(lowered.is_ok() != (promised_bytes == 0));
        }
        // Not before: the other thread would wait for ever.
        assert_eq!(contradictions, 0);
    });
}

#[test]
fn a_lower_budget_brings_shares_below_their_ceilings() {
    for maps_slabs in [false, true] {
        let budget = |bytes: u64| Budget {
            // Where slabs are mapped, only the disk is another place.
            disk_bytes: maps_slabs.then_some(64 * MIB),
            host_bytes: Some(64 * MIB),
            staging_bytes: Some(2 * MIB),
            ..Budget::device(bytes + 2 * MIB)
        };
        let gpu = open(budget(64 * MIB), maps_slabs);
        let half = ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(50));
        let share = gpu.share("half", half).unwrap();
        let held: Vec<_> = (0..30).map(|_| filled(&share, MIB, 7)).collect();
        let other: Vec<_> = (0..10).map(|_| filled(&gpu, MIB, 8)).collect();
        assert_eq!(gpu.memory().set_budget(budget(40 * MIB)).unwrap(), 0);
        let held_bytes = share.memory().share_use().unwrap().bytes.now;
        assert!(held_bytes <= 20 * MIB, "{held_bytes}");
        // Nothing of others had to leave.
        assert_eq!(on_device(&other), 10);
        assert_filled(&held, 7);
    }
}

#[test]
fn what_a_share_cannot_give_up_is_the_shortfall_of_a_budget() {
    let budget = |bytes: u64| Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        staging_bytes: Some(2 * MIB),
        ..Budget::device(bytes + 2 * MIB)
    };
    let gpu = with_budget(budget(64 * MIB));
    let half = ShareOptions::guaranteed(0).with_ceiling(Amount::OfBudget(50));
    let share = gpu.share("half", half).unwrap();
    let held: Vec<_> = (0..30).map(|_| filled(&share, MIB, 7)).collect();
    let shortfall_bytes = gpu.memory().set_budget(budget(40 * MIB)).unwrap();
    assert_eq!(shortfall_bytes, 10 * MIB);
    assert_filled(&held, 7);
}
