//! A lost device is replaced: by one that the engine opens, or by one that the app passes.

use super::*;

fn reopen(driver: &WgpuDriver) -> DriverResult<()> {
    block_on(driver.reopen())
}

/// Loses the device: destroyed, or declared lost.
fn lose(driver: &WgpuDriver, destroy: bool) {
    if destroy {
        driver.opened().guard.device.destroy();
    } else {
        driver.declare_lost("for this test");
    }
}

/// Gives the driver a new device: its own, or another of the app.
fn renew(driver: &WgpuDriver) -> DriverResult<()> {
    if driver.request.is_some() {
        return reopen(driver);
    }
    let (device, queue) = app_device();
    driver.readopt(None, &device, &queue)
}

/// Our device, the app's, and the app's without immediates.
fn drivers() -> [WgpuDriver; 3] {
    let (device, queue) = app_device();
    let adopted = WgpuDriver::adopt(None, &device, &queue, None).expect("a device");
    [driver(), adopted, driver_without_immediates()]
}

#[test]
fn a_lost_device_is_replaced_by_one_that_works_again_and_again() {
    for destroy in [true, false] {
        for driver in drivers() {
            let caps = driver.caps().clone();
            for _ in 0..3 {
                driver.works();
                let created = driver.buffers_created();
                lose(&driver, destroy);
                assert_eq!(renew(&driver), Ok(()), "destroyed: {destroy}");
                assert_eq!(driver.lost(), None);
                assert_eq!(driver.poll(), Ok(()));
                assert!(driver.buffers_created() >= created);
            }
            driver.works();
            assert_eq!(*driver.caps(), caps);
        }
    }
}

#[test]
fn ids_of_the_lost_device_name_nothing_on_the_new_one() {
    for driver in drivers() {
        let slab = driver.new_buffer(BufferKind::Slab, 256);
        let pipeline = driver.add_kernel();
        let group = driver.whole(pipeline, slab, 256);
        lose(&driver, true);
        renew(&driver).expect("a device");
        let new = driver.new_buffer(BufferKind::Slab, 256);
        let kernel = driver.add_kernel();
        let bound = driver.whole(kernel, new, 256);
        assert!(slab != new && pipeline != kernel && group != bound);
        let binding = |buffer| Binding {
            buffer,
            offset_bytes: 0,
            size_bytes: 256,
        };
        let params = &[0; 16];
        for op in [
            clear(slab, 0, 4),
            copy(new, slab, 4),
            dispatch(pipeline, bound, (0, 16)),
            dispatch(kernel, group, (0, 16)),
        ] {
            assert!(is_invalid(&driver.submit(&[op], params)));
        }
        assert!(is_invalid(
            &driver.create_bind_group(kernel, &[binding(slab)])
        ));
        assert!(is_invalid(
            &driver.create_bind_group(pipeline, &[binding(new)])
        ));
        assert!(is_invalid(&driver.map(At(slab, 0), MapMode::Read, 64)));
        assert!(is_invalid(&driver.write_mapped(At(slab, 0), &[0; 4])));
        assert!(driver.lend_buffer(slab).is_err());
        driver.unmap(slab);
        driver.destroy_bind_group(group);
        driver.destroy_pipeline(pipeline);
        driver.destroy_buffer(slab);
        let op = dispatch(kernel, bound, (0, 16));
        driver.submit(&[op], params).expect("what is new is there");
        driver.works();
    }
}

#[test]
fn serials_go_on_and_what_the_lost_device_owed_has_failed() {
    for destroy in [true, false] {
        let driver = driver();
        let slab = driver.new_buffer(BufferKind::Slab, 16 << 20);
        let readback = driver.new_buffer(BufferKind::Readback, 16 << 20);
        let first = driver.submit(&[clear(slab, 0, 64)], &[]).expect("done");
        driver.finish(&first);
        let work = [clear(slab, 0, 16 << 20), copy(slab, readback, 16 << 20)];
        let owed = driver.submit(&work, &[]).expect("a submission");
        let mapped = driver
            .map(At(readback, 0), MapMode::Read, 64)
            .expect("a mapping");
        lose(&driver, destroy);
        reopen(&driver).expect("a device");
        assert_eq!((first.serial, owed.serial, driver.completed()), (1, 2, 2));
        // A destroyed device may still finish its work, which then counts as done.
        for signal in [&owed.done, &mapped] {
            let happened = signal.outcome().expect("nobody is left waiting");
            let waited = block_on(driver.wait(signal));
            assert!(happened == waited.is_ok() && (happened || is_lost(&waited)));
        }
        let slab = driver.new_buffer(BufferKind::Slab, 64);
        let next = driver.submit(&[clear(slab, 0, 64)], &[]).expect("work");
        assert_eq!(next.serial, 3);
        driver.finish(&next);
        assert_eq!(driver.completed(), 3);
    }
}

#[test]
fn only_what_is_lost_and_ours_is_reopened() {
    let ours = driver();
    let slab = ours.new_buffer(BufferKind::Slab, 64);
    assert!(is_invalid(&reopen(&ours)));
    let (device, queue) = app_device();
    assert!(is_invalid(&ours.readopt(None, &device, &queue)));
    assert_eq!(ours.download(slab, 16), Ok(vec![0; 16]));
    let theirs = WgpuDriver::adopt(None, &device, &queue, None).expect("a device");
    lose(&theirs, false);
    assert!(is_invalid(&reopen(&theirs)));
    assert!(is_lost(&theirs.poll()));
}

#[test]
fn a_device_of_the_apps_that_is_gone_or_lesser_changes_nothing() {
    let (device, queue) = app_device();
    let driver = WgpuDriver::adopt(None, &device, &queue, None).expect("a device");
    let (gone, gone_queue) = app_device();
    gone.destroy();
    assert!(is_lost(&driver.readopt(None, &gone, &gone_queue)));
    assert!(driver.lost().is_none());
    driver.works();

    let mut caps = driver.caps().clone();
    caps.max_groups += 1;
    caps.offset_alignment_bytes /= 2;
    let objects = (None, device, queue);
    let found = Found { objects, caps };
    let demanding = WgpuDriver::new(found, None, None).expect("a device");
    let Err(DriverError::Invalid(why)) = renew(&demanding) else {
        panic!("it was taken");
    };
    assert!(
        why.contains("max_groups") && why.contains("offset_alignment_bytes"),
        "{why}"
    );
    demanding.works();
}

#[test]
fn the_loss_of_the_new_device_is_noticed_too() {
    for destroy in [true, false] {
        let driver = driver();
        lose(&driver, destroy);
        reopen(&driver).expect("a device");
        lose(&driver, true);
        assert!(is_lost(&driver.poll()));
        assert_eq!(driver.lost().as_deref(), Some("it was destroyed"));
    }
}

/// Threads are in the middle of calls when the device is lost and replaced. They get results,
/// `Lost`, or `Invalid` for an old id. They neither hang nor reach a wrong object.
#[test]
fn threads_that_work_meanwhile_are_told_and_go_on() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let driver = driver();
    let over = AtomicBool::new(false);
    let work = || {
        while !over.load(Ordering::Acquire) {
            let passed = pass(&driver);
            assert_ne!(passed, Err(DriverError::OutOfMemory));
        }
        pass(&driver)
    };
    std::thread::scope(|scope| {
        let working = [(); 3].map(|()| scope.spawn(work));
        for round in 0..4 {
            std::thread::sleep(std::time::Duration::from_millis(15));
            lose(&driver, round % 2 == 0);
            reopen(&driver).expect("a device");
        }
        over.store(true, Ordering::Release);
        for thread in working {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
    });
    driver.works();
}

/// Clears a buffer and reads it back: the bytes are right, or the driver refuses.
fn pass(driver: &WgpuDriver) -> DriverResult<()> {
    let slab = block_on(driver.create_buffer(BufferKind::Slab, 64, "pass"))?;
    let read = (|| {
        let readback = block_on(driver.create_buffer(BufferKind::Readback, 64, "pass"))?;
        driver.submit(&[clear(slab, 0, 64), copy(slab, readback, 64)], &[])?;
        let mapped = driver.map(At(readback, 0), MapMode::Read, 64)?;
        block_on(driver.wait(&mapped))?;
        let mut sum = 1;
        driver.read_mapped(At(readback, 0), 64, &mut |bytes| {
            sum = bytes.iter().map(|&byte| u32::from(byte)).sum();
        })?;
        assert_eq!(sum, 0);
        driver.destroy_buffer(readback);
        Ok(())
    })();
    driver.destroy_buffer(slab);
    read
}
