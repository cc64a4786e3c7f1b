//! The queue runs late. Mappings, memory and waits depend on it.

use super::*;

/// A device whose queue runs only for waits and calls of `run`.
fn stopped() -> Bench {
    Bench::new(SimOptions {
        lag_submissions: u32::MAX,
        ..SimOptions::default()
    })
}

/// Uploads the expected words to `slab`, without running the queue.
fn written(bench: &Bench, slab: BufferId, words: &[u32]) -> Signal {
    bench.upload(slab, words).unwrap();
    bench.driver.submit(&[], &[]).unwrap().done
}

#[test]
fn a_submission_is_done_after_its_lag() {
    for lag in 0..4 {
        let bench = Bench::new(SimOptions {
            lag_submissions: lag,
            ..SimOptions::default()
        });
        let slab = bench.slab(8);
        let first = bench.driver.submit(&[clear(slab, 0, 8)], &[]).unwrap();
        for later in 0..lag {
            let so_far = (first.done.outcome(), bench.driver.completed());
            assert_eq!(so_far, (None, 0), "lag {lag}, {later} later");
            match later % 2 {
                0 => bench.driver.poll().unwrap(),
                _ => drop(bench.driver.submit(&[], &[]).unwrap()),
            }
        }
        assert_eq!(first.done.outcome(), Some(true), "lag {lag}");
        assert_eq!((first.serial, first.done.serial()), (1, 1));
        assert!(bench.driver.completed() >= 1);
    }
}

#[test]
fn waiting_runs_what_came_before_and_nothing_after() {
    let bench = stopped();
    let done: Vec<_> = (0..4)
        .map(|_| bench.driver.submit(&[], &[]).unwrap().done)
        .collect();
    (0..10).for_each(|_| bench.driver.poll().unwrap());
    assert_eq!(bench.driver.completed(), 0);
    bench.wait(&done[1]).unwrap();
    let outcomes: Vec<_> = done.iter().map(Signal::outcome).collect();
    assert_eq!(outcomes, [Some(true), Some(true), None, None]);
    assert_eq!(bench.driver.completed(), 2);
    assert_eq!((bench.sim.run(1), bench.driver.completed()), (1, 3));
    assert_eq!((bench.sim.run(9), bench.driver.completed()), (1, 4));
    bench.wait(&done[3]).unwrap();
    let never = bench.wait(&Signal::after(5)).unwrap_err();
    let words = "wait for submission 5, which was never made".to_string();
    assert_eq!(never, DriverError::Invalid(words));
}

#[test]
fn contents_change_when_the_submission_runs_in_order_and_not_before() {
    let bench = stopped();
    let (slab, other) = (bench.slab(8), bench.slab(8));
    let readback = bench.buffer(BufferKind::Readback, 16);
    written(&bench, slab, &[1, 2]);
    let early = [copy(slab, 0, readback, 0, 8)];
    bench.driver.submit(&early, &[]).unwrap();
    // This buffer is created and written after the copy was submitted, and before it runs.
    written(&bench, slab, &[3, 4]);
    let late = [
        copy(slab, 0, other, 0, 8),
        clear(slab, 0, 8),
        copy(other, 0, readback, 8, 8),
    ];
    bench.driver.submit(&late, &[]).unwrap();
    let ready = bench
        .driver
        .map(At(readback, 0), MapMode::Read, 16)
        .unwrap();
    assert_eq!((ready.outcome(), ready.serial()), (None, 6));
    bench.wait(&ready).unwrap();
    let look = &mut |bytes: &[u8]| {
        let words: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
        assert_eq!(words, [1, 2, 3, 4]);
    };
    bench.driver.read_mapped(At(readback, 0), 16, look).unwrap();
    bench.driver.unmap(readback);
    assert_eq!(bench.download(slab, 2), Ok(vec![0, 0]));
    assert_eq!(bench.sim.complaints(), [""; 0]);
}

#[test]
fn a_mapping_is_ready_only_when_the_submissions_that_use_the_buffer_are_done() {
    let bench = stopped();
    let slab = bench.slab(8);
    let readback = bench.buffer(BufferKind::Readback, 8);
    let work = [copy(slab, 0, readback, 0, 8)];
    bench.driver.submit(&work, &[]).unwrap();
    bench.driver.submit(&[], &[]).unwrap();
    let ready = bench.driver.map(At(readback, 0), MapMode::Read, 8).unwrap();
    bench.driver.poll().unwrap();
    assert_eq!(ready.outcome(), None);
    let early = bench
        .driver
        .read_mapped(At(readback, 0), 8, &mut |_| panic!());
    assert!(matches!(early, Err(DriverError::Invalid(_))), "{early:?}");
    bench.sim.run(1);
    assert_eq!((ready.outcome(), bench.driver.completed()), (Some(true), 1));

    // For an unused buffer the mapping is ready at the next poll, and never inside `map`.
    let idle = bench.buffer(BufferKind::Upload, 8);
    let ready = bench.driver.map(At(idle, 0), MapMode::Write, 8).unwrap();
    assert_eq!((ready.outcome(), ready.serial()), (None, 0));
    bench.driver.poll().unwrap();
    assert_eq!((ready.outcome(), bench.driver.completed()), (Some(true), 1));
}

#[test]
fn a_mapping_that_is_given_up_says_so() {
    let bench = stopped();
    for give_up in [Driver::unmap, Driver::destroy_buffer] {
        let upload = bench.buffer(BufferKind::Upload, 8);
        let ready = bench.driver.map(At(upload, 0), MapMode::Write, 8).unwrap();
        give_up(&bench.driver, upload);
        assert_eq!(ready.outcome(), Some(false));
        let waited = bench.wait(&ready);
        assert!(matches!(waited, Err(DriverError::Invalid(_))), "{waited:?}");
    }
    // `unmap` gives a mapping up without a complaint; destroying a mapped buffer is a misuse.
    let complaint = "destroy: the buffer is mapped, or about to be";
    assert_eq!(bench.sim.complaints(), [complaint]);
}

#[test]
fn memory_comes_back_when_the_submissions_that_use_it_are_done() {
    let bench = Bench::new(SimOptions {
        memory_bytes: 1024,
        lag_submissions: u32::MAX,
        ..SimOptions::default()
    });
    let taken = || {
        let counters = bench.sim.counters();
        (counters.reserved_bytes, counters.retiring_bytes)
    };
    let (a, b) = (bench.slab(256), bench.slab(768));
    let full = bench.try_buffer(BufferKind::Upload, 4);
    assert_eq!(full, Err(DriverError::OutOfMemory));
    let used = bench.driver.submit(&[copy(a, 0, b, 0, 4)], &[]).unwrap();
    let after = bench.driver.submit(&[clear(a, 0, 4)], &[]).unwrap();
    bench.driver.destroy_buffer(b);
    assert_eq!(taken(), (256, 768));
    let full = bench.try_buffer(BufferKind::Slab, 4);
    assert_eq!(full, Err(DriverError::OutOfMemory));
    bench.driver.poll().unwrap();
    assert_eq!(taken(), (256, 768));
    bench.wait(&used.done).unwrap();
    assert_eq!((taken(), after.done.outcome()), ((256, 0), None));
    bench.driver.destroy_buffer(bench.slab(768));
    assert_eq!(taken(), (256, 0));
    bench.driver.destroy_buffer(a);
    bench.driver.destroy_buffer(a);
    assert_eq!(taken(), (0, 256));
    bench.sim.run(1);
    assert_eq!(taken(), (0, 0));
    assert_eq!(bench.sim.counters().peak_bytes, 1024);
    assert_eq!(bench.sim.complaints(), [""; 0]);
}

#[test]
fn what_was_destroyed_or_forgotten_still_serves_the_submissions_that_use_it() {
    let bench = stopped();
    let (x, y) = (bench.slab(8), bench.slab(8));
    let readback = bench.buffer(BufferKind::Readback, 8);
    bench.upload(x, &[5, 6]).unwrap();
    let pipeline = bench.pipeline(add()).unwrap();
    let ranges = [binding(x, 0, 8), binding(y, 0, 8)];
    let group = bench.driver.create_bind_group(pipeline, &ranges).unwrap();
    let work = [
        dispatch(pipeline, group, (0, 4)),
        copy(y, 0, readback, 0, 8),
    ];
    bench.driver.submit(&work, &[1, 0, 0, 0]).unwrap();
    bench.driver.destroy_bind_group(group);
    bench.driver.destroy_pipeline(pipeline);
    bench.driver.destroy_buffer(x);
    bench.driver.destroy_buffer(y);
    // A buffer in the slot of the old one has another id and other bytes.
    bench.upload(bench.slab(8), &[9, 9]).unwrap();
    bench.map(readback, MapMode::Read, 8).unwrap();
    let look = &mut |bytes: &[u8]| assert_eq!((word(bytes), word(&bytes[4..])), (6, 7));
    bench.driver.read_mapped(At(readback, 0), 8, look).unwrap();
}

#[test]
fn who_is_woken_may_call_the_driver_at_once() {
    struct Caller(Arc<SimDriver>, SimHandle);
    impl std::task::Wake for Caller {
        fn wake(self: Arc<Self>) {
            self.0.poll().unwrap();
            assert_eq!(self.1.counters().submissions, 1);
        }
    }
    let (driver, sim) = SimDriver::new(SimOptions::default()).unwrap();
    let driver = Arc::new(driver);
    let done = driver.submit(&[], &[]).unwrap().done;
    let caller = Arc::new(Caller(driver.clone(), sim.clone()));
    done.wake_on_set(&caller.into());
    pollster::block_on(driver.wait(&done)).unwrap();
    assert_eq!(sim.counters().calls(Site::Poll), 1);
}

#[test]
fn many_threads_wait_for_the_same_work() {
    let bench = stopped();
    let slab = bench.slab(4096);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let done = bench.driver.submit(&[clear(slab, 0, 4096)], &[]);
                    bench.wait(&done.unwrap().done).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.driver.completed(), 1600);
}
