//! Faults at every call. After an error everything is as before; after a loss every call fails.

use super::*;

const FALLIBLE: [Site; 9] = [
    Site::CreateBuffer,
    Site::CreatePipeline,
    Site::CreateBindGroup,
    Site::Submit,
    Site::Poll,
    Site::Wait,
    Site::Map,
    Site::WriteMapped,
    Site::ReadMapped,
];

fn bench(lag_submissions: u32) -> Bench {
    Bench::new(SimOptions {
        lag_submissions,
        ..SimOptions::default()
    })
}

fn calls_of_a_session(site: Site) -> u64 {
    let bench = bench(2);
    bench.session().unwrap();
    bench.sim.counters().calls(site)
}

/// The failed sessions leave nothing behind, and the next one works.
fn recovers(bench: &Bench, what: &dyn std::fmt::Debug) {
    bench.sim.disarm();
    assert_eq!(bench.session(), Ok(SESSION.to_vec()), "{what:?}");
    bench.sim.run(usize::MAX);
    let counters = bench.sim.counters();
    let held = (counters.reserved_bytes, counters.retiring_bytes);
    assert_eq!(held, (0, 0), "{what:?}");
    assert_eq!(counters.pipelines_live, 0, "{what:?}");
    assert_eq!(counters.bind_groups_live, 0, "{what:?}");
}

#[test]
fn every_call_can_fail_in_every_way_and_the_next_session_works() {
    for site in FALLIBLE {
        let calls = calls_of_a_session(site);
        assert!(calls > 0, "{site:?}");
        for nth in 1..=calls {
            let invalid = DriverError::Invalid(format!("a fault at {site:?}"));
            for (kind, error) in [
                (FaultKind::OutOfMemory, DriverError::OutOfMemory),
                (FaultKind::Invalid, invalid),
            ] {
                for plan in [Fault::once, Fault::every_second, Fault::for_ever] {
                    let (bench, fault) = (bench(2), plan(site, nth, kind));
                    bench.sim.arm(fault);
                    assert_eq!(bench.session(), Err(error.clone()), "{fault:?}");
                    assert_eq!(bench.sim.counters().faults, 1, "{fault:?}");
                    recovers(&bench, &fault);
                }
            }
        }
    }
}

#[test]
fn a_fault_strikes_again_as_it_was_told() {
    let outcomes = |fault| {
        let bench = bench(2);
        bench.sim.arm(fault);
        let created = |_| match bench.try_buffer(BufferKind::Slab, 4) {
            Ok(_) => '.',
            Err(_) => 'x',
        };
        let outcomes: String = (0..6).map(created).collect();
        assert_eq!(
            bench.sim.counters().buffers_live,
            outcomes.matches('.').count() as u64
        );
        bench.sim.disarm();
        assert_eq!(bench.session(), Ok(SESSION.to_vec()));
        outcomes
    };
    let (site, kind) = (Site::CreateBuffer, FaultKind::OutOfMemory);
    assert_eq!(outcomes(Fault::once(site, 2, kind)), ".x....");
    assert_eq!(outcomes(Fault::every_second(site, 2, kind)), ".x.x.x");
    assert_eq!(outcomes(Fault::for_ever(site, 2, kind)), ".xxxxx");
}

#[test]
fn a_mapping_can_fail_when_it_is_due() {
    for kind in [FaultKind::OutOfMemory, FaultKind::Invalid] {
        for nth in 1..=calls_of_a_session(Site::MapDone) {
            let bench = bench(2);
            let fault = Fault::once(Site::MapDone, nth, kind);
            bench.sim.arm(fault);
            let failed = bench.session();
            assert!(matches!(failed, Err(DriverError::Invalid(_))), "{failed:?}");
            recovers(&bench, &fault);
        }
    }
    // Until it is unmapped, the buffer can neither be used nor be mapped again.
    let bench = bench(0);
    let upload = bench.buffer(BufferKind::Upload, 8);
    bench
        .sim
        .arm(Fault::once(Site::MapDone, 1, FaultKind::Invalid));
    let failed = bench.map(upload, MapMode::Write, 8);
    assert!(matches!(failed, Err(DriverError::Invalid(_))), "{failed:?}");
    let again = bench.map(upload, MapMode::Write, 8);
    assert!(matches!(again, Err(DriverError::Invalid(_))), "{again:?}");
    bench.driver.unmap(upload);
    assert_eq!(bench.map(upload, MapMode::Write, 8), Ok(()));
    assert_eq!(bench.sim.counters().complaints, 1);
}

#[test]
fn a_driver_that_is_dropped_leaves_nothing() {
    let bench = bench(u32::MAX);
    let sim = bench.sim.clone();
    let slab = bench.slab(8);
    bench.pipeline(add()).unwrap();
    let done = bench.driver.submit(&[clear(slab, 0, 8)], &[]).unwrap().done;
    bench.driver.destroy_buffer(slab);
    bench.slab(16);
    drop(bench);
    let counters = sim.counters();
    let held = (counters.reserved_bytes, counters.retiring_bytes);
    assert_eq!((held, counters.peak_bytes), ((0, 0), 24));
    assert_eq!((counters.buffers_live, counters.pipelines_live), (0, 0));
    assert_eq!((done.outcome(), sim.run(1)), (Some(false), 0));
}

/// Every method returns the loss, and no wait hangs.
fn is_lost(bench: &Bench, ids: (BufferId, PipelineId), signals: &[Signal], what: &str) {
    let (buffer, pipeline) = ids;
    let driver = &bench.driver;
    let lost = DriverError::Lost(driver.lost().expect(what));
    let answers = [
        bench.try_buffer(BufferKind::Slab, 4).err(),
        bench.pipeline(add()).err(),
        driver.create_bind_group(pipeline, &[]).err(),
        driver.submit(&[], &[]).err(),
        driver.poll().err(),
        driver.map(At(buffer, 0), MapMode::Write, 8).err(),
        driver.write_mapped(At(buffer, 0), &[0; 8]).err(),
        driver.read_mapped(At(buffer, 0), 8, &mut |_| ()).err(),
        bench.wait(&Signal::after(0)).err(),
        bench.wait(&Signal::after(u64::MAX)).err(),
    ];
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer.as_ref(), Some(&lost), "{what}, answer {index}");
    }
    for signal in signals {
        assert!(signal.outcome().is_some(), "{what}: {signal:?}");
        assert_eq!(bench.wait(signal), Err(lost.clone()), "{what}");
    }
    driver.declare_lost("another reason");
    assert_eq!(driver.lost().map(DriverError::Lost), Some(lost), "{what}");
}

#[test]
fn the_device_can_go_away_at_any_call_and_nothing_hangs() {
    for lag in [0, 2, u32::MAX] {
        for nth in 1.. {
            let bench = bench(lag);
            let upload = bench.buffer(BufferKind::Upload, 8);
            let pipeline = bench.pipeline(add()).unwrap();
            let mapping = bench.driver.map(At(upload, 0), MapMode::Write, 8).unwrap();
            let early = bench.driver.submit(&[], &[]).unwrap().done;
            bench.sim.arm(Fault::lose_at_call(nth));
            let session = bench.session();
            if bench.driver.lost().is_none() {
                assert_eq!(session, Ok(SESSION.to_vec()));
                assert_eq!(nth, calls_of_a_session(Site::AnyCall) + 1);
                break;
            }
            let what = format!("lag {lag}, lost at call {nth}");
            // The last calls only give back, so a session may have its result already.
            let reason = "a fault at";
            match session {
                Ok(words) => assert_eq!(words, SESSION, "{what}"),
                Err(DriverError::Lost(why)) => assert!(why.starts_with(reason), "{what}: {why}"),
                Err(other) => panic!("{what}: {other:?}"),
            }
            is_lost(&bench, (upload, pipeline), &[mapping, early], &what);
            bench.driver.destroy_buffer(upload);
            let counters = bench.sim.counters();
            let held = (counters.reserved_bytes, counters.retiring_bytes);
            assert_eq!((held, counters.submissions_pending), ((0, 0), 0), "{what}");
            assert_eq!(bench.sim.complaints(), [""; 0], "{what}");
        }
    }
}

#[test]
fn the_device_can_go_away_from_outside_and_when_a_mapping_is_due() {
    for way in 0..3 {
        let bench = bench(u32::MAX);
        let pipeline = bench.pipeline(add()).unwrap();
        let slab = bench.slab(8);
        let readback = bench.buffer(BufferKind::Readback, 8);
        let idle = bench.buffer(BufferKind::Upload, 8);
        let work = [copy(slab, 0, readback, 0, 8)];
        let done = bench.driver.submit(&work, &[]).unwrap().done;
        let ready = bench.driver.map(At(readback, 0), MapMode::Read, 8).unwrap();
        let also = bench.driver.map(At(idle, 0), MapMode::Write, 8).unwrap();
        match way {
            0 => bench.sim.lose("pulled out"),
            1 => bench.driver.declare_lost("pulled out"),
            _ => {
                let fault = Fault::once(Site::MapDone, 1, FaultKind::Lost);
                bench.sim.arm(fault);
                let poll = bench.driver.poll();
                assert!(matches!(poll, Err(DriverError::Lost(_))), "{poll:?}");
            }
        }
        let signals = [done, ready, also];
        assert_eq!(signals.each_ref().map(Signal::outcome), [Some(false); 3]);
        is_lost(&bench, (readback, pipeline), &signals, "from outside");
        assert_eq!(bench.sim.run(5), 0);
    }
}

#[test]
fn options_that_cannot_be_are_refused_by_name() {
    type Spoil = fn(&mut SimOptions);
    let cases: [(&str, Spoil); 7] = [
        ("offset_alignment", |o| o.offset_alignment_bytes = 0),
        ("offset_alignment", |o| o.offset_alignment_bytes = 48),
        ("max_buffer_bytes", |o| o.max_buffer_bytes = 0),
        ("max_binding_bytes", |o| o.max_binding_bytes = 6),
        ("take 16128", |o| o.max_binding_bytes = 16_380),
        ("max_storage_bindings", |o| o.max_storage_bindings = 0),
        ("max_groups", |o| o.max_groups = 0),
    ];
    for (words, spoil) in cases {
        let mut options = SimOptions::default();
        spoil(&mut options);
        let error = SimDriver::new(options).map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
