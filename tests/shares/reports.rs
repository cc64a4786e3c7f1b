//! What statistics, tags, errors and callbacks say of shares.

use std::sync::{Arc, Mutex};

use lapidary::shares::ShareOptions;

use super::{MIB, device, filled};

#[test]
fn tags_and_reports_name_the_share() {
    let gpu = device(64 * MIB);
    let app = gpu.share("app", ShareOptions::guaranteed(MIB)).unwrap();
    let user = app.share("user", ShareOptions::guaranteed(0)).unwrap();
    let mut held = Vec::new();
    for gpu in [&gpu, &app, &user] {
        held.push(filled(gpu, MIB, 1).named("same"));
    }
    assert_eq!(held[2].tag().share(), Some("app/user"));
    assert!(held[2].tag().to_string().starts_with("[app/user] `same`"));
    let stats = gpu.memory().stats();
    let holders: Vec<_> = stats.holders.iter().map(|one| one.tag.as_str()).collect();
    let of = |start: &str| holders.iter().filter(|tag| tag.starts_with(start)).count();
    assert_eq!(
        (of("[app] "), of("[app/user] "), of("`same`")),
        (1, 1, 1),
        "{holders:?}"
    );
    let printed = stats.to_string();
    assert!(
        printed.contains("app/user: guarantee 0 B, no ceiling"),
        "{printed}"
    );
    // Results of operations are in the share of their operands.
    let copy = held[2].copy().unwrap();
    assert_eq!(copy.tag().share(), Some("app/user"));
    // The same buffer elsewhere is itself; a handle of the same share makes no copy.
    assert!(copy.to(&user.clone()).unwrap().shares_memory_with(&copy));
    let there = copy.to(&app).unwrap();
    assert_eq!(there.tag().share(), Some("app"));
    assert_eq!(
        there.to_vec::<u32>().unwrap(),
        copy.to_vec::<u32>().unwrap()
    );
}

#[test]
fn watermarks_call_back_each_time_they_are_reached() {
    let gpu = device(64 * MIB);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watch = |gpu: &lapidary::Gpu, percent| {
        let (seen, inside) = (seen.clone(), gpu.clone());
        gpu.memory().on_watermark(percent, move |mark| {
            // A call that would wait for this work is refused.
            assert!(inside.finish().is_err());
            let of = mark.share.clone().unwrap_or_default();
            seen.lock().unwrap().push((of, mark.percent, mark.bytes));
        })
    };
    let take = || std::mem::take(&mut *seen.lock().unwrap());
    let (warning, _full, _device) = (watch(&job, 80), watch(&job, 100), watch(&gpu, 50));
    let mut held: Vec<_> = (0..7).map(|_| filled(&job, MIB, 1)).collect();
    assert_eq!(take(), []);
    held.push(filled(&job, MIB, 1));
    assert_eq!(take(), [("job".into(), 80, 8 * MIB)]);
    held.extend((0..4).map(|_| filled(&job, MIB, 1)));
    assert_eq!(take(), [("job".into(), 100, 10 * MIB)]);
    held.clear();
    held.extend((0..8).map(|_| filled(&job, MIB, 1)));
    assert_eq!(take().len(), 1);
    // One large buffer makes the level fall and rise at once.
    held.clear();
    held.push(filled(&job, 9 * MIB, 1));
    assert_eq!(take().len(), 1);
    held.clear();
    held.push(filled(&job, 9 * MIB, 1));
    assert_eq!(take().len(), 1);
    drop(warning);
    held.clear();
    held.extend((0..9).map(|_| filled(&job, MIB, 1)));
    assert_eq!(take(), []);
    held.extend((0..30).map(|_| filled(&gpu, MIB, 1)));
    assert_eq!(take(), [(String::new(), 50, 32 * MIB)]);
}

#[test]
fn a_dry_run_of_a_share_stays_within_its_ceiling() {
    let gpu = device(64 * MIB);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let held = filled(&job, 2 * MIB, 1);
    let run = |gpu: &lapidary::Gpu| {
        let made = (0..12).map(|_| gpu.buffer_zeroed(MIB));
        let made = made.collect::<lapidary::Result<Vec<_>>>()?;
        held.copy().and_then(|copy| copy.force())?;
        made.iter().try_for_each(|one| one.force())
    };
    let dry = job.dry_run(run).unwrap();
    assert!(
        dry.peak_live_bytes <= 10 * MIB && dry.evicted_bytes > 0,
        "{dry}"
    );
    let held_by_job = job.memory().share_use().unwrap();
    assert_eq!(held_by_job.bytes.now, 2 * MIB);
    // It is guaranteed nothing, so all of it is borrowed.
    assert_eq!(held_by_job.borrowed_bytes(), 2 * MIB);
    assert_eq!(held_by_job.unused_bytes(), 0);
    run(&job).unwrap();
    assert!(job.memory().share_use().unwrap().bytes.peak <= 10 * MIB);
    // The same program on the device needs no eviction.
    let elsewhere =
        |gpu: &lapidary::Gpu| (0..12).try_for_each(|_| gpu.buffer_zeroed(MIB).map(drop));
    assert_eq!(gpu.dry_run(elsewhere).unwrap().evicted_bytes, 0);
}

#[test]
fn snapshots_have_the_shares() {
    use lapidary::stats::{Snapshot, Topic};

    let gpu = device(64 * MIB);
    let app = gpu.share("app", ShareOptions::guaranteed(MIB)).unwrap();
    let share = ShareOptions::guaranteed(0).with_ceiling(4 * MIB);
    let user = app.share("user", share).unwrap();
    let held: Vec<_> = (0..8).map(|_| filled(&user, MIB, 7)).collect();
    for _ in 0..3 {
        held.iter().for_each(|one| one.prefetch().unwrap());
        user.flush().unwrap();
    }
    let snapshot = gpu.memory().snapshot();
    let mut json = Vec::new();
    snapshot.write_json(&mut json).unwrap();
    let again = Snapshot::from_json(&json).unwrap();
    assert_eq!(again, snapshot);
    let shares = again.stats.shares.iter().map(|one| one.path.as_str());
    assert_eq!(shares.collect::<Vec<_>>(), ["app", "app/user"]);
    assert!(
        again
            .tags
            .iter()
            .flatten()
            .any(|tag| tag.share() == Some("app/user"))
    );
    let advice = snapshot.advice();
    let of_share = advice.iter().find(|one| one.topic == Topic::Share).unwrap();
    assert!(
        of_share
            .text
            .contains("`app/user` fills its ceiling of 4.00 MiB"),
        "{of_share}"
    );
    let mut unlimited = snapshot;
    unlimited.stats.budget_bytes = None;
    let advice = unlimited.advice();
    let of_share = advice.iter().find(|one| one.topic == Topic::Share).unwrap();
    assert!(
        of_share.text.contains("while the device has no budget."),
        "{of_share}"
    );
}
