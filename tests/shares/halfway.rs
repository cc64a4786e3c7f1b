//! Work of a higher priority runs in the middle of the move of one large tensor for a lower
//! command. The move goes on after that, or begins again if it is stale or lost its memory.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lapidary::sim::{Fault, FaultKind, Site};
use lapidary::{Advice, DType, Gpu, Residency, Source, Tensor};

use super::preparing::{beside_a_store, frame_and_job, the_frame_passes};
use super::{Gate, MIB, PATIENT, assert_filled, device_of, filled, with_handle};

/// The size of a large tensor. A part has 4 MiB on a device with 64 MiB.
const LARGE: u64 = 32 * MIB;

/// The reads of a source: the offset of each, in MiB.
type Reads = Arc<Mutex<Vec<u64>>>;

/// A source whose word number `n` is `n`. The engine stops at each gate before the first read at
/// its offset, in MiB, after it has stopped at the gates before. The source notes the reads.
fn source<const N: usize>(offsets: [u64; N]) -> (Source, [Gate; N], Reads) {
    let reads = Reads::default();
    let (noted, mut gates, mut stops) = (reads.clone(), Vec::new(), Vec::new());
    for offset in offsets {
        let (gate, stop) = Gate::new();
        gates.push(gate);
        stops.push((offset, stop));
    }
    stops.reverse();
    let stops = Mutex::new(stops);
    let source = Source::reader(move |offset, bytes| {
        noted.lock().unwrap().push(offset / MIB);
        let next = {
            let mut stops = stops.lock().unwrap();
            let is_here = stops.last().is_some_and(|(at, _)| at * MIB == offset);
            is_here.then(|| stops.pop()).flatten()
        };
        if let Some((_, stop)) = next {
            stop();
        }
        for (word, number) in bytes.chunks_exact_mut(4).zip(offset as u32 / 4..) {
            word.copy_from_slice(&number.to_le_bytes());
        }
        Ok(())
    });
    (source, gates.try_into().ok().unwrap(), reads)
}

fn large(gpu: &Gpu, source: Source) -> Tensor {
    gpu.backed(source, &[LARGE as usize / 4], DType::U32)
        .unwrap()
}

/// Brings the tensor to the device, and nothing else.
fn bring(gpu: &Gpu, tensor: &Tensor) {
    tensor.prefetch().unwrap();
    gpu.flush().unwrap();
}

/// Whether the tensor is on the device, with what its source gave.
fn assert_is_there(tensor: &Tensor) {
    assert_eq!(tensor.residency(), Residency::Device);
    let words = tensor.to_vec::<u32>().unwrap();
    assert!((0..).zip(&words).all(|(number, word)| number == *word));
}

/// How often this MiB of a tensor was read.
fn times_read(reads: &Reads, mib: u64) -> usize {
    let reads = reads.lock().unwrap();
    reads.iter().filter(|read| **read == mib).count()
}

#[test]
fn higher_work_passes_the_eviction_of_a_large_buffer() {
    for maps_slabs in [false, true] {
        let (frame, job, early, late, writes) = beside_a_store(64 * MIB, maps_slabs, [3, 30]);
        let held = [filled(&job, 48 * MIB, 7)];
        the_frame_passes(&frame, &early, &late, || {
            job.buffer_zeroed(24 * MIB).unwrap().force().unwrap();
        });
        assert_eq!(held[0].residency(), Residency::Store);
        assert_filled(&held, 7);
        // What had left before the frame came has not left again.
        assert_eq!(writes.load(Ordering::Relaxed), 48);
    }
}

#[test]
fn a_write_to_a_tensor_that_has_left_halfway_stays() {
    for maps_slabs in [false, true] {
        let (frame, job, early, late, writes) = beside_a_store(64 * MIB, maps_slabs, [3, 30]);
        let own = filled(&frame, 40 * MIB, 7);
        thread::scope(|scope| {
            let of_job = scope.spawn(|| {
                let made = job.buffer_zeroed(40 * MIB).unwrap();
                made.force().map(|()| made)
            });
            early.wait();
            let (ends, is_over) = mpsc::channel();
            let part = own.slice(0..4096).unwrap();
            part.write(&[9_u32; 1024]).unwrap();
            let of_frame = frame.clone();
            scope.spawn(move || {
                of_frame.flush().unwrap();
                ends.send(()).unwrap();
            });
            early.open();
            late.wait();
            let ended = is_over.recv_timeout(PATIENT);
            late.open();
            ended.expect("the frame is done before the job goes on");
            let made = of_job.join().unwrap().unwrap();
            assert!(made.to_vec::<u32>().unwrap().iter().all(|word| *word == 0));
        });
        let words = own.to_vec::<u32>().unwrap();
        let (written, others) = words.split_at(1024);
        assert!(written.iter().all(|word| *word == 9));
        assert!(others.iter().all(|word| *word == 7));
        assert!(writes.load(Ordering::Relaxed) > 40);
    }
}

#[test]
fn higher_work_passes_the_restore_of_a_large_operand() {
    for maps_slabs in [false, true] {
        let gpu = device_of(64 * MIB, maps_slabs);
        let (frame, job) = frame_and_job(&gpu);
        let (source, [early, late], reads) = source([6, 20]);
        let made = large(&job, source);
        the_frame_passes(&frame, &early, &late, || bring(&job, &made));
        assert_is_there(&made);
        // No part has come twice.
        let once: Vec<_> = (0..LARGE / MIB).collect();
        assert_eq!(*reads.lock().unwrap(), once);
    }
}

#[test]
fn a_read_ends_amid_the_move_of_a_large_tensor() {
    for maps_slabs in [false, true] {
        let gpu = device_of(64 * MIB, maps_slabs);
        let (frame, job) = frame_and_job(&gpu);
        let own = filled(&frame, 4096, 5);
        let (source, [early, late], _) = source([4, 20]);
        let tensor = large(&job, source);
        thread::scope(|scope| {
            let of_job = scope.spawn(|| bring(&job, &tensor));
            early.wait();
            let (ends, is_over) = mpsc::channel();
            scope.spawn(move || ends.send(own.to_vec::<u32>()).unwrap());
            // The read waits for the pass now, or soon.
            thread::sleep(Duration::from_millis(50));
            early.open();
            late.wait();
            let read = is_over.recv_timeout(PATIENT);
            late.open();
            of_job.join().unwrap();
            let read = read.expect("the read ends before the move goes on");
            assert_eq!(read.unwrap(), [5; 1024]);
        });
        assert_is_there(&tensor);
    }
}

#[test]
fn higher_work_takes_the_block_of_a_restore_that_was_left() {
    for maps_slabs in [false, true] {
        let gpu = device_of(64 * MIB, maps_slabs);
        let (frame, job) = frame_and_job(&gpu);
        let (source, [early, late, last], reads) = source([6, 20, 30]);
        let made = large(&job, source);
        thread::scope(|scope| {
            let of_job = scope.spawn(|| bring(&job, &made));
            early.wait();
            let buffer = frame.buffer_zeroed(48 * MIB).unwrap();
            let (ends, is_over) = mpsc::channel();
            let of_frame = frame.clone();
            scope.spawn(move || {
                let forced = of_frame.flush().map(|()| buffer.residency());
                drop(buffer);
                ends.send(forced).unwrap();
            });
            early.open();
            let ended = is_over.recv_timeout(PATIENT);
            let residency = ended.expect("the frame is done").unwrap();
            assert_eq!(residency, Residency::Device);
            late.wait();
            // Now the restore is not left again, whoever comes.
            let small = frame.buffer_from(&[5_u32]).unwrap();
            late.open();
            last.wait();
            assert_eq!(small.residency(), Residency::Pending);
            last.open();
            of_job.join().unwrap();
        });
        assert_is_there(&made);
        assert_eq!([0, 20, 31].map(|mib| times_read(&reads, mib)), [2, 1, 1]);
    }
}

#[test]
fn a_restore_ends_however_often_higher_work_takes_its_memory() {
    for maps_slabs in [false, true] {
        let gpu = device_of(64 * MIB, maps_slabs);
        let (frame, job) = frame_and_job(&gpu);
        let (source, [], reads) = source([]);
        let made = large(&job, source);
        thread::scope(|scope| {
            scope.spawn(|| bring(&job, &made));
            // Each takes the memory of the restore.
            let begun = Instant::now();
            while times_read(&reads, LARGE / MIB - 1) == 0 {
                assert!(begun.elapsed() < PATIENT);
                let buffer = frame.buffer_zeroed(48 * MIB).unwrap();
                buffer.force().unwrap();
                drop(buffer);
                thread::sleep(Duration::from_millis(2));
            }
        });
        bring(&job, &made);
        assert_is_there(&made);
    }
}

#[test]
fn a_refused_part_of_a_restore_comes_again() {
    let (gpu, sim) = with_handle(64 * MIB, false);
    let (frame, job) = frame_and_job(&gpu);
    let (source, [before, early, late], reads) = source([6, 14, 18]);
    let made = large(&job, source);
    thread::scope(|scope| {
        scope.spawn(move || {
            before.wait();
            sim.arm(Fault::once(Site::Submit, 1, FaultKind::OutOfMemory));
            before.open();
        });
        the_frame_passes(&frame, &early, &late, || bring(&job, &made));
    });
    assert_is_there(&made);
    assert_eq!(
        [0, 14, 18, 31].map(|mib| times_read(&reads, mib)),
        [2, 2, 1, 1]
    );
}

#[test]
fn a_restore_that_nobody_wants_any_more_leaves_no_block() {
    for maps_slabs in [false, true] {
        let gpu = device_of(64 * MIB, maps_slabs);
        let (frame, job) = frame_and_job(&gpu);
        let (source, [early], reads) = source([6]);
        let made = large(&job, source);
        thread::scope(|scope| {
            scope.spawn(|| (&made + 1)?.force());
            early.wait();
            let small = frame.buffer_from(&[5_u32]).unwrap();
            job.cancel().unwrap();
            early.open();
            assert_eq!(small.to_vec::<u32>().unwrap(), [5]);
        });
        gpu.finish().unwrap();
        // Of the next part, only a little was read ahead.
        assert_eq!(times_read(&reads, 12), 0);
        gpu.memory().trim(0).unwrap();
        assert_eq!(gpu.memory().stats().reserved_bytes.now, 0);
    }
}

#[test]
fn a_command_that_failed_may_have_taken_the_block_of_a_restore() {
    for maps_slabs in [false, true] {
        let (gpu, sim) = with_handle(64 * MIB, maps_slabs);
        let (frame, job) = frame_and_job(&gpu);
        // There is no room for both while the job has half of a restore. Later the job gives up
        // what it has itself, which is clean and used less.
        let other = job.full(&[4 << 20], 3, DType::I32).unwrap();
        other.evict().unwrap();
        bring(&job, &other);
        let own = frame.full(&[6 << 20], 7, DType::I32).unwrap();
        own.evict().unwrap();
        own.advise(Advice::Soon);
        let (source, [early, late], _) = source([6, 20]);
        let made = large(&job, source);
        thread::scope(|scope| {
            let of_job = scope.spawn(|| bring(&job, &made));
            early.wait();
            let sum = own.sum_all().unwrap();
            // Its operand comes back, and then its kernel does not compile.
            sim.arm(Fault::once(Site::CreatePipeline, 1, FaultKind::Invalid));
            scope.spawn(|| frame.flush().unwrap());
            early.open();
            late.wait();
            late.open();
            of_job.join().unwrap();
            sum.to_vec::<i32>().unwrap_err();
        });
        assert!(own.to_vec::<i32>().unwrap().iter().all(|word| *word == 7));
        bring(&job, &made);
        assert_is_there(&made);
    }
}
