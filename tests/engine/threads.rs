//! Many threads on one `Gpu`.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use lapidary::sim::SimOptions;
use lapidary::{DType, Error, Tensor};
use pollster::block_on;

use crate::engine::{ended, nothing_leaves, numbers, open, options};

/// Runs a test, and ends the process if it hangs.
pub(crate) fn watched(test: impl FnOnce()) {
    let (done, waiting) = channel::<()>();
    let name = std::thread::current()
        .name()
        .unwrap_or("a test")
        .to_string();
    std::thread::spawn(move || {
        let waited = waiting.recv_timeout(Duration::from_secs(300));
        if matches!(waited, Err(RecvTimeoutError::Timeout)) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    test();
    drop(done);
}

/// The repeated work of one thread, with its own numbers.
fn work(gpu: &lapidary::Gpu, thread: usize, round: usize) -> (Tensor, Vec<f32>) {
    let start = thread * 1000 + round;
    let x = gpu.tensor(&numbers(start, 500), &[500]).unwrap();
    let y = x.add(1).unwrap();
    let read = x.to_vec_async::<f32>();
    drop(x);
    let z = y.add(&y.flip(&[0]).unwrap()).unwrap();
    y.fill_(3).unwrap();
    assert_eq!(block_on(read).unwrap(), numbers(start, 500));
    drop(z.to_vec_async::<f32>());
    let expected = vec![(2 * start + 501) as f32; 500];
    assert_eq!(z.to_vec::<f32>().unwrap(), expected);
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.0; 500]);
    (z, expected)
}

#[test]
fn threads_compute_read_and_drop_on_one_gpu() {
    watched(|| {
        for maps_slabs in [false, true] {
            let (gpu, sim) = open(SimOptions {
                maps_slabs,
                jitter: true,
                ..options()
            });
            let (give, take) = channel::<(Tensor, Vec<f32>)>();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (gpu, give) = (gpu.clone(), give.clone());
                    scope.spawn(move || {
                        for round in 0..60 {
                            give.send(work(&gpu, thread, round)).unwrap();
                            match round % 20 {
                                5 => gpu.flush().unwrap(),
                                10 => drop(gpu.memory().trim(0).unwrap()),
                                15 => gpu.finish().unwrap(),
                                _ => drop(gpu.memory().stats()),
                            }
                        }
                    });
                }
                drop(give);
                // Tensors of other threads are read, changed and dropped here.
                for (tensor, expected) in take {
                    assert_eq!(tensor.to_vec::<f32>().unwrap(), expected);
                    tensor.add_(1).unwrap();
                }
            });
            ended(gpu, &sim);
        }
    });
}

#[test]
fn a_thread_without_room_is_no_other_threads_trouble() {
    watched(|| {
        let (gpu, sim) = open(SimOptions {
            memory_bytes: 15 << 20,
            max_binding_bytes: 128 << 20,
            ..options()
        });
        nothing_leaves(&gpu);
        let holder = gpu.zeros(&[8 << 20], DType::U8).unwrap();
        holder.force().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..60 {
                        let wish = gpu.full(&[8 << 20], 1, DType::U8).unwrap();
                        let part = wish.narrow(0, 9, 4).unwrap().copy().unwrap();
                        let refused = [wish.force(), part.to_vec::<u8>().map(drop)];
                        for refused in refused {
                            assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
                        }
                    }
                });
            }
            for thread in 0..2 {
                let gpu = gpu.clone();
                scope.spawn(move || (0..60).for_each(|round| drop(work(&gpu, thread, round))));
            }
        });
        drop(holder);
        ended(gpu, &sim);
    });
}

#[test]
fn tensors_and_reads_outlive_the_gpu_and_each_other() {
    watched(|| {
        let (gpu, sim) = open(options());
        let x = gpu.tensor(&numbers(0, 100), &[100]).unwrap();
        let y = x.neg().unwrap();
        let read = x.to_vec_async::<f32>();
        drop(gpu);
        drop(x);
        let other = std::thread::spawn(move || block_on(read).unwrap());
        assert_eq!(y.to_vec::<f32>().unwrap()[5], -5.0);
        assert_eq!(other.join().unwrap(), numbers(0, 100));
        drop(y);
        assert_eq!(sim.counters().buffers_live, 0);
        assert_eq!(sim.complaints(), [""; 0]);
    });
}

#[test]
fn a_device_lost_in_the_middle_ends_every_thread() {
    watched(|| {
        for lost_after in 1..8 {
            let (gpu, sim) = open(options());
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        loop {
                            let made = gpu.tensor(&numbers(0, 5000), &[5000]);
                            let read = made.and_then(|x| x.add(&x)?.to_vec::<f32>());
                            match read {
                                Ok(got) => assert_eq!(got[4999], 9998.0),
                                Err(Error::DeviceLost { .. }) => break,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    });
                }
                while sim.counters().submissions < lost_after * 7 {
                    std::thread::yield_now();
                }
                sim.lose("it was unplugged");
            });
            ended(gpu, &sim);
        }
    });
}
