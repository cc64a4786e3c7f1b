//! Shares and jobs in a dry run: those of the device stay as they are.

use lapidary::jobs::Job;
use lapidary::shares::{Amount, Share, ShareOptions};
use lapidary::{Budget, DType, Error, Gpu, Options};

const MIB: u64 = 1 << 20;

fn device() -> Gpu {
    let budget = Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device(72 * MIB)
    };
    let options = Options {
        budget: Some(budget),
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(Default::default(), options).unwrap().0
}

/// Is it a refusal that speaks of dry runs?
#[track_caller]
fn assert_refused<T>(result: lapidary::Result<T>) {
    match result.err() {
        Some(Error::Share { reason, .. }) => assert!(reason.contains("dry run"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn shares_of_the_device_do_not_change() {
    let gpu = device();
    let share = ShareOptions::guaranteed(16 * MIB).with_priority(2);
    let app = gpu.share("app", share).unwrap();
    let x = app.ones(&[16], DType::F32).unwrap();
    let late = (&x + 1.0).unwrap();
    let before = app.memory().share_use();
    let change = |of: &Share| {
        assert_refused(of.close());
        assert_refused(of.cancel());
        assert_refused(of.resize(ShareOptions::guaranteed(0).with_priority(-3)));
    };
    app.dry_run(|dry| {
        change(&app);
        // Nor does a dry run within it change those of the outer one.
        let made = dry.share("made", ShareOptions::guaranteed(MIB))?;
        dry.dry_run(|_| {
            change(&app);
            change(&made);
            Ok(())
        })?;
        made.close()
    })
    .unwrap();
    assert_eq!(app.memory().share_use(), before);
    assert_eq!(late.to_vec::<f32>().unwrap(), [2.0; 16]);
    assert_eq!(gpu.memory().stats().shares.len(), 1);
}

#[test]
fn shares_made_in_a_dry_run_change_and_end() {
    let gpu = device();
    let app = gpu
        .share("app", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    gpu.dry_run(|dry| {
        // By each handle of the device, the dry run's and the one outside.
        for around in [dry, &gpu, &app] {
            let made = around.share("made", ShareOptions::guaranteed(MIB))?;
            let wider = ShareOptions::guaranteed(2 * MIB).with_ceiling(Amount::Bytes(4 * MIB));
            made.resize(wider)?;
            let used = made.memory().share_use().unwrap();
            assert_eq!(used.guaranteed_bytes, 2 * MIB);
            let x = made.ones(&[16], DType::F32)?;
            made.close()?;
            assert!(made.ones(&[16], DType::F32).is_err());
            made.cancel()?;
            drop(x);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(gpu.memory().stats().shares.len(), 1);
}

#[test]
fn jobs_of_the_device_do_not_change() {
    let gpu = device();
    let jobs = gpu.jobs();
    let app = gpu
        .share("app", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    let running = jobs.admit(Job::new("running", 20 * MIB)).unwrap();
    let ends = jobs.admit(Job::new("ends", 20 * MIB)).unwrap();
    let cancelled = jobs.admit(Job::new("cancelled", 4 * MIB)).unwrap();
    let rest = jobs.list()[0].clone();
    let mut waiting = Box::pin(jobs.admit_async(Job::new("waiting", 24 * MIB)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    gpu.dry_run(|dry| {
        assert_refused(jobs.admit(Job::new("job", MIB)));
        assert_refused(gpu.jobs().admit(Job::new("job", MIB)));
        assert_refused(app.jobs().admit(Job::new("job", MIB)));
        // The dry run has its own, which take what those outside leave.
        let own = dry.jobs().admit(Job::new("own", 4 * MIB))?;
        own.ones(&[16], DType::F32)?;
        assert_eq!(dry.jobs().list().len(), 1);
        // A job of the device that ends here ends there, and another one begins there.
        drop(ends);
        assert!(jobs.cancel(cancelled.id()));
        gpu.poll()?;
        Ok(())
    })
    .unwrap();
    assert_eq!(jobs.list()[0], rest);
    let std::task::Poll::Ready(admitted) = waiting.as_mut().poll(&mut context) else {
        panic!("it fits now");
    };
    let admitted = admitted.unwrap();
    let used = admitted.memory().share_use().unwrap();
    assert_eq!(used.guaranteed_bytes, 24 * MIB);
    let x = admitted.ones(&[16], DType::F32).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0; 16]);
    assert!(cancelled.ones(&[16], DType::F32).is_err());
    assert!(!running.memory().share_use().unwrap().is_closed);
}

#[test]
fn results_that_a_program_returns_count() {
    let gpu = device();
    let work = |gpu: &Gpu| {
        let x = gpu.ones(&[1 << 18], DType::F32)?;
        Ok(((&x + 1.0)?, x.exp()?))
    };
    let dry = gpu.dry_run(work).unwrap();
    // The operand gives its place to one of the results.
    assert_eq!(dry.peak_added_bytes, 2 * MIB, "{dry}");
    let running = gpu.jobs().admit(Job::new("two", dry.peak_added_bytes));
    let running = running.unwrap();
    let (more, exp) = work(&running).unwrap();
    running.flush().unwrap();
    let evictions = || running.memory().share_use().unwrap().evictions;
    assert_eq!(evictions(), 0);
    assert_eq!(more.to_vec::<f32>().unwrap()[7], 2.0);
    assert!((exp.to_vec::<f32>().unwrap()[7] - 1.0_f32.exp()).abs() < 1e-5);
    assert_eq!(evictions(), 0);
    // What the program drops before it is computed does not count.
    let dropped = gpu.dry_run(|gpu| work(gpu).map(drop)).unwrap();
    assert!(dropped.peak_added_bytes < dry.peak_added_bytes, "{dropped}");
}
