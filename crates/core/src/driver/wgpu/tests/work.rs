//! The driver does the requested work, in order.

use super::*;

#[test]
fn what_was_uploaded_comes_back_and_new_buffers_are_zero() {
    let driver = driver();
    let slab = driver.new_buffer(BufferKind::Slab, 1024);
    let upload = driver.upload(&(1..=128).collect::<Vec<_>>());
    driver
        .submit(&[copy(upload, slab, 512)], &[])
        .expect("a submission");
    let mut expected = (1..=128).collect::<Vec<_>>();
    expected.resize(256, 0);
    assert_eq!(driver.download(slab, 256), Ok(expected));
}

#[test]
fn kernels_see_their_parameters_as_immediates_and_as_uniforms() {
    let immediates = driver();
    assert_eq!(immediates.caps().max_immediate_bytes, 128);
    immediates.works();
    driver_without_immediates().works();
}

#[test]
fn more_dispatches_than_a_page_has_slots_each_see_their_own_parameters() {
    let driver = driver_without_immediates();
    let pipeline = driver.add_kernel();
    let slab = driver.new_buffer(BufferKind::Slab, 256);
    let group = driver.whole(pipeline, slab, 256);
    // Adds 1, 2, 3, … to the elements in turn, modulo 64.
    let mut params = Vec::new();
    let mut ops = Vec::new();
    let mut expected = vec![0_u32; 64];
    let slots = 256 * 1024 / driver.caps().uniform_alignment_bytes.max(16) as u32;
    for index in 0..slots + 10 {
        let count = index % 64 + 1;
        ops.push(dispatch(pipeline, group, (params.len() as u32 * 4, 16)));
        params.extend([index, count, 0, 0]);
        for value in &mut expected[..count as usize] {
            *value = value.wrapping_add(index);
        }
    }
    let bytes = bytemuck::cast_slice(&params);
    let first = driver.submit(&ops, bytes).expect("a submission");
    let second = driver.submit(&ops, bytes).expect("a submission");
    assert_eq!((first.serial, second.serial), (1, 2));
    expected.iter_mut().for_each(|value| *value *= 2);
    assert_eq!(driver.download(slab, 64), Ok(expected));
}

#[test]
fn ops_and_submissions_take_effect_in_order() {
    let driver = driver();
    let pipeline = driver.add_kernel();
    let [a, b] = [0; 2].map(|_| driver.new_buffer(BufferKind::Slab, 256));
    let [of_a, of_b] = [a, b].map(|slab| driver.whole(pipeline, slab, 256));
    let params = bytemuck::cast_slice(&[1_u32, 64, 0, 0, 10, 64, 0, 0]);
    let (one, ten) = ((0, 16), (16, 16));
    let ops = [
        dispatch(pipeline, of_a, one),
        dispatch(pipeline, of_a, ten),
        copy(a, b, 256),
        dispatch(pipeline, of_b, ten),
        clear(a, 0, 128),
        dispatch(pipeline, of_a, one),
    ];
    let first = driver.submit(&ops, params).expect("a submission");
    let second = driver
        .submit(&[dispatch(pipeline, of_b, one)], params)
        .expect("a submission");
    driver.finish(&second);
    assert_eq!(first.done.outcome(), Some(true));
    assert_eq!(driver.download(b, 64), Ok(vec![22; 64]));
    let expected = [vec![1; 32], vec![12; 32]].concat();
    assert_eq!(driver.download(a, 64), Ok(expected));
}

#[test]
fn serials_count_up_and_completion_covers_all_before() {
    let driver = driver();
    let slab = driver.new_buffer(BufferKind::Slab, 4096);
    let submissions = (0..5)
        .map(|_| {
            driver
                .submit(&[clear(slab, 0, 4096)], &[])
                .expect("a submission")
        })
        .collect::<Vec<_>>();
    let serials = submissions.iter().map(|s| s.serial).collect::<Vec<_>>();
    assert_eq!(serials, [1, 2, 3, 4, 5]);
    assert!(driver.completed() <= 5);
    driver.finish(&submissions[2]);
    assert!(driver.completed() >= 3);
    driver.finish(&submissions[4]);
    assert_eq!(driver.completed(), 5);
    // A wait for finished work returns at once, and so does an empty submission.
    driver.finish(&submissions[0]);
    let empty = driver.submit(&[], &[]).expect("a submission");
    driver.finish(&empty);
    assert_eq!((empty.serial, driver.completed()), (6, 6));
}

#[test]
fn finished_work_is_noticed_by_polling_alone() {
    let driver = driver();
    let slab = driver.new_buffer(BufferKind::Slab, 4096);
    let work = driver
        .submit(&[clear(slab, 0, 4096)], &[])
        .expect("a submission");
    while work.done.outcome().is_none() {
        driver.poll().expect("a device");
        std::thread::yield_now();
    }
    assert_eq!(driver.completed(), 1);
}

/// wgpu sometimes refuses or panics when threads meet in its `poll`.
#[test]
fn threads_that_submit_wait_and_poll_at_once_do_not_disturb_each_other() {
    for driver in [driver(), driver_without_immediates()] {
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let driver = &driver;
                scope.spawn(move || {
                    for round in 0..20 {
                        let values = vec![thread * 100 + round; 16];
                        let upload = driver.upload(&values);
                        let slab = driver.new_buffer(BufferKind::Slab, 64);
                        driver
                            .submit(&[copy(upload, slab, 64)], &[])
                            .expect("a submission");
                        assert_eq!(driver.download(slab, 16), Ok(values));
                        driver.destroy_buffer(slab);
                        driver.destroy_buffer(upload);
                    }
                });
            }
        });
        assert_eq!(driver.completed(), 160);
    }
}

#[test]
fn a_mapping_may_be_taken_back_while_another_thread_polls() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let driver = driver();
    let slab = driver.new_buffer(BufferKind::Slab, 64);
    let upload = driver.new_buffer(BufferKind::Upload, 64);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                driver.poll().expect("a device");
            }
        });
        for round in 0..2000 {
            let mapped = driver.map(At(upload, 0), MapMode::Write, 64);
            driver.unmap(upload);
            let result = driver.submit(&[copy(upload, slab, 64)], &[]);
            let result = result.and(mapped).map(|_| ());
            over.store(result.is_err() || round == 1999, Ordering::Relaxed);
            assert_eq!(result, Ok(()), "round {round}");
        }
    });
    driver.works();
}

#[test]
fn slabs_are_mapped_where_host_and_device_share_memory() {
    let driver = driver();
    if !driver.caps().maps_slabs {
        eprintln!("not run: the device has memory of its own");
        return;
    }
    let slab = driver.new_buffer(BufferKind::Slab, 64);
    for mode in [MapMode::Write, MapMode::Read] {
        let mapped = driver.map(At(slab, 16), mode, 16).expect("a mapping");
        block_on(driver.wait(&mapped)).expect("mapped");
        if mode == MapMode::Write {
            // Neither end of the written range is aligned.
            driver
                .write_mapped(At(slab, 17), &[1, 2, 3])
                .expect("written");
        } else {
            let mut seen = Vec::new();
            let mut look = |bytes: &[u8]| seen = bytes.to_vec();
            driver
                .read_mapped(At(slab, 16), 8, &mut look)
                .expect("read");
            assert_eq!(seen, [0, 1, 2, 3, 0, 0, 0, 0]);
        }
        driver.unmap(slab);
    }
    driver.works();
}

#[test]
fn memory_of_destroyed_buffers_returns_to_the_system() {
    let driver = driver();
    let Some(before) = driver.driver_reserved_bytes() else {
        eprintln!("not run: wgpu reports no memory on this device");
        return;
    };
    let pipeline = driver.add_kernel();
    let slabs = (0..4)
        .map(|_| driver.new_buffer(BufferKind::Slab, 16 << 20))
        .collect::<Vec<_>>();
    for slab in &slabs {
        driver.whole(pipeline, *slab, 16 << 20);
    }
    let during = driver.driver_reserved_bytes().unwrap_or(0);
    assert!(during >= before + (64 << 20), "{before} {during}");
    let clears = slabs.iter().map(|slab| clear(*slab, 0, 1 << 20));
    let work = driver
        .submit(&clears.collect::<Vec<_>>(), &[])
        .expect("a submission");
    // Bind groups that name a slab do not keep its memory.
    slabs
        .into_iter()
        .for_each(|slab| driver.destroy_buffer(slab));
    driver.finish(&work);
    driver.poll().expect("a device");
    let after = driver.driver_reserved_bytes().unwrap_or(u64::MAX);
    assert!(after <= before + (4 << 20), "{before} {during} {after}");
}

/// Every native backend reports a budget; whether it counts the use depends on the driver.
#[test]
fn the_operating_system_tells_what_we_may_use() {
    for destroyed in [false, true] {
        let driver = driver();
        let Some(before) = driver.os_budget() else {
            panic!("{} does not tell", driver.caps().backend);
        };
        assert!(before.budget_bytes > 0);
        let size_bytes = 64 << 20;
        let slab = driver.new_buffer(BufferKind::Slab, size_bytes);
        let work = driver.submit(&[clear(slab, 0, size_bytes)], &[]);
        driver.finish(&work.expect("a submission"));
        // A lost device answers by its former adapter.
        if destroyed {
            driver.opened().guard.device.destroy();
            assert!(is_lost(&driver.poll()));
        }
        let during = driver.os_budget().expect("it told before");
        assert_eq!(during.is_static, before.is_static);
        if during.is_static {
            assert_eq!(during, before);
        } else if !destroyed {
            assert!(during.used_bytes >= size_bytes, "{before:?} {during:?}");
        }
    }
}
