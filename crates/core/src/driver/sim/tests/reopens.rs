//! A new device replaces a lost one. It has no objects of the old one, and no wait for a signal of
//! the old one hangs.

use super::*;

fn late() -> Bench {
    Bench::new(SimOptions {
        lag_submissions: u32::MAX,
        ..SimOptions::default()
    })
}

fn reopen(bench: &Bench) -> DriverResult<()> {
    pollster::block_on(bench.driver.reopen())
}

fn is_lost<T>(result: &DriverResult<T>) -> bool {
    matches!(result, Err(DriverError::Lost(_)))
}

fn is_invalid<T>(result: &DriverResult<T>) -> bool {
    matches!(result, Err(DriverError::Invalid(_)))
}

#[test]
fn after_any_loss_a_fresh_device_works_like_the_first() {
    for nth in 1..=30 {
        let bench = Bench::new(SimOptions {
            pauses: 2,
            ..SimOptions::default()
        });
        bench.sim.arm(Fault::lose_at_call(nth));
        let first = bench.session();
        bench.sim.disarm();
        if bench.driver.lost().is_none() {
            assert_eq!(first, Ok(SESSION.to_vec()));
            bench.sim.lose("for this test");
        }
        assert_eq!(reopen(&bench), Ok(()), "lost at call {nth}");
        assert_eq!(bench.driver.lost(), None);
        assert_eq!(bench.session(), Ok(SESSION.to_vec()), "lost at call {nth}");
        bench.sim.run(usize::MAX);
        let counters = bench.sim.counters();
        assert_eq!(
            (counters.reserved_bytes, counters.retiring_bytes),
            (0, 0),
            "lost at call {nth}"
        );
        assert_eq!(counters.buffers_created, counters.buffers_destroyed);
        assert_eq!(bench.sim.complaints(), [""; 0]);
    }
}

#[test]
fn ids_of_the_lost_device_name_nothing_on_the_new_one() {
    let bench = late();
    let (x, y) = (bench.slab(256), bench.slab(256));
    let pipeline = bench.pipeline(add()).unwrap();
    let ranges = [binding(x, 0, 4), binding(y, 0, 4)];
    let group = bench.driver.create_bind_group(pipeline, &ranges).unwrap();
    bench.sim.lose("for this test");
    reopen(&bench).unwrap();
    let (new, kernel) = (bench.slab(256), bench.pipeline(add()).unwrap());
    let other = bench.slab(256);
    let renewed = [binding(new, 0, 4), binding(other, 0, 4)];
    bench.driver.create_bind_group(kernel, &renewed).unwrap();
    assert!(![x, y].contains(&new) && pipeline != kernel);
    let work = dispatch(pipeline, group, (0, 4));
    assert!(is_invalid(&bench.driver.submit(&[work], &[0; 4])));
    assert!(is_invalid(&bench.driver.submit(&[clear(x, 0, 4)], &[])));
    assert!(is_invalid(&bench.driver.create_bind_group(kernel, &ranges)));
    let unbound = bench.driver.create_bind_group(pipeline, &renewed);
    assert!(is_invalid(&unbound));
    assert!(is_invalid(&bench.driver.map(At(x, 0), MapMode::Read, 8)));
    // Releasing them is no mistake, and does not affect the new device.
    let refusals = bench.sim.complaints().len();
    bench.driver.unmap(x);
    bench.driver.destroy_buffer(x);
    bench.driver.destroy_pipeline(pipeline);
    bench.driver.destroy_bind_group(group);
    let counters = bench.sim.counters();
    assert_eq!(counters.buffers_live, 2);
    assert_eq!((counters.pipelines_live, counters.bind_groups_live), (1, 1));
    assert_eq!(bench.sim.complaints().len(), refusals);
}

#[test]
fn serials_go_on_and_what_the_lost_device_owed_has_failed() {
    let bench = late();
    let (slab, readback) = (bench.slab(8), bench.buffer(BufferKind::Readback, 8));
    let done = bench.driver.submit(&[clear(slab, 0, 8)], &[]).unwrap();
    bench.wait(&done.done).unwrap();
    let work = [copy(slab, 0, readback, 0, 8)];
    let owed = bench.driver.submit(&work, &[]).unwrap();
    let mapped = bench.driver.map(At(readback, 0), MapMode::Read, 8).unwrap();
    assert_eq!((owed.serial, bench.driver.completed()), (2, 1));
    bench.driver.declare_lost("for this test");
    assert_eq!(bench.driver.completed(), 1);
    reopen(&bench).unwrap();
    assert_eq!(bench.driver.completed(), 2);
    for signal in [&owed.done, &mapped] {
        assert_eq!(signal.outcome(), Some(false));
        assert!(is_lost(&bench.wait(signal)));
    }
    assert_eq!(bench.wait(&done.done), Ok(()));
    let slab = bench.slab(8);
    let next = bench.driver.submit(&[clear(slab, 0, 8)], &[]).unwrap();
    assert_eq!((next.serial, bench.driver.completed()), (3, 2));
    bench.wait(&next.done).unwrap();
    assert_eq!(bench.driver.completed(), 3);
}

#[test]
fn reopening_fails_as_it_is_told_and_works_once_it_is_not() {
    let gone = DriverError::Lost("for this test".to_string());
    let wrong = DriverError::Invalid("a fault at Reopen".to_string());
    for (kind, error) in [
        (FaultKind::OutOfMemory, DriverError::OutOfMemory),
        (FaultKind::Invalid, wrong),
        (FaultKind::Lost, gone.clone()),
    ] {
        let bench = late();
        bench.sim.arm(Fault::for_ever(Site::Reopen, 1, kind));
        bench.sim.lose("for this test");
        for _ in 0..2 {
            assert_eq!(reopen(&bench), Err(error.clone()));
            assert_eq!(bench.try_buffer(BufferKind::Slab, 4), Err(gone.clone()));
        }
        bench.sim.disarm();
        assert_eq!(reopen(&bench), Ok(()));
        assert_eq!(bench.session(), Ok(SESSION.to_vec()));
        assert_eq!(bench.sim.counters().calls(Site::Reopen), 3);
    }
}

#[test]
fn a_device_that_is_not_lost_is_not_replaced() {
    let bench = late();
    let slab = bench.slab(8);
    assert!(is_invalid(&reopen(&bench)));
    assert_eq!(bench.download(slab, 2), Ok(vec![0; 2]));
}

#[test]
fn the_armed_faults_outlive_the_device() {
    let bench = late();
    bench
        .sim
        .arm(Fault::once(Site::CreateBuffer, 2, FaultKind::OutOfMemory));
    bench.slab(4);
    bench.sim.lose("for this test");
    reopen(&bench).unwrap();
    let created = bench.try_buffer(BufferKind::Slab, 4);
    assert_eq!(created, Err(DriverError::OutOfMemory));
}

#[test]
fn a_lesser_device_is_refused_and_one_with_less_memory_taken() {
    let lesser = |options: SimOptions, named: &str| {
        let bench = late();
        bench.sim.lose("for this test");
        bench.sim.reopens_as(options);
        let Err(DriverError::Invalid(why)) = reopen(&bench) else {
            panic!("it was taken although its {named} differs");
        };
        assert!(why.contains(named), "{why}");
        bench.sim.reopens_as(SimOptions::default());
        assert_eq!(reopen(&bench), Ok(()));
    };
    let new = SimOptions::default;
    let mode = SimMode::SizesOnly;
    lesser(SimOptions { mode, ..new() }, "runs_reference_kernels");
    let max_buffer_bytes = new().max_buffer_bytes / 2;
    lesser(
        SimOptions {
            max_buffer_bytes,
            ..new()
        },
        "max_buffer_bytes",
    );
    let offset_alignment_bytes = 512;
    lesser(
        SimOptions {
            offset_alignment_bytes,
            ..new()
        },
        "offset_alignment_bytes",
    );
    let max_immediate_bytes = 0;
    lesser(
        SimOptions {
            max_immediate_bytes,
            ..new()
        },
        "max_immediate_bytes",
    );

    let bench = late();
    bench.sim.lose("for this test");
    let memory_bytes = 1 << 10;
    bench.sim.reopens_as(SimOptions {
        memory_bytes,
        ..new()
    });
    reopen(&bench).unwrap();
    let created = bench.try_buffer(BufferKind::Slab, 1 << 11);
    assert_eq!(created, Err(DriverError::OutOfMemory));
}
