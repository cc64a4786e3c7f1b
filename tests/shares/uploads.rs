//! Uploads that find no room in their share keep no other share from its own.

use lapidary::shares::ShareOptions;
use lapidary::{Budget, Buffer, DType, Error, Gpu, Residency};

use super::{MIB, assert_filled, device_of, filled, with_budget};

/// A device of 64 MiB with 8 MiB of staging. What is evicted has `host_bytes`.
fn device(host_bytes: u64) -> Gpu {
    with_budget(Budget {
        host_bytes: Some(host_bytes),
        disk_bytes: Some(0),
        staging_bytes: Some(8 * MIB),
        ..Budget::device(72 * MIB)
    })
}

/// Uploads buffers of 1 MiB until the call fails, and tries three times more. Returns the buffers
/// and the first error.
fn flood(gpu: &Gpu, word: u32) -> (Vec<Buffer>, Error) {
    let words = vec![word; MIB as usize / 4];
    let mut uploaded = Vec::new();
    loop {
        match gpu.buffer_from(&words) {
            Ok(buffer) => uploaded.push(buffer),
            Err(error) => {
                (0..3).for_each(|_| drop(gpu.buffer_from(&words).unwrap_err()));
                return (uploaded, error);
            }
        }
        assert!(uploaded.len() < 200, "the ceiling does not hold");
    }
}

/// How many of them have lost their upload. All others have their words.
fn lost(buffers: &[Buffer], word: u32) -> usize {
    let words = vec![word; MIB as usize / 4];
    let lost = buffers.iter().filter(|buffer| {
        let error = match buffer.to_vec::<u32>() {
            Ok(read) => {
                assert!(read == words, "{buffer}");
                return false;
            }
            Err(error) => error,
        };
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("found no room in the share `job`"), "{text}");
        assert!(text.contains("write them again"), "{text}");
        true
    });
    lost.count()
}

#[test]
fn a_share_at_its_ceiling_keeps_no_staging_from_others() {
    let gpu = device(0);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let other = gpu
        .share("other", ShareOptions::guaranteed(16 * MIB))
        .unwrap();
    let (mut of_job, error) = flood(&job, 1);
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert!(error.to_string().contains("its share `job`"), "{error}");
    assert!(of_job.len() > 10, "none waits: {}", of_job.len());
    let mut held = Vec::new();
    for round in 0..12 {
        held.push((filled(&gpu, MIB, 2), filled(&other, MIB, 3)));
        // It goes on meanwhile.
        if round % 4 == 0 {
            of_job.extend(flood(&job, 1).0);
        }
    }
    for (of_device, of_other) in held {
        assert_filled(&[of_device], 2);
        assert_filled(&[of_other], 3);
    }
    // What had room keeps its words, and so does what still waits.
    let waiting = of_job.split_off(10);
    assert_filled(&of_job, 1);
    drop(of_job);
    assert!(waiting.len() <= 10, "{}", waiting.len());
    let lost = lost(&waiting, 1);
    assert!((1..waiting.len()).contains(&lost), "{lost} lost theirs");
    assert_eq!(job.memory().share_use().unwrap().bytes.peak, 10 * MIB);
    // An upload gives a value to what has lost one.
    let words = vec![4_u32; MIB as usize / 4];
    for buffer in &waiting {
        buffer.write(&words).unwrap();
    }
    assert_filled(&waiting, 4);
}

#[test]
fn a_share_alone_at_its_ceiling_loses_no_upload() {
    let gpu = device(0);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let (mut buffers, _) = flood(&job, 1);
    while !buffers.is_empty() {
        let first: Vec<_> = buffers.drain(..buffers.len().min(10)).collect();
        assert_filled(&first, 1);
    }
}

#[test]
fn a_share_that_has_no_room_itself_takes_no_upload_from_another() {
    let gpu = device(0);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let [a, b] = ["job", "other"].map(|name| gpu.share(name, share).unwrap());
    let first: Vec<_> = (0..10).map(|_| filled(&b, MIB, 2)).collect();
    let (mut of_a, _) = flood(&a, 1);
    let error = b.buffer_from(&vec![2_u32; MIB as usize / 4]).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert!(error.to_string().contains("its share `other`"), "{error}");
    while !of_a.is_empty() {
        let next: Vec<_> = of_a.drain(..of_a.len().min(10)).collect();
        assert_eq!(lost(&next, 1), 0);
    }
    assert_filled(&first, 2);
}

#[test]
fn pinned_memory_at_a_ceiling_keeps_no_staging_from_who_evicts() {
    let gpu = device(100 * MIB);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let held: Vec<_> = (0..10).map(|_| filled(&job, MIB, 1)).collect();
    let pins = held.iter().map(Buffer::pin);
    let pins: Vec<_> = pins.collect::<lapidary::Result<_>>().unwrap();
    let (waiting, _) = flood(&job, 1);
    // More than there is room for on the device.
    let others: Vec<_> = (0..80).map(|_| filled(&gpu, MIB, 2)).collect();
    assert_filled(&others, 2);
    assert_filled(&held, 1);
    drop(pins);
    let lost = lost(&waiting, 1);
    assert!((1..waiting.len()).contains(&lost), "{lost}");
}

#[test]
fn what_came_before_a_lost_upload_sees_the_old_value() {
    let gpu = device(0);
    let share = ShareOptions::guaranteed(0).with_ceiling(10 * MIB);
    let job = gpu.share("job", share).unwrap();
    let large = filled(&job, 6 * MIB, 5);
    let len = MIB as usize / 4;
    let x = job.full(&[1, len], 6, DType::F32).unwrap();
    // Has no room yet. So no write to its operand may run, though that is on the device.
    let wide = x.broadcast_to(&[8, len]).unwrap().copy().unwrap();
    let error = wide.force().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let words = vec![7.0_f32; len];
    while x.write(&words).is_ok() {}
    let others: Vec<_> = (0..9).map(|_| filled(&gpu, MIB, 2)).collect();
    assert_filled(&others, 2);
    drop(large);
    assert!(wide.to_vec::<f32>().unwrap() == vec![6.0; 8 * len]);
    let error = x.to_vec::<f32>().unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    drop(wide);
    x.write(&words).unwrap();
    assert!(x.to_vec::<f32>().unwrap() == words);
}

#[test]
fn thousands_of_commands_without_room_do_not_slow_others_down() {
    let gpu = device(0);
    let share = ShareOptions::guaranteed(0).with_ceiling(2 * MIB);
    let [job, other] = ["job", "other"].map(|name| gpu.share(name, share).unwrap());
    let waiting: Vec<_> = (0..3000)
        .map(|_| job.buffer_zeroed(64 << 10).unwrap())
        .collect();
    job.flush().unwrap();
    let tries = || {
        let steps = gpu.memory().stats().reclaim_steps;
        steps.iter().map(|step| step.tries).sum::<u64>()
    };
    let before = tries();
    for _ in 0..5 {
        let buffer = other.buffer_from(&[1_u32; 4]).unwrap();
        assert_eq!(buffer.to_vec::<u32>().unwrap(), [1; 4]);
    }
    // Each pass tries again, but looks for victims for the first of them only.
    let tries = tries() - before;
    assert!((1..100).contains(&tries), "{tries}");
    let error = waiting[2999].force().unwrap_err();
    assert!(error.to_string().contains(file!()), "{error}");
    drop(waiting);
    assert_eq!(job.memory().share_use().unwrap().bytes.peak, 2 * MIB);
}

#[test]
fn parts_of_buffers_and_mapped_slabs_are_no_exception() {
    for maps_slabs in [false, true] {
        let gpu = device_of(64 * MIB, maps_slabs);
        let share = ShareOptions::guaranteed(0).with_ceiling(MIB);
        let job = gpu.share("job", share).unwrap();
        let held = filled(&job, MIB, 1);
        let pin = held.pin().unwrap();
        let words = vec![1_u32; 100_000];
        let mut waiting = Vec::new();
        loop {
            let buffer = job.buffer(MIB / 2).unwrap();
            let part = buffer.slice(4000..404_000).unwrap();
            if part.write(&words).is_err() {
                break;
            }
            waiting.push(buffer);
        }
        let x = gpu.zeros(&[100], DType::F32).unwrap();
        let others: Vec<_> = (0..20).map(|_| filled(&gpu, MIB, 2)).collect();
        assert_filled(&others, 2);
        assert_eq!(x.to_vec::<f32>().unwrap(), [0.0; 100]);
        drop(pin);
        assert_eq!(held.residency(), Residency::Device);
        assert_filled(&[held], 1);
    }
}
