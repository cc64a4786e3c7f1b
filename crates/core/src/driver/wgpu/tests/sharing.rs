//! A device of the app: its callbacks stay its own, and its buffers and commands can be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn the_apps_callbacks_never_hear_of_our_errors_and_hear_of_the_loss() {
    let (device, queue) = app_device();
    let (heard, lost) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (hears, loses) = (Arc::clone(&heard), Arc::clone(&lost));
    device.on_uncaptured_error(Arc::new(move |_| {
        hears.fetch_add(1, Ordering::SeqCst);
    }));
    device.set_device_lost_callback(move |_, _| {
        loses.fetch_add(1, Ordering::SeqCst);
    });
    let driver = WgpuDriver::adopt(None, &device, &queue, None).expect("a device");
    let pipeline = driver.add_kernel();
    let slab = driver.new_buffer(BufferKind::Slab, 256);
    let group = driver.whole(pipeline, slab, 256);
    let upload = driver.new_buffer(BufferKind::Upload, 256);

    assert!(is_invalid(&driver.submit(&[copy(slab, slab, 4)], &[])));
    assert!(is_invalid(&driver.submit(&[clear(slab, 1, 4)], &[])));
    assert!(is_invalid(&block_on(
        driver.create_pipeline(kernel("nonsense", &[]))
    )));
    assert!(is_invalid(&driver.map(At(upload, 0), MapMode::Read, 64)));
    let wrong = Binding {
        buffer: upload,
        offset_bytes: 3,
        size_bytes: 5,
    };
    assert!(is_invalid(&driver.create_bind_group(pipeline, &[wrong])));
    driver.unmap(slab);
    driver.works();
    assert_eq!(heard.load(Ordering::SeqCst), 0, "our errors");

    // The app's own mistakes still reach its handler.
    let _ = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::empty(),
        mapped_at_creation: false,
    });
    assert_eq!(heard.load(Ordering::SeqCst), 1, "the app's error");

    device.destroy();
    let params = [0; 16];
    let op = dispatch(pipeline, group, (0, 16));
    assert!(is_lost(&driver.submit(&[op], &params)));
    assert_eq!(
        lost.load(Ordering::SeqCst),
        1,
        "the app's callback for the loss"
    );
    assert_eq!(heard.load(Ordering::SeqCst), 1);
}

#[test]
fn the_apps_buffers_and_commands_go_along() {
    let (device, queue) = app_device();
    let driver = WgpuDriver::adopt(None, &device, &queue, None).expect("a device");
    let theirs = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 256,
        usage: wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    queue.write_buffer(&theirs, 0, &[1; 256]);
    let imported = driver.import_buffer(&theirs).expect("an id");
    assert_eq!(driver.lend_buffer(imported).as_ref(), Ok(&theirs));
    let slab = driver.new_buffer(BufferKind::Slab, 256);
    driver
        .submit(&[copy(imported, slab, 256)], &[])
        .expect("a submission");

    let mut encoder = device.create_command_encoder(&Default::default());
    let raw = driver.lend_buffer(slab).expect("a buffer");
    encoder.copy_buffer_to_buffer(&raw, 0, &theirs, 4, 4);
    encoder.clear_buffer(&raw, 0, Some(4));
    let submission = driver.submit_app(vec![encoder.finish()]);
    let submission = submission.expect("a submission");
    assert_eq!(submission.serial, 2);
    driver.finish(&submission);
    let one = 0x0101_0101;
    assert_eq!(driver.download(slab, 3), Ok(vec![0, one, one]));

    // Forgetting the id does not change the app's buffer.
    driver.destroy_buffer(imported);
    assert!(driver.lend_buffer(imported).is_err());
    let again = driver.import_buffer(&theirs).expect("an id");
    assert_eq!(driver.download(again, 64), Ok(vec![one; 64]));
}

#[test]
fn commands_of_the_app_that_are_wrong_are_refused() {
    let driver = driver();
    let slab = driver.new_buffer(BufferKind::Slab, 64);
    let upload = driver.new_buffer(BufferKind::Upload, 64);
    let mapped = driver
        .map(At(upload, 0), MapMode::Write, 64)
        .expect("a mapping");
    block_on(driver.wait(&mapped)).expect("mapped");
    let [from, to] = [upload, slab].map(|id| driver.lend_buffer(id).expect("a buffer"));
    let mut encoder = driver
        .opened()
        .guard
        .device
        .create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&from, 0, &to, 0, 64);
    assert!(is_invalid(&driver.submit_app(vec![encoder.finish()])));
    driver.works();
}

#[test]
fn the_app_may_be_told_of_the_loss_through_us() {
    let (device, queue) = app_device();
    let driver = WgpuDriver::adopt(None, &device, &queue, None).expect("a device");
    driver.watch_lost();
    device.destroy();
    let _ = device.poll(wgpu::PollType::Poll);
    assert_eq!(driver.lost().as_deref(), Some("it was destroyed"));
}
