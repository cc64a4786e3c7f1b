//! Work of a share with a higher priority, and work that is cancelled.

use std::sync::mpsc;
use std::thread;

use lapidary::shares::{Share, ShareOptions};
use lapidary::{Budget, Buffer, Error, Gpu, Residency, Result};

use super::{Gate, MIB, PATIENT, assert_filled, device, filled, with_budget};

/// Handles of a device, a frame and a job.
fn handles() -> (Gpu, Share, Share) {
    let gpu = device(64 * MIB);
    let frame = ShareOptions::guaranteed(MIB).with_priority(1);
    let job = ShareOptions::guaranteed(0).with_priority(-1);
    let [frame, job] =
        [("frame", frame), ("job", job)].map(|(name, share)| gpu.share(name, share).unwrap());
    (gpu, frame, job)
}

#[test]
fn work_of_a_higher_priority_runs_first_and_leaves_the_rest() {
    let (gpu, frame, job) = handles();
    let middle = gpu.share("middle", ShareOptions::guaranteed(0)).unwrap();
    let of_job: Vec<_> = (0..20).map(|_| job.buffer_zeroed(4096).unwrap()).collect();
    let of_device = middle.buffer_zeroed(4096).unwrap();
    let of_frame = frame.buffer_zeroed(4096).unwrap();
    let is_made = |buffer: &Buffer| buffer.residency() == Residency::Device;
    frame.flush().unwrap();
    assert_eq!((is_made(&of_frame), is_made(&of_device)), (true, false));
    assert!(!of_job.iter().any(is_made));
    middle.flush().unwrap();
    assert!(is_made(&of_device) && !of_job.iter().any(is_made));
    assert_eq!(gpu.memory().stats().queued, 20);
    // The device's handle runs everything, also what has no other handle any more.
    gpu.flush().unwrap();
    assert!(of_job.iter().all(is_made));
    // Within a share the order is that of the calls.
    let counted = frame.buffer_zeroed(4).unwrap();
    for number in 1..=20_u32 {
        job.buffer_zeroed(16).unwrap();
        counted.write(&[number]).unwrap();
    }
    assert_eq!(counted.to_vec::<u32>().unwrap(), [20]);
    let [of_frame, of_job] = [frame, job].map(|gpu| gpu.memory().share_use().unwrap().priority);
    assert_eq!((of_frame, of_job), (1, -1));
}

#[test]
fn work_does_not_pass_what_it_depends_on() {
    let (_gpu, frame, job) = handles();
    let words: Vec<u32> = (0..1000).collect();
    let source = job.buffer_from(&words).unwrap();
    let double = source.copy().unwrap();
    // The copy is in the job's order, and what the frame does with it comes after it.
    let there = double.to(&frame).unwrap();
    let again = there.copy().unwrap();
    there.slice(0..4).unwrap().write(&[77_u32]).unwrap();
    let other = frame.buffer_from(&[5_u32]).unwrap();
    frame.flush().unwrap();
    assert_eq!(other.to_vec::<u32>().unwrap(), [5]);
    assert_eq!(again.to_vec::<u32>().unwrap(), words);
    assert_eq!(there.to_vec::<u32>().unwrap()[..2], [77, 1]);
    // Back to the job: what the frame queued before is in it.
    let back = there.to(&job).unwrap();
    there.slice(0..4).unwrap().write(&[78_u32]).unwrap();
    frame.flush().unwrap();
    assert_eq!(back.to_vec::<u32>().unwrap()[..2], [77, 1]);
}

#[test]
fn copies_over_three_priorities_keep_their_order() {
    let (gpu, frame, job) = handles();
    let words: Vec<u32> = (0..1000).collect();
    let first = job.buffer_from(&words).unwrap();
    let second = first.to(&frame).unwrap();
    let third = second.to(&gpu).unwrap();
    assert_eq!(third.to_vec::<u32>().unwrap(), words);
    // A pass of the frame runs the copies that bring it values, before it pins or writes.
    let brought = first.copy().unwrap().to(&frame).unwrap();
    let pin = brought.pin().unwrap();
    drop(pin);
    assert_eq!(brought.to_vec::<u32>().unwrap(), words);
    let back = brought.to(&job).unwrap();
    brought.write(&vec![7_u32; 1000]).unwrap();
    frame.flush().unwrap();
    assert_eq!(back.to_vec::<u32>().unwrap(), words);
}

#[test]
fn the_middle_does_not_wait_for_the_lowest() {
    let (gpu, frame, job) = handles();
    let middle = gpu.share("middle", ShareOptions::guaranteed(0)).unwrap();
    let of_job: Vec<_> = (0..20).map(|_| job.buffer_zeroed(4096).unwrap()).collect();
    let of_middle = middle.buffer_zeroed(4096).unwrap();
    let of_frame = frame.buffer_zeroed(4096).unwrap();
    middle.flush().unwrap();
    let made = [&of_frame, &of_middle].map(|one| one.residency());
    assert_eq!(made, [Residency::Device; 2]);
    let waits = of_job
        .iter()
        .filter(|one| one.residency() == Residency::Pending);
    assert_eq!(waits.count(), 20);
}

#[test]
fn uploads_of_a_lower_priority_do_not_keep_the_staging() {
    let (gpu, frame, job) = handles();
    let words = vec![3_u32; MIB as usize / 4];
    let waiting: Vec<_> = (0..7).map(|_| job.buffer_from(&words).unwrap()).collect();
    for gpu in [&frame, &gpu] {
        let own: Vec<_> = (0..12).map(|_| gpu.buffer_from(&words).unwrap()).collect();
        assert_filled(&own, 3);
    }
    assert_filled(&waiting, 3);
}

#[test]
fn what_is_cancelled_does_not_run_and_others_do() {
    let (gpu, frame, job) = handles();
    let done = job.buffer_from(&[1_u32]).unwrap();
    done.force().unwrap();
    let inner = job.share("inner", ShareOptions::guaranteed(0)).unwrap();
    let queued = [&job, &inner].map(|gpu| gpu.buffer_zeroed(4096).unwrap());
    let other = frame.buffer_zeroed(4096).unwrap();
    let read = done.to_vec_async::<u32>();
    job.cancel().unwrap();
    for buffer in &queued {
        let error = buffer.force().unwrap_err();
        let Error::Poisoned { cause, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(**cause, Error::Share { .. }), "{error}");
        assert!(error.to_string().contains("cancelled"), "{error}");
    }
    assert!(pollster::block_on(read).is_err());
    let error = job.buffer_zeroed(16).unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    assert_eq!(other.to_vec::<u32>().unwrap(), [0; 1024]);
    drop((done, queued, inner, job));
    gpu.flush().unwrap();
    assert_eq!(gpu.memory().stats().shares.len(), 1);
}

type Call = fn(&Gpu, &Buffer) -> Result<()>;

#[test]
fn a_call_of_a_higher_priority_ends_before_the_pass_of_another_thread() {
    let calls: [(&str, Call); 3] = [
        ("a read", |_, buffer| {
            buffer.to_vec::<u32>().map(|words| assert_eq!(words, [5]))
        }),
        ("force", |_, buffer| buffer.force()),
        ("flush", |gpu, _| gpu.flush()),
    ];
    for (name, call) in calls {
        let (gpu, frame, job) = handles();
        let ((early, first), (late, second)) = (Gate::source(), Gate::source());
        let sources = [first, second];
        let backed = sources.map(|source| job.buffer_backed(source, 4096).unwrap());
        let copies = backed.each_ref().map(|one| one.copy().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| job.flush().unwrap());
            early.wait();
            let buffer = frame.buffer_from(&[5_u32]).unwrap();
            let (ends, is_over) = mpsc::channel();
            let queued = gpu.memory().stats().queued;
            let of_frame = &frame;
            scope.spawn(move || ends.send(call(of_frame, &buffer)).unwrap());
            // A read queues one more command.
            while name == "a read" && gpu.memory().stats().queued == queued {
                thread::yield_now();
            }
            early.open();
            late.wait();
            // The pass of the job goes on after the call.
            let ended = is_over.recv_timeout(PATIENT);
            late.open();
            ended.expect(name).unwrap();
        });
        assert_filled(&copies, 0x0101_0101);
    }
}

#[test]
fn reads_of_many_pieces_end_with_the_passes_of_other_threads() {
    let gpu = with_budget(Budget {
        staging_bytes: Some(MIB),
        ..Budget::device(16 * MIB)
    });
    let shares = (0..4).map(|priority| {
        let share = ShareOptions::guaranteed(0).with_priority(priority);
        gpu.share("share", share).unwrap()
    });
    let shares: Vec<Share> = shares.collect();
    thread::scope(|scope| {
        for (share, word) in shares.iter().zip(1..) {
            scope.spawn(move || {
                let buffers = [filled(share, 2 * MIB, word)];
                (0..50).for_each(|_| assert_filled(&buffers, word));
            });
        }
    });
}
