//! Futures dropped at every point where they wait, as a browser's user interface does.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lapidary::interop::Pin;
use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, DType, Gpu, Result, Source};

use crate::engine::threads::watched;
use crate::engine::{ended, numbers, open, open_alone, options};

/// Polls `times` times, then drops the future. Returns whether it ended.
fn poll_times<T>(future: impl Future<Output = Result<T>>, times: usize) -> bool {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).any(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(result) => {
            result.map(drop).unwrap();
            true
        }
        Poll::Pending => false,
    })
}

fn device(maps_slabs: bool) -> (Gpu, SimHandle) {
    open(SimOptions {
        pauses: 2,
        maps_slabs,
        max_immediate_bytes: 0,
        lag_submissions: u32::MAX,
        ..options()
    })
}

/// Starts `start`'s future on a new device with queued work, and drops it after 0, 1, 2, … polls
/// until it ends. After each drop it checks the device.
fn dropped_everywhere<T, F: Future<Output = Result<T>>>(
    start: impl Fn(&Gpu, &lapidary::Tensor) -> F,
) {
    for maps_slabs in [false, true] {
        for times in 0.. {
            let (gpu, sim) = device(maps_slabs);
            let x = gpu.tensor(&numbers(0, 20_000), &[20_000]).unwrap();
            let y = x.neg().unwrap().sum(&[0]).unwrap();
            let read = y.to_vec_async::<f32>();
            let ended_itself = poll_times(start(&gpu, &x), times);
            let late = y.to_vec_async::<f32>();
            assert_eq!(pollster::block_on(late).unwrap(), [-199_990_000.0]);
            assert_eq!(pollster::block_on(read).unwrap(), [-199_990_000.0]);
            x.write(&numbers(1, 20_000)).unwrap();
            assert!(x.to_vec::<f32>().unwrap() == numbers(1, 20_000));
            drop((x, y));
            ended(gpu, &sim);
            if ended_itself {
                assert!(times > 1, "it never waited");
                break;
            }
            assert!(times < 1000, "it never ends");
        }
    }
}

#[test]
fn a_read_may_be_dropped_wherever_it_waits() {
    watched(|| dropped_everywhere(|_, x| x.to_vec_async::<f32>()));
}

#[test]
fn a_flush_may_be_dropped_wherever_it_waits() {
    watched(|| {
        dropped_everywhere(|gpu, _| {
            let gpu = gpu.clone();
            async move { gpu.flush_async().await }
        });
    });
}

#[test]
fn a_wait_for_everything_may_be_dropped_wherever_it_waits() {
    watched(|| {
        dropped_everywhere(|gpu, _| {
            let gpu = gpu.clone();
            async move { gpu.finish_async().await }
        });
    });
}

#[test]
fn the_times_of_kernels_may_be_dropped_wherever_they_wait() {
    watched(|| {
        dropped_everywhere(|gpu, _| {
            let gpu = gpu.clone();
            async move { gpu.kernels().times_async().await }
        });
    });
}

#[test]
fn a_source_may_be_dropped_wherever_it_waits() {
    watched(|| {
        let bytes: Vec<u8> = numbers(0, 20_000)
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        dropped_everywhere(|_, x| {
            let (x, source) = (x.clone(), Source::bytes(bytes.clone().into()));
            async move { x.backed_by_async(source).await }
        });
    });
}

#[test]
fn forcing_may_be_dropped_wherever_it_waits() {
    watched(|| {
        dropped_everywhere(|_, x| {
            let y = x.mul(x);
            async move { y?.force_async().await }
        });
    });
}

#[test]
fn several_reads_dropped_in_turn_leave_no_staging_behind() {
    watched(|| {
        let (gpu, sim) = device(true);
        let x = gpu.tensor(&numbers(0, 100), &[100]).unwrap();
        for times in (0..12).cycle().take(300) {
            let read = x.to_vec_async::<f32>();
            let other = x.to_vec_async::<f32>();
            poll_times(read, times);
            poll_times(other, times / 2);
            gpu.poll().unwrap();
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 100));
        let memory = gpu.memory().stats();
        assert!(memory.readback_bytes.now <= 64 << 10, "{memory}");
        drop(x);
        ended(gpu, &sim);
    });
}

#[test]
fn a_pass_that_was_dropped_out_of_memory_is_tried_again() {
    watched(|| {
        for times in 0..40 {
            let (gpu, sim) = open_alone(SimOptions {
                pauses: 1,
                memory_bytes: 15 << 20,
                ..options()
            });
            let holder = gpu.zeros(&[8 << 20], DType::U8).unwrap();
            holder.force().unwrap();
            let wish = gpu.zeros(&[8 << 20], DType::U8).unwrap();
            let mut force = Box::pin(wish.force_async());
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..times {
                if force.as_mut().poll(&mut context).is_ready() {
                    break;
                }
            }
            drop(force);
            drop(holder);
            wish.force().unwrap();
            drop(wish);
            ended(gpu, &sim);
        }
    });
}

/// Starts `start`'s future on a new device with queued work, polls it 0, 1, 2, … times, and keeps
/// it while other work goes on.
fn kept_everywhere<T, F: Future<Output = Result<T>>>(start: impl Fn(&Gpu, &lapidary::Tensor) -> F) {
    for maps_slabs in [false, true] {
        for times in 0.. {
            let (gpu, sim) = device(maps_slabs);
            let x = gpu.tensor(&numbers(0, 20_000), &[20_000]).unwrap();
            let y = x.neg().unwrap().sum(&[0]).unwrap();
            let mut kept = Box::pin(start(&gpu, &x));
            let mut context = Context::from_waker(Waker::noop());
            let has_ended = (0..times).any(|_| kept.as_mut().poll(&mut context).is_ready());
            assert_eq!(y.to_vec::<f32>().unwrap(), [-199_990_000.0]);
            gpu.finish().unwrap();
            let z = x.mul(&x).unwrap();
            z.force().unwrap();
            if !has_ended {
                pollster::block_on(kept).map(drop).unwrap();
            }
            drop((x, y, z));
            ended(gpu, &sim);
            if has_ended {
                assert!(times > 1, "it never waited");
                break;
            }
            assert!(times < 1000, "it never ends");
        }
    }
}

#[test]
fn a_read_that_is_kept_unpolled_keeps_nobody_waiting() {
    watched(|| kept_everywhere(|_, x| x.to_vec_async::<f32>()));
}

#[test]
fn a_flush_that_is_kept_unpolled_keeps_nobody_waiting() {
    watched(|| {
        kept_everywhere(|gpu, _| {
            let gpu = gpu.clone();
            async move { gpu.flush_async().await }
        });
    });
}

#[test]
fn a_call_that_compacts_and_is_kept_unpolled_keeps_nobody_waiting() {
    watched(|| {
        kept_everywhere(|gpu, x| {
            let (gpu, x) = (gpu.clone(), x.clone());
            async move {
                x.force_async().await?;
                gpu.memory().compact_async(u64::MAX).await
            }
        });
    });
}

#[test]
fn what_moves_a_tensor_and_is_kept_unpolled_keeps_nobody_waiting() {
    watched(|| {
        kept_everywhere(|_, x| {
            let x = x.clone();
            async move { x.evict_async().await }
        });
        kept_everywhere(|_, x| {
            let x = x.clone();
            async move {
                x.evict_async().await?;
                x.pin_async().await
            }
        });
        kept_everywhere(|gpu, x| {
            let (gpu, x) = (gpu.clone(), x.clone());
            async move {
                x.force_async().await?;
                gpu.memory()
                    .set_budget_async(Budget::device(256 << 10))
                    .await?;
                gpu.memory().set_budget_async(Budget::default()).await
            }
        });
    });
}

/// Pins tensors until the slabs have no hole for another one.
fn filled(gpu: &Gpu) -> Vec<Pin> {
    let pin = || gpu.zeros(&[4096], DType::F32)?.pin();
    std::iter::from_fn(|| pin().ok()).collect()
}

/// Uploads of many chunks, with memory for two chunks.
#[test]
fn an_upload_that_is_kept_unpolled_keeps_no_other_waiting() {
    const ELEMENTS: usize = 200_000;
    watched(|| {
        for times in 0.. {
            let (gpu, sim) = device(false);
            gpu.memory().set_budget(Budget::device(1700 << 10)).unwrap();
            let [x, y] = [(); 2].map(|()| gpu.zeros(&[ELEMENTS], DType::F32).unwrap());
            let pins = [&x, &y].map(|tensor| tensor.pin().unwrap());
            let fill = filled(&gpu);
            let (theirs, ours) = (numbers(1, ELEMENTS), numbers(2, ELEMENTS));
            let mut kept = Box::pin(x.write_async(&theirs));
            let mut context = Context::from_waker(Waker::noop());
            let has_ended = (0..times).any(|_| kept.as_mut().poll(&mut context).is_ready());
            y.write(&ours).unwrap();
            assert!(y.to_vec::<f32>().unwrap() == ours);
            if !has_ended {
                pollster::block_on(kept.as_mut()).unwrap();
            }
            drop(kept);
            assert!(x.to_vec::<f32>().unwrap() == theirs);
            drop((pins, fill, x, y));
            ended(gpu, &sim);
            if has_ended {
                assert!(times > 10, "it did not wait for more chunks");
                break;
            }
            assert!(times < 1000, "it never ends");
        }
    });
}

#[test]
fn a_reopening_that_is_kept_unpolled_is_finished_by_the_next() {
    watched(|| {
        for times in 1.. {
            let (gpu, sim) = open_alone(SimOptions {
                pauses: 2,
                max_immediate_bytes: 0,
                lag_submissions: u32::MAX,
                ..options()
            });
            let x = gpu.tensor(&numbers(0, 100), &[100]).unwrap();
            x.evict().unwrap();
            gpu.notify_lost("pulled out");
            let reopening = gpu.clone();
            let mut kept = Box::pin(async move { reopening.reopen_async().await });
            let mut context = Context::from_waker(Waker::noop());
            let has_ended = (0..times).any(|_| kept.as_mut().poll(&mut context).is_ready());
            let refused = gpu.reopen().unwrap_err();
            assert!(refused.to_string().contains("not lost"), "{refused}");
            assert_eq!(x.to_vec::<f32>().unwrap(), numbers(0, 100));
            if !has_ended {
                assert_eq!(pollster::block_on(kept.as_mut()).unwrap().kept, 1);
            }
            drop((x, kept));
            ended(gpu, &sim);
            if has_ended {
                assert!(times > 1, "it never waited");
                break;
            }
        }
    });
}

/// Eight threads with futures that are polled once and kept for a while.
#[test]
fn threads_finish_what_others_keep() {
    watched(|| {
        let (gpu, sim) = device(false);
        let x = gpu.tensor(&numbers(0, 1000), &[1000]).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let (gpu, x) = (&gpu, &x);
                scope.spawn(move || {
                    let mut context = Context::from_waker(Waker::noop());
                    let mut kept = Vec::new();
                    for round in 0..30_usize {
                        let y = x.add(round as f32).unwrap();
                        let mut read = Box::pin(y.to_vec_async::<f32>());
                        let is_ready = read.as_mut().poll(&mut context).is_ready();
                        if !is_ready && (thread + round) % 3 > 0 {
                            kept.push((round, read));
                        }
                        if round % 5 == thread % 5 {
                            gpu.flush().unwrap();
                            kept.truncate(kept.len() / 2);
                        }
                    }
                    for (round, read) in kept {
                        let first = pollster::block_on(read).unwrap()[0];
                        assert_eq!(first, numbers(0, 1)[0] + round as f32);
                    }
                });
            }
        });
        drop(x);
        ended(gpu, &sim);
    });
}
