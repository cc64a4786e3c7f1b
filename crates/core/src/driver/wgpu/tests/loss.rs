//! A lost device says so at every call, and no wait hangs.

use super::*;

/// Every call of the driver returns `Lost`.
fn all_is_lost(driver: &WgpuDriver, slab: BufferId, pipeline: PipelineId, group: BindGroupId) {
    let op = dispatch(pipeline, group, (0, 16));
    let binding = Binding {
        buffer: slab,
        offset_bytes: 0,
        size_bytes: 256,
    };
    assert!(is_lost(&driver.submit(&[op], &[0; 16])));
    assert!(is_lost(&driver.submit(&[], &[])));
    assert!(is_lost(&driver.submit_app(Vec::new())));
    assert!(is_lost(&block_on(driver.create_buffer(
        BufferKind::Slab,
        64,
        "late"
    ))));
    assert!(is_lost(&block_on(driver.create_pipeline(kernel(ADD, &[])))));
    assert!(is_lost(&driver.create_bind_group(pipeline, &[binding])));
    assert!(is_lost(&driver.map(At(slab, 0), MapMode::Read, 64)));
    assert!(is_lost(&driver.write_mapped(At(slab, 0), &[0; 4])));
    assert!(is_lost(&driver.read_mapped(At(slab, 0), 4, &mut |_| ())));
    assert!(is_lost(&driver.poll()));
    assert!(driver.lost().is_some());
    driver.unmap(slab);
    driver.destroy_bind_group(group);
    driver.destroy_pipeline(pipeline);
    driver.destroy_buffer(slab);
}

/// After the device was destroyed, the first call finds out, whichever it is.
#[test]
fn a_destroyed_device_is_lost_at_the_next_call_whichever_it_is() {
    type Call = fn(&WgpuDriver, BufferId, PipelineId) -> bool;
    let calls: [Call; 6] = [
        |driver, slab, _| is_lost(&driver.submit(&[clear(slab, 0, 4)], &[])),
        |driver, _, _| {
            is_lost(&block_on(driver.create_buffer(
                BufferKind::Slab,
                64,
                "late",
            )))
        },
        |driver, _, _| is_lost(&block_on(driver.create_pipeline(kernel(ADD, &[])))),
        |driver, slab, pipeline| {
            let binding = Binding {
                buffer: slab,
                offset_bytes: 0,
                size_bytes: 4,
            };
            is_lost(&driver.create_bind_group(pipeline, &[binding]))
        },
        |driver, slab, _| is_lost(&driver.map(At(slab, 0), MapMode::Read, 64)),
        |driver, _, _| is_lost(&driver.poll()),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        for adopted in [false, true] {
            let driver = if adopted {
                driver_without_immediates()
            } else {
                driver()
            };
            let slab = driver.new_buffer(BufferKind::Slab, 256);
            let pipeline = driver.add_kernel();
            let group = driver.whole(pipeline, slab, 256);
            driver.opened().guard.device.destroy();
            assert!(
                call(&driver, slab, pipeline),
                "call {number}, adopted {adopted}"
            );
            let told = if adopted {
                "no more calls"
            } else {
                "it was destroyed"
            };
            assert!(driver.lost().is_some_and(|reason| reason.contains(told)));
            all_is_lost(&driver, slab, pipeline, group);
        }
    }
}

#[test]
fn who_waits_for_a_lost_device_is_told() {
    for destroy in [true, false] {
        let driver = driver();
        let slab = driver.new_buffer(BufferKind::Slab, 16 << 20);
        let readback = driver.new_buffer(BufferKind::Readback, 16 << 20);
        let ops = [clear(slab, 0, 16 << 20), copy(slab, readback, 16 << 20)];
        let work = driver.submit(&ops, &[]).expect("a submission");
        let mapped = driver
            .map(At(readback, 0), MapMode::Read, 64)
            .expect("a mapping");
        if destroy {
            driver.opened().guard.device.destroy();
        } else {
            driver.declare_lost("the app's callback was called");
        }
        assert!(is_lost(&driver.poll()));
        // Work that the device finished before the loss counts as finished.
        assert!(work.done.outcome().is_some() && mapped.outcome().is_some());
        assert!(is_lost(&block_on(driver.wait(&mapped))));
        assert!(is_lost(&block_on(driver.wait(&work.done))));
        driver.destroy_buffer(readback);
    }
}

#[test]
fn a_declared_loss_reaches_who_waits_in_another_thread() {
    let driver = driver();
    // No callback will ever set this signal.
    let (never, notice) = driver.opened().guard.progress.mapping();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(driver.wait(&never)));
        std::thread::sleep(std::time::Duration::from_millis(20));
        driver.declare_lost("so it is said");
        driver.declare_lost("and said again");
        let told = waiting.join().expect("no panic");
        assert_eq!(told, Err(DriverError::Lost("so it is said".to_owned())));
    });
    drop(notice);
}

#[test]
fn a_device_that_was_gone_when_it_was_adopted_is_refused() {
    let (device, queue) = app_device();
    device.destroy();
    let adopted = WgpuDriver::adopt(None, &device, &queue, None);
    assert!(matches!(
        adopted,
        Err(crate::error::Error::DeviceLost { .. })
    ));
}
