//! Promises: a guarantee is given only if it can be kept, and then it is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use lapidary::jobs::Job;
use lapidary::shares::{Amount, Share, ShareOptions};
use lapidary::stores::{DeviceStore, StoreTier};
use lapidary::{Budget, Buffer, DType, Error, Gpu, Options, Source, Tensor};

use super::{MIB, assert_filled, device, filled, on_device, with_budget};
use crate::programs::number;

/// A budget of `mib` MiB for slabs. What is evicted finds `host_mib` MiB, and nothing on disk.
fn budget(mib: u64, host_mib: u64) -> Budget {
    Budget {
        host_bytes: Some(host_mib * MIB),
        disk_bytes: Some(0),
        staging_bytes: Some(8 * MIB),
        ..Budget::device((mib + 8) * MIB)
    }
}

fn held(gpu: &Gpu, mib: u64, word: u32) -> Vec<Buffer> {
    (0..mib).map(|_| filled(gpu, MIB, word)).collect()
}

fn assert_refused<T>(result: lapidary::Result<T>, why: &str) {
    let error = result.err().expect("it is refused");
    assert!(error.to_string().contains(why), "{error}");
}

/// The sum of a tensor of `mib` MiB, which only the queue still holds.
fn sum_of_dropped(gpu: &Gpu, mib: usize) -> Tensor {
    let large = gpu.zeros(&[mib << 18], DType::F32).unwrap();
    large.force().unwrap();
    large.sum_all().unwrap()
}

#[test]
fn what_is_pinned_is_not_promised_to_others() {
    let gpu = device(64 * MIB);
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let held = held(&gpu, 40, 1);
    let pins: Vec<_> = held.iter().map(|one| one.pin().unwrap()).collect();
    let share = ShareOptions::guaranteed(25 * MIB);
    assert_refused(gpu.share("frame", share), "1.00 MiB of the guarantees");
    assert_refused(job.resize(share), "pinned");
    assert_eq!(gpu.memory().stats().shares.len(), 1);
    assert_eq!(job.memory().share_use().unwrap().guaranteed_bytes, 0);
    job.resize(ShareOptions::guaranteed(24 * MIB)).unwrap();
    drop(pins);
    gpu.share("frame", share).unwrap();
}

#[test]
fn what_has_no_other_place_is_not_promised_to_others() {
    let gpu = with_budget(budget(64, 10));
    let job = gpu.share("job", ShareOptions::guaranteed(0)).unwrap();
    let mut held = held(&gpu, 60, 1);
    let share = ShareOptions::guaranteed(15 * MIB);
    assert_refused(gpu.share("frame", share), "1.00 MiB of the guarantees");
    assert_refused(job.resize(share), "have no room for them");
    held.pop();
    let frame = gpu.share("frame", share).unwrap();
    let of_frame: Vec<_> = (0..15).map(|_| filled(&frame, MIB, 2)).collect();
    assert_filled(&held, 1);
    assert_filled(&of_frame, 2);
}

#[test]
fn a_promise_takes_memory_that_is_of_no_use() {
    let gpu = with_budget(budget(64, 0));
    // Their bytes are elsewhere, too.
    let backed: Vec<_> = held(&gpu, 30, 7);
    for one in &backed {
        let bytes = bytemuck::cast_slice(&vec![7_u32; MIB as usize / 4]).to_vec();
        one.backed_by(Source::bytes(bytes.into())).unwrap();
    }
    // Queued commands hold what the app has dropped.
    let sum = sum_of_dropped(&gpu, 30);
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(60 * MIB))
        .unwrap();
    let of_frame: Vec<_> = (0..60).map(|_| filled(&frame, MIB, 2)).collect();
    assert_filled(&of_frame, 2);
    assert_eq!(sum.item::<f32>().unwrap(), 0.0);
    drop(of_frame);
    assert_filled(&backed, 7);
}

#[test]
fn a_guarantee_within_a_share_is_lent_only_with_room() {
    let gpu = with_budget(budget(32, 0));
    let share = ShareOptions::guaranteed(16 * MIB).with_ceiling(16 * MIB);
    let app = gpu.share("app", share).unwrap();
    let user = app
        .share("user", ShareOptions::guaranteed(12 * MIB))
        .unwrap();
    let guest = app.share("guest", ShareOptions::guaranteed(0)).unwrap();
    let of_guest = held(&guest, 4, 1);
    let error = guest.buffer_zeroed(MIB).unwrap().force().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let of_user = held(&user, 12, 2);
    assert_filled(&of_guest, 1);
    assert_filled(&of_user, 2);
}

#[test]
fn a_budget_keeps_all_promises() {
    let gpu = with_budget(budget(64, 40));
    let frame = gpu
        .share("frame", ShareOptions::guaranteed(24 * MIB))
        .unwrap();
    let of_main = held(&gpu, 60, 1);
    let set = |mib, host_mib| gpu.memory().set_budget(budget(mib, host_mib));
    // 20 MiB are lent, which need a place.
    assert_refused(set(64, 19), "1.00 MiB of the guarantees");
    assert_refused(set(63, 20), "1.00 MiB of the guarantees");
    let pins: Vec<_> = of_main[..30].iter().map(|one| one.pin().unwrap()).collect();
    assert_refused(set(53, 40), "pinned");
    assert_eq!(gpu.memory().budget().device_bytes, Some(72 * MIB));
    set(54, 40).unwrap();
    drop(pins);
    let of_frame: Vec<_> = (0..24).map(|_| filled(&frame, MIB, 2)).collect();
    assert_filled(&of_main, 1);
    assert_filled(&of_frame, 2);
}

#[test]
fn a_budget_whose_parts_contradict_each_other_is_refused() {
    let gpu = device(64 * MIB);
    let half = ShareOptions::guaranteed(Amount::OfBudget(50)).with_ceiling(Amount::OfBudget(75));
    let app = gpu.share("app", half).unwrap();
    let user = app
        .share("user", ShareOptions::guaranteed(20 * MIB))
        .unwrap();
    let small = |mib: u64| Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device((mib + 8) * MIB)
    };
    // Half of it is less than what the share guarantees within itself.
    assert_refused(gpu.memory().set_budget(small(39)), "share `app`");
    assert_eq!(app.memory().share_use().unwrap().guaranteed_bytes, 32 * MIB);
    gpu.memory().set_budget(small(40)).unwrap();
    drop(user);
    let whole = ShareOptions::guaranteed(20 * MIB).with_ceiling(Amount::OfBudget(50));
    app.resize(whole).unwrap();
    assert_refused(gpu.memory().set_budget(small(38)), "ceiling");
    // Parts of a ceiling follow that ceiling.
    let inner = ShareOptions::guaranteed(10 * MIB).with_ceiling(Amount::OfBudget(50));
    let inner = app.share("inner", inner).unwrap();
    let lower = ShareOptions::guaranteed(19 * MIB).with_ceiling(19 * MIB);
    assert_refused(app.resize(lower), "`app/inner`");
    assert_eq!(
        app.memory().share_use().unwrap().ceiling_bytes,
        Some(20 * MIB)
    );
    drop(inner);
    app.resize(lower).unwrap();
    assert_eq!(
        app.memory().share_use().unwrap().ceiling_bytes,
        Some(19 * MIB)
    );
}

#[test]
fn a_share_that_has_ended_is_guaranteed_nothing() {
    let gpu = device(64 * MIB);
    drop(
        gpu.share("frame", ShareOptions::guaranteed(60 * MIB))
            .unwrap(),
    );
    let small = Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device(24 * MIB)
    };
    gpu.memory().set_budget(small).unwrap();
}

#[test]
fn pins_of_all_kinds_leave_what_is_guaranteed() {
    let gpu = device(64 * MIB);
    let app = ShareOptions::guaranteed(20 * MIB).with_ceiling(20 * MIB);
    let app = gpu.share("app", app).unwrap();
    let _user = app
        .share("user", ShareOptions::guaranteed(12 * MIB))
        .unwrap();
    let guest = app.share("guest", ShareOptions::guaranteed(0)).unwrap();
    let held = held(&guest, 9, 1);
    // A ceiling around both is a limit, too.
    let pins: Vec<_> = held[..8].iter().map(|one| one.pin().unwrap()).collect();
    assert_refused(held[8].pin(), "1.00 MiB of the guarantees");
    // A second pin of the same memory takes nothing.
    drop(held[0].pin().unwrap());
    drop(pins);
    drop(held[8].pin().unwrap());
}

#[test]
fn a_device_lends_no_more_than_it_could_take_back() {
    for (host_mib, lent) in [(0, 0), (3, 3)] {
        let second = with_budget(budget(16, host_mib));
        let store = DeviceStore::new(&second).unwrap();
        let tier = StoreTier::new("second", store, 16 * MIB).timeout(Duration::from_secs(30));
        let options = Options {
            budget: Some(budget(16, 0)),
            stores: vec![tier],
            ..Options::from_env().unwrap()
        };
        let (first, _) = Gpu::simulated_with(Default::default(), options).unwrap();
        let held = held(&first, 6, 1);
        let evicted = held.iter().filter(|one| one.evict().is_ok()).count();
        assert_eq!(evicted, lent, "host {host_mib}");
        // All of the second device is free for its owner.
        let own: Vec<_> = (0..15).map(|_| filled(&second, MIB, 2)).collect();
        assert_filled(&own, 2);
        assert_filled(&held, 1);
    }
}

#[test]
fn a_job_waits_for_memory_that_cannot_leave() {
    let gpu = with_budget(budget(64, 0));
    let held = held(&gpu, 40, 1);
    let jobs = gpu.jobs();
    let (waiting, wait) = (jobs.clone(), Arc::new(AtomicBool::new(true)));
    let waits = wait.clone();
    let large = thread::spawn(move || {
        let running = waiting.admit(Job::new("large", 30 * MIB));
        waits.store(false, Ordering::Release);
        running
    });
    while jobs.list().is_empty() {
        thread::yield_now();
    }
    let why = loop {
        let list = jobs.list();
        if let Some(why) = &list[0].waits_because {
            break why.clone();
        }
    };
    assert!(why.contains("6.00 MiB of the guarantees"), "{why}");
    // It holds up nobody, however often it is passed.
    for _ in 0..40 {
        drop(jobs.admit(Job::new("small", 20 * MIB)).unwrap());
    }
    assert!(wait.load(Ordering::Acquire));
    // No call of the list tells that memory is free now.
    drop(held);
    let running = large.join().unwrap().unwrap();
    let of_job: Vec<_> = (0..30).map(|_| filled(&running, MIB, 2)).collect();
    assert_filled(&of_job, 2);
}

#[test]
fn a_job_does_not_wait_for_what_only_queued_commands_hold() {
    let gpu = with_budget(budget(64, 0));
    for asks_async in [false, true] {
        let sum = sum_of_dropped(&gpu, 50);
        let job = Job::new("job", 40 * MIB);
        let running = match asks_async {
            true => pollster::block_on(gpu.jobs().admit_async(job)),
            false => gpu.jobs().admit(job),
        };
        drop(running.unwrap());
        assert_eq!(sum.item::<f32>().unwrap(), 0.0);
    }
}

#[test]
fn a_job_is_held_to_its_peak_and_leaves_the_list_when_cancelled() {
    let gpu = device(64 * MIB);
    let jobs = gpu.jobs();
    let running = jobs.admit(Job::new("job", 40 * MIB)).unwrap();
    // What it has it may divide.
    let part = running
        .share("part", ShareOptions::guaranteed(10 * MIB))
        .unwrap();
    part.resize(ShareOptions::guaranteed(20 * MIB)).unwrap();
    assert!(jobs.cancel(running.id()) && !jobs.cancel(running.id()));
    assert_eq!(jobs.list(), []);
    // It still has its handle, and the next job begins.
    let next = jobs.admit(Job::new("next", 60 * MIB)).unwrap();
    assert_refused(running.buffer_zeroed(16), "cancelled");
    assert_eq!(jobs.list().len(), 1);
    drop((running, next));
    assert_eq!(jobs.list(), []);
}

#[test]
fn what_a_job_guarantees_within_itself_keeps_no_higher_job_waiting() {
    let gpu = device(64 * MIB);
    let jobs = gpu.jobs();
    let low = jobs.admit(Job::new("low", 60 * MIB)).unwrap();
    let share = |bytes| low.share("inner", ShareOptions::guaranteed(bytes)).unwrap();
    let inner = [share(30 * MIB), share(20 * MIB)];
    let innermost = inner[1]
        .share("most", ShareOptions::guaranteed(15 * MIB))
        .unwrap();
    let of_inner = held(&inner[0], 50, 1);
    let guarantees = || {
        let of = |gpu: &Gpu| gpu.memory().share_use().unwrap().guaranteed_bytes / MIB;
        [of(&low), of(&inner[0]), of(&inner[1]), of(&innermost)]
    };
    assert_eq!(guarantees(), [60, 30, 20, 15]);
    // All of the lower job can leave. Older shares within it keep their guarantees first.
    let high = jobs.admit(Job::new("high", 30 * MIB).with_priority(1));
    assert_eq!(guarantees(), [34, 30, 4, 4]);
    let of_high = held(high.as_ref().unwrap(), 30, 2);
    assert_filled(&of_inner, 1);
    assert_eq!(on_device(&of_high), 30);
    inner[0].resize(ShareOptions::guaranteed(0)).unwrap();
    assert_eq!(guarantees(), [34, 0, 20, 15]);
    let [a_third, all] = [33, 100].map(|part| ShareOptions::guaranteed(Amount::OfBudget(part)));
    inner[0].resize(a_third).unwrap_err();
    drop((high, of_high));
    assert_eq!(guarantees(), [60, 0, 20, 15]);
    inner[0].resize(a_third).unwrap();
    assert_refused(inner[0].resize(all), "more than what is left");
    assert_eq!(guarantees()[1], 19);
}

#[test]
fn nothing_waits_for_a_job_inside_a_callback() {
    let gpu = device(16 * MIB);
    let (job, refused) = (gpu.clone(), Arc::new(AtomicBool::new(false)));
    let is_refused = refused.clone();
    let _mark = gpu.memory().on_watermark(50, move |_| {
        let admitted = job.jobs().admit(Job::new("job", MIB));
        let share = job.share("inside", ShareOptions::guaranteed(MIB));
        let is_reentered = matches!(admitted, Err(Error::Reentered)) && share.is_ok();
        is_refused.store(is_reentered, Ordering::Release);
    });
    let held = held(&gpu, 12, 1);
    assert!(refused.load(Ordering::Acquire));
    assert_filled(&held, 1);
}

/// Shares come, change and go, and hold as much as they want. Whatever happens, a share gets what
/// it is guaranteed.
fn program(seed: u64, steps: u64) {
    let mut random = Rng::with_seed(seed);
    let device_mib = 24;
    let gpu = with_budget(budget(device_mib, random.u64(0..20)));
    // The first is the device, and no share.
    let mut shares: Vec<(Gpu, Vec<Buffer>, Option<Share>)> = vec![(gpu.clone(), Vec::new(), None)];
    let mut pins = Vec::new();
    for step in 0..steps {
        let at = random.usize(0..shares.len());
        let mib = random.u64(0..=12) * MIB;
        match random.u32(0..20) {
            0 => {
                let share = ShareOptions::guaranteed(mib);
                let share = match random.bool() {
                    true => share.with_ceiling(mib + random.u64(1..12) * MIB),
                    false => share,
                };
                if let Ok(share) = shares[at].0.share(&format!("s{step}"), share) {
                    shares.push((share.gpu().clone(), Vec::new(), Some(share)));
                }
            }
            1 if at > 0 => {
                let share = shares[at].2.as_ref().unwrap();
                let _ = share.resize(ShareOptions::guaranteed(mib));
            }
            2 if at > 0 => drop(shares.swap_remove(at)),
            3 => {
                let host_mib = random.u64(0..20);
                let _ = gpu.memory().set_budget(budget(device_mib, host_mib));
            }
            4 | 5 => drop(shares[at].1.drain(..).take(3).collect::<Vec<_>>()),
            6 => {
                if let Some(buffer) = random.choice(&shares[at].1) {
                    pins.extend(buffer.pin());
                }
            }
            7 => drop(pins.drain(..).take(2).collect::<Vec<_>>()),
            8..12 => {
                let word = shares[at]
                    .0
                    .memory()
                    .share_use()
                    .map_or(0, |used| used.path.len() as u32);
                let buffer = shares[at]
                    .0
                    .buffer_from(&vec![word; MIB as usize / 4])
                    .unwrap();
                match buffer.force() {
                    Ok(()) => shares[at].1.push(buffer),
                    Err(Error::OutOfMemory(_)) => {}
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                }
            }
            _ => {
                // The share takes what it is guaranteed, unless that is for shares within it.
                let (gpu, buffers, _) = &mut shares[at];
                let Some(used) = gpu.memory().share_use() else {
                    continue;
                };
                let within = format!("{}/", used.path);
                let all = gpu.memory().stats().shares;
                let is_divided = all.iter().any(|one| one.path.starts_with(&within));
                if is_divided || used.is_closed || used.bytes.now + MIB > used.guaranteed_bytes {
                    continue;
                }
                let buffer = gpu.buffer_zeroed(MIB).unwrap();
                let taken = buffer.force();
                assert!(
                    taken.is_ok(),
                    "seed {seed}, step {step}: {used:?}\n{taken:?}"
                );
                buffers.push(buffer);
            }
        }
    }
}

#[test]
fn whatever_happens_guarantees_are_kept() {
    let seed = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = number("LAPIDARY_STEPS").unwrap_or(1500);
    eprintln!("LAPIDARY_SEED={seed} LAPIDARY_STEPS={steps}");
    for part in 0..4 {
        program(seed.wrapping_add(part), steps / 4);
    }
}
