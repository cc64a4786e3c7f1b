//! Jobs that are admitted by what they need.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use lapidary::jobs::{Job, Jobs, Running};
use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::{Budget, DType, Error, Gpu, Options, adapter::AdapterKind};

use super::{Gate, MIB, PATIENT, assert_filled, device, filled, on_device, with_handle};

/// Begins to wait for a job on another thread, and returns once it waits or runs.
fn begin(jobs: &Jobs, job: Job) -> thread::JoinHandle<lapidary::Result<Running>> {
    let before = jobs.list().len();
    let waiting = jobs.clone();
    let thread = thread::spawn(move || waiting.admit(job));
    while jobs.list().len() == before && !thread.is_finished() {
        thread::yield_now();
    }
    thread
}

#[test]
fn jobs_run_together_if_their_peaks_fit() {
    let gpu = device(64 * MIB);
    let jobs = gpu.jobs();
    let first = jobs.admit(Job::new("first", 40 * MIB)).unwrap();
    let second = begin(&jobs, Job::new("second", 40 * MIB));
    let third = jobs.admit(Job::new("third", 20 * MIB)).unwrap();
    let list = gpu.jobs().list();
    let why = list[1].waits_because.as_deref().unwrap();
    assert!(
        why.contains("needs 40.0 MiB") && why.contains("leave 4.00 MiB"),
        "{why}"
    );
    assert_eq!(list[0].guaranteed_bytes, Some(40 * MIB));
    // Each is held to its peak, and the others notice nothing.
    let of_first: Vec<_> = (0..60).map(|_| filled(&first, MIB, 1)).collect();
    let of_third: Vec<_> = (0..20).map(|_| filled(&third, MIB, 3)).collect();
    assert_eq!((on_device(&of_first), on_device(&of_third)), (40, 20));
    assert_filled(&of_first, 1);
    assert_filled(&of_third, 3);
    drop(first);
    let second = second.join().unwrap().unwrap();
    // What the first job left behind gives way.
    let of_second: Vec<_> = (0..40).map(|_| filled(&second, MIB, 2)).collect();
    assert_eq!((on_device(&of_second), on_device(&of_third)), (40, 20));
    assert_filled(&of_first, 1);
    drop((second, third));
    assert_eq!(jobs.list(), []);
}

#[test]
fn a_higher_priority_takes_room_from_a_running_job() {
    let gpu = device(64 * MIB);
    let jobs = gpu.jobs();
    let low = jobs.admit(Job::new("low", 60 * MIB)).unwrap();
    let of_low: Vec<_> = (0..60).map(|_| filled(&low, MIB, 1)).collect();
    let high = jobs
        .admit(Job::new("high", 48 * MIB).with_priority(1))
        .unwrap();
    let of_high: Vec<_> = (0..48).map(|_| filled(&high, MIB, 2)).collect();
    assert_eq!((on_device(&of_high), on_device(&of_low)), (48, 16));
    let guaranteed = jobs
        .list()
        .iter()
        .map(|job| job.guaranteed_bytes.unwrap())
        .collect::<Vec<_>>();
    assert_eq!(guaranteed, [16 * MIB, 48 * MIB]);
    // The low one goes on, within what is left.
    assert_filled(&of_low, 1);
    assert_eq!(on_device(&of_high), 48);
    drop(high);
    assert_eq!(jobs.list()[0].guaranteed_bytes, Some(60 * MIB));
}

#[test]
fn jobs_are_cancelled_late_or_too_large() {
    let gpu = device(64 * MIB);
    let jobs = gpu.jobs();
    let too_large = jobs.admit(Job::new("huge", 65 * MIB)).unwrap_err();
    assert!(matches!(too_large, Error::NeverFits { .. }), "{too_large}");
    assert!(jobs.admit(Job::new("a/b", MIB)).is_err());
    let running = jobs.admit(Job::new("running", 60 * MIB)).unwrap();
    // A name that no share can have is refused before a wait.
    let misnamed = jobs.admit(Job::new("a/b", 60 * MIB)).unwrap_err();
    assert!(misnamed.to_string().contains("`/`"), "{misnamed}");
    let waiting = begin(&jobs, Job::new("waiting", 60 * MIB));
    let late = Job::new("late", 60 * MIB).with_deadline(Duration::from_millis(5));
    let error = jobs.admit(late).unwrap_err();
    assert!(error.to_string().contains("deadline"), "{error}");
    let id = jobs.list()[1].id;
    assert!(jobs.cancel(id) && !jobs.cancel(id));
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    // A running job ends at its next command.
    let buffer = running.buffer_zeroed(4096).unwrap();
    assert!(jobs.cancel(running.id()));
    assert!(buffer.force().is_err() && running.buffer_zeroed(16).is_err());
    drop(running);
    assert_eq!(jobs.list(), []);
    // A future that is dropped waits no more.
    let first = jobs.admit(Job::new("first", 60 * MIB)).unwrap();
    let mut dropped = Box::pin(jobs.admit_async(Job::new("dropped", 60 * MIB)));
    let waker = std::task::Waker::noop();
    let polled = dropped
        .as_mut()
        .poll(&mut std::task::Context::from_waker(waker));
    assert!(polled.is_pending());
    assert_eq!(jobs.list().len(), 2);
    drop(dropped);
    assert_eq!(jobs.list().len(), 1);
    drop(first);
    let unlimited = Gpu::simulated(Default::default()).unwrap().0;
    assert!(matches!(
        unlimited.jobs().admit(Job::new("x", 1)),
        Err(Error::Option { .. })
    ));
}

#[test]
fn jobs_of_a_share_have_its_guarantee() {
    let gpu = device(64 * MIB);
    let app = gpu
        .share("app", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    let of_app = app.jobs().admit(Job::new("job", 16 * MIB)).unwrap();
    assert_eq!(of_app.memory().share_use().unwrap().path, "app/job");
    assert!(app.jobs().admit(Job::new("job", 17 * MIB)).is_err());
    // The device's jobs have the rest.
    let other = gpu.jobs().admit(Job::new("job", 48 * MIB)).unwrap();
    assert!(gpu.jobs().admit(Job::new("job", 49 * MIB)).is_err());
    // A smaller budget leaves them less, and they go on.
    drop(other);
    let budget = Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device(32 * MIB)
    };
    gpu.memory().set_budget(budget).unwrap();
    assert!(gpu.jobs().admit(Job::new("job", 9 * MIB)).is_err());
    gpu.jobs().admit(Job::new("job", 8 * MIB)).unwrap();
}

#[test]
fn jobs_within_a_job_wait_for_what_a_higher_priority_took() {
    let gpu = device(64 * MIB);
    let around = gpu.jobs().admit(Job::new("around", 60 * MIB)).unwrap();
    let jobs = around.jobs();
    let running = jobs.admit(Job::new("running", 40 * MIB)).unwrap();
    let before = begin(&jobs, Job::new("before", 30 * MIB));
    let higher = Job::new("higher", 40 * MIB).with_priority(1);
    let higher = gpu.jobs().admit(higher).unwrap();
    // The job around has 24 MiB now, and 60 MiB again later.
    let after = begin(&jobs, Job::new("after", 30 * MIB));
    let error = jobs.admit(Job::new("too large", 61 * MIB)).unwrap_err();
    assert!(matches!(error, Error::NeverFits { .. }), "{error}");
    drop((higher, running));
    let both = [before, after].map(|one| one.join().unwrap().unwrap());
    assert_eq!(jobs.list().len(), 2);
    drop(both);
}

#[test]
fn a_lost_device_ends_the_wait_of_jobs() {
    let (gpu, sim) = with_handle(64 * MIB, false);
    let running = gpu.jobs().admit(Job::new("running", 50 * MIB)).unwrap();
    let waiting = begin(&gpu.jobs(), Job::new("waiting", 40 * MIB));
    sim.lose("a test");
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    drop(running);
}

#[test]
fn jobs_follow_the_memory_that_there_is() {
    let gpu = device(64 * MIB);
    let jobs = gpu.jobs();
    let budget = |bytes: u64| Budget {
        staging_bytes: Some(8 * MIB),
        ..Budget::device(bytes + 8 * MIB)
    };
    let other = gpu
        .share("other", ShareOptions::guaranteed(40 * MIB))
        .unwrap();
    let first = jobs.admit(Job::new("first", 20 * MIB)).unwrap();
    // It waits for memory that no job holds.
    let waiting = begin(&jobs, Job::new("waiting", 24 * MIB));
    assert_eq!(jobs.list().len(), 2);
    drop(first);
    let second = waiting.join().unwrap().unwrap();
    let waiting = begin(&jobs, Job::new("waiting", 10 * MIB));
    gpu.memory().set_budget(budget(80 * MIB)).unwrap();
    drop(waiting.join().unwrap().unwrap());
    // It will never fit again, and must not hold up others.
    let waiting = begin(&jobs, Job::new("waiting", 40 * MIB));
    gpu.memory().set_budget(budget(64 * MIB)).unwrap();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::NeverFits { .. }), "{error}");
    drop((second, other));
    drop(jobs.admit(Job::new("last", 60 * MIB)).unwrap());
    // Guarantees within a share are not for its jobs.
    let app = gpu
        .share("app", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    let _user = app
        .share("user", ShareOptions::guaranteed(12 * MIB))
        .unwrap();
    assert!(matches!(
        app.jobs().admit(Job::new("x", 5 * MIB)),
        Err(Error::NeverFits { .. })
    ));
    drop(app.jobs().admit(Job::new("x", 4 * MIB)).unwrap());
}

/// Threads with jobs of random peaks and priorities, each of which fills its memory.
#[test]
fn many_jobs_run_to_their_end_within_the_budget() {
    let gpu = device(16 * MIB);
    let (ended, seed) = (Arc::new(AtomicU32::new(0)), fastrand::u64(..));
    let errors = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for thread in 0..6 {
            let (gpu, ended, errors) = (gpu.clone(), ended.clone(), errors.clone());
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ thread);
                for _ in 0..25 {
                    let mib = random.u64(1..=12);
                    let job = Job::new("job", mib * MIB).with_priority(random.i8(-2..=2));
                    let running = gpu.jobs().admit(job).unwrap();
                    let word = random.u32(..);
                    let made =
                        (0..mib + 2).map(|_| running.buffer_from(&vec![word; MIB as usize / 4]));
                    match made.collect::<lapidary::Result<Vec<_>>>() {
                        Ok(buffers) => assert_filled(&buffers, word),
                        Err(error) => errors.lock().unwrap().push(error),
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), 150, "seed {seed}");
    assert!(errors.lock().unwrap().is_empty(), "seed {seed}: {errors:?}");
    let stats = gpu.memory().stats();
    assert!(stats.device_bytes.peak <= 24 * MIB);
}

#[test]
fn a_closed_share_has_no_jobs() {
    let gpu = device(64 * MIB);
    let app = gpu
        .share("app", ShareOptions::guaranteed(32 * MIB))
        .unwrap();
    let jobs = app.jobs();
    let running = jobs.admit(Job::new("running", 32 * MIB)).unwrap();
    let waiting = begin(&jobs, Job::new("waiting", 8 * MIB));
    app.close().unwrap();
    let of_waiting = waiting.join().unwrap().unwrap_err();
    drop(running);
    let of_new = jobs.admit(Job::new("new", 8 * MIB)).unwrap_err();
    for error in [of_waiting, of_new] {
        assert!(matches!(error, Error::Share { .. }), "{error}");
        assert!(error.to_string().contains("closed"), "{error}");
    }
}

#[test]
fn jobs_wait_while_the_guarantee_around_them_changes() {
    let gpu = device(64 * MIB);
    let app = gpu
        .share("app", ShareOptions::guaranteed(32 * MIB))
        .unwrap();
    let (ends, errors) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut mib = 32;
            while ends.load(Ordering::Relaxed) < 4 {
                // Below it are what the jobs hold now, then it is refused.
                let _ = app.resize(ShareOptions::guaranteed(mib * MIB));
                mib = if mib == 40 { 32 } else { mib + 1 };
            }
        });
        for thread in 0..4_u64 {
            let (app, ends, errors) = (&app, &ends, &errors);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for number in 0..500 {
                    let peak_bytes = rng.u64(1..24) * MIB;
                    let job = Job::new(&format!("{number}"), peak_bytes);
                    match app.jobs().admit(job.with_priority(rng.i8(-2..3))) {
                        Ok(running) => drop(running),
                        Err(error) => errors.lock().unwrap().push(error.to_string()),
                    }
                }
                ends.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    let errors = errors.into_inner().unwrap();
    assert!(errors.is_empty(), "{}", errors[0]);
}

#[test]
fn a_deadline_is_noticed_while_the_queue_runs() {
    // Kernels take long there, as the engine predicts, so it submits a few at a time.
    let device = SimOptions {
        kind: AdapterKind::Cpu,
        ..SimOptions::default()
    };
    let budget = Budget {
        host_bytes: Some(0),
        disk_bytes: Some(0),
        ..Budget::device(64 * MIB)
    };
    let options = Options {
        budget: Some(budget),
        ..Options::from_env().unwrap()
    };
    let (gpu, _) = Gpu::simulated_with(device, options).unwrap();
    // The job waits for memory that has no other place, so its thread runs the queue.
    let held = filled(&gpu, 40 * MIB, 7);
    let a = gpu.ones(&[128, 128], DType::F32).unwrap();
    let mut x = a.copy().unwrap();
    for _ in 0..40 {
        x = x.matmul(&a).unwrap();
    }
    // The last command cannot run before the gate opens.
    let (gate, source) = Gate::source();
    let backed = gpu.buffer_backed(source, 4096).unwrap();
    let copy = backed.copy().unwrap();
    let (ends, is_over) = mpsc::channel();
    thread::scope(|scope| {
        let jobs = gpu.jobs();
        scope.spawn(move || {
            let job = Job::new("late", 40 * MIB).with_deadline(Duration::from_millis(5));
            ends.send(jobs.admit(job).map(drop)).unwrap();
        });
        let ended = is_over.recv_timeout(PATIENT);
        gate.open();
        let error = ended.expect("it does not run everything").unwrap_err();
        assert!(error.to_string().contains("its deadline passed"), "{error}");
    });
    assert_filled(&[copy], 0x0101_0101);
    assert_filled(&[held], 7);
    drop(x);
}
