//! Loaders: order, bounds, errors, and what is left when they end, on the adapter and, with the
//! feature, on the simulation.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use std::{io, thread};

use lapidary::loader::{Loader, LoaderOptions, PrepareError, Uploader};
use lapidary::{DType, Error, Gpu, Result, Tensor};

fn gpus() -> Vec<Gpu> {
    vec![
        super::gpu(),
        #[cfg(feature = "sim")]
        simulated().0,
    ]
}

#[cfg(feature = "sim")]
fn simulated() -> (Gpu, lapidary::sim::SimHandle) {
    Gpu::simulated(Default::default()).expect("these options can be")
}

fn options(threads: usize, batches_ahead: usize) -> LoaderOptions {
    LoaderOptions {
        threads,
        batches_ahead,
        ..Default::default()
    }
}

/// A tensor of 256 elements, all of them `number`.
fn filled(uploader: &Uploader<'_>, number: u32) -> Result<Tensor, PrepareError> {
    Ok(uploader.tensor(&[number; 256], &[256])?)
}

fn first_of(batch: &Tensor) -> u32 {
    batch.to_vec::<u32>().expect("it was uploaded")[0]
}

/// Waits for another thread.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} did not happen");
}

#[test]
fn batches_come_in_the_order_of_the_source_whatever_the_threads_do() {
    for gpu in gpus() {
        for (threads, ahead) in [(0, 1), (1, 1), (2, 5), (8, 16), (8, 3)] {
            let mut random = fastrand::Rng::with_seed(11);
            let source = (0..60).map(move |number| (number, random.u64(0..2000)));
            let prepare = |uploader: &Uploader<'_>, (number, pause)| {
                thread::sleep(Duration::from_micros(pause));
                filled(uploader, number)
            };
            let mut loader = gpu
                .loader(source, options(threads, ahead), prepare)
                .unwrap();
            let got: Result<Vec<u32>> = (&mut loader).map(|batch| Ok(first_of(&batch?))).collect();
            assert_eq!(got.unwrap(), Vec::from_iter(0..60), "{threads} {ahead}");
            let stats = loader.stats();
            assert!(loader.next().is_none());
            assert_eq!((stats.delivered, stats.failed), (60, 0));
            assert!(stats.batches_ahead.peak <= ahead as u64, "{stats}");
            assert_eq!(
                (stats.bytes_ahead.up, stats.bytes_ahead.now),
                (60 * 1024, 0)
            );
        }
    }
}

/// Counts how many of them live.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Alive(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn no_more_batches_are_alive_than_the_bound_allows() {
    for gpu in gpus() {
        let alive = Arc::new(AtomicUsize::new(0));
        let counted = alive.clone();
        let loader = gpu.loader(0..40, options(4, 6), move |uploader, number| {
            let alive = Alive::new(&counted);
            Ok((alive, filled(uploader, number)?))
        });
        for batch in loader.unwrap() {
            let _batch = batch.unwrap();
            assert!(alive.load(SeqCst) <= 7);
        }
        assert_eq!(alive.load(SeqCst), 0);
        // Without a loop that takes them, they stay at the bound. The drop frees all of them.
        let counted = alive.clone();
        let endless = gpu.loader(0.., options(4, 6), move |_, _: u64| {
            Ok(Alive::new(&counted))
        });
        let endless = endless.unwrap();
        wait_for("the bound", || alive.load(SeqCst) == 6);
        drop(endless);
        assert_eq!(alive.load(SeqCst), 0);
    }
}

#[test]
fn uploads_wait_for_room_in_the_bound_of_bytes() {
    for gpu in gpus() {
        let options = LoaderOptions {
            bytes_ahead: Some(3 * 1024),
            ..options(4, 16)
        };
        let mut loader = gpu.loader(0..30, options, filled).unwrap();
        wait_for("the bound", || loader.stats().bytes_ahead.now == 3 * 1024);
        let got: Vec<u32> = (&mut loader)
            .map(|batch| first_of(&batch.unwrap()))
            .collect();
        assert_eq!(got, Vec::from_iter(0..30));
        // The next batch may exceed the bound.
        assert!(
            loader.stats().bytes_ahead.peak <= 4 * 1024,
            "{}",
            loader.stats()
        );
        // No batch fits, and each is delivered nevertheless.
        let options = LoaderOptions {
            bytes_ahead: Some(10),
            ..options
        };
        let loader = gpu.loader(0..10, options, filled).unwrap();
        assert_eq!(loader.map(Result::unwrap).count(), 10);
        // A batch that waits for room ends with its loader.
        let mut loader = gpu.loader(0..10, options, filled).unwrap();
        loader.next().unwrap().unwrap();
        wait_for("the bound", || loader.stats().batches_ahead.now > 1);
    }
}

#[test]
fn an_error_or_a_panic_stands_in_the_place_of_its_batch() {
    let not_there = || io::Error::new(io::ErrorKind::NotFound, "no such image");
    for gpu in gpus() {
        for threads in [0, 1, 4] {
            let items = (0..8).map(move |number| match number {
                5 => Err(not_there()),
                number => Ok(number),
            });
            let mut loader = (gpu.loader(items, options(threads, 4), |uploader, item| {
                let number = item?;
                match number {
                    1 => panic!("a bad image"),
                    3 => Ok(uploader.tensor(&[0_u32; 3], &[4])?),
                    _ => filled(uploader, number),
                }
            }))
            .unwrap();
            for number in 0..8 {
                match (number, loader.next().unwrap()) {
                    (1 | 5, Err(Error::Loader { batch, cause })) => {
                        assert_eq!(batch, number);
                        let is_io = cause.downcast_ref::<io::Error>().is_some();
                        assert_eq!(is_io, number == 5);
                        let words = ["a bad image", "no such image"][usize::from(is_io)];
                        assert!(cause.to_string().contains(words), "{cause}");
                    }
                    (3, Err(Error::Length { .. })) => {}
                    (_, Ok(batch)) => assert_eq!(u64::from(first_of(&batch)), number),
                    (_, Err(error)) => panic!("{number}: {error}"),
                }
            }
            assert!(loader.next().is_none());
            assert_eq!((loader.stats().delivered, loader.stats().failed), (5, 3));
        }
    }
}

#[test]
fn a_source_that_panics_is_the_last_error() {
    for (gpu, threads) in gpus().into_iter().zip([3, 0]) {
        let items = (0..).inspect(|&number| assert!(number < 4, "torn"));
        let mut loader = gpu.loader(items, options(threads, 4), filled).unwrap();
        let good: Vec<u32> = loader
            .by_ref()
            .take(4)
            .map(|b| first_of(&b.unwrap()))
            .collect();
        assert_eq!(good, [0, 1, 2, 3]);
        let error = loader.next().unwrap().unwrap_err().to_string();
        assert!(
            error.contains("batch 4") && error.contains("torn"),
            "{error}"
        );
        assert!(loader.next().is_none());
        assert!(loader.next().is_none());
    }
}

#[test]
fn a_loader_that_is_dropped_early_leaves_nothing() {
    for gpu in gpus() {
        let live = |gpu: &Gpu| {
            gpu.finish().unwrap();
            let stats = gpu.memory().stats();
            (stats.live_bytes.now, stats.pending_bytes.now, stats.queued)
        };
        let before = live(&gpu);
        for taken in [0, 1, 5] {
            let loader = gpu.loader(0_u32.., options(3, 6), filled).unwrap();
            assert_eq!(loader.map(Result::unwrap).take(taken).count(), taken);
            assert_eq!(live(&gpu), before, "{taken} taken");
        }
        // The source waits for this thread, which drops the loader.
        let (sender, items) = mpsc::channel();
        sender.send(7).unwrap();
        let mut loader = gpu.loader(items, options(3, 6), filled).unwrap();
        assert_eq!(first_of(&loader.next().unwrap().unwrap()), 7);
        drop(loader);
        drop(sender);
        assert_eq!(live(&gpu), before);
    }
}

#[test]
fn waits_are_counted_and_only_those() {
    for gpu in gpus() {
        let mut all = gpu.loader(0..5, options(0, 2), filled).unwrap();
        assert_eq!(all.by_ref().map(Result::unwrap).count(), 5);
        assert_eq!(all.stats().waits, 5);
        // One thread has prepared all batches when it finds the end of the source.
        let asked = Arc::new(AtomicUsize::new(0));
        let (calls, mut items) = (asked.clone(), 0..3);
        let items = std::iter::from_fn(move || {
            calls.fetch_add(1, SeqCst);
            items.next()
        });
        let mut none = gpu.loader(items, options(1, 4), filled).unwrap();
        wait_for("the end", || asked.load(SeqCst) == 4);
        assert_eq!(none.by_ref().map(Result::unwrap).count(), 3);
        let stats = none.stats();
        assert_eq!((stats.waits, stats.device_waits), (0, 0), "{stats}");
        assert_eq!(stats.waited, Duration::ZERO);
    }
}

/// Losses of a small network, whose batches come from `batches`.
fn train(gpu: &Gpu, batches: impl Iterator<Item = Result<(Tensor, Tensor)>>) -> Vec<u32> {
    let w = gpu.rand_normal(&[16, 4], 0.0, 0.3, 1, DType::F32).unwrap();
    let w = w.requires_grad().unwrap();
    let mut losses = Vec::new();
    for batch in batches {
        let (x, labels) = batch.unwrap();
        let logits = x.matmul(&w).unwrap();
        let loss = logits.cross_entropy(&labels, None, Default::default());
        let loss = loss.unwrap();
        let gradients = loss.backward().unwrap();
        let _no_grad = gpu.no_grad();
        w.sub_(&(gradients.get(&w).unwrap() * 0.5).unwrap())
            .unwrap();
        losses.push(loss.detach());
    }
    let bits = |loss: &Tensor| loss.item::<f32>().unwrap().to_bits();
    losses.iter().map(bits).collect()
}

#[test]
fn a_training_is_the_same_with_and_without_a_loader() {
    let rows = |step: u64| {
        let mut random = fastrand::Rng::with_seed(step);
        let x: Vec<u8> = (0..8 * 16).map(|_| random.u8(..)).collect();
        let labels: Vec<u32> = (0..8).map(|_| random.u32(0..4)).collect();
        (x, labels)
    };
    for gpu in gpus() {
        let scaled = |x: Tensor| x.cast(DType::F32)? / 255.0;
        let by_hand = train(
            &gpu,
            (0..25).map(|step| {
                let (x, labels) = rows(step);
                let x = scaled(gpu.tensor(&x, &[8, 16])?)?;
                Ok((x, gpu.tensor(&labels, &[8])?))
            }),
        );
        for threads in [0, 1, 4] {
            let prepare = move |uploader: &Uploader<'_>, step| {
                let (x, labels) = rows(step);
                let x = uploader.upload_with(&[8, 16], |out| out.extend_from_slice(&x))?;
                Ok((scaled(x)?, uploader.tensor(&labels, &[8])?))
            };
            let loader = gpu.loader(0..25, options(threads, 6), prepare).unwrap();
            assert_eq!(train(&gpu, loader), by_hand, "{threads} threads");
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let gpu = super::gpu();
    for (wrong, name) in [
        (options(1, 0), "batches_ahead"),
        (options(5000, 1), "threads"),
    ] {
        let error = gpu.loader(0..1, wrong, filled).unwrap_err();
        let is_named = matches!(&error, Error::Option { option, .. } if *option == name);
        assert!(is_named, "{error}");
    }
}

/// The source of a tensor asks a loader for a batch while no call may wait.
#[test]
fn within_a_callback_of_the_gpu_nothing_waits() {
    for gpu in gpus() {
        let (sender, items) = mpsc::channel::<u32>();
        let loader = gpu.loader(items, options(1, 1), filled).unwrap();
        let loader: Arc<Mutex<Option<Loader<Tensor>>>> = Arc::new(Mutex::new(Some(loader)));
        let asked = loader.clone();
        let source = lapidary::Source::reader(move |_, bytes| {
            // The drop at the end waits for no thread.
            if let Some(mut loader) = asked.lock().unwrap().take() {
                let refused = loader.next().unwrap().unwrap_err();
                assert!(matches!(refused, Error::Reentered), "{refused}");
            }
            bytes.fill(1);
            Ok(())
        });
        let backed = gpu.backed(source, &[4], DType::U8).unwrap();
        assert_eq!(backed.to_vec::<u8>().unwrap(), [1; 4]);
        assert!(loader.lock().unwrap().is_none());
        drop(sender);
    }
}

#[cfg(feature = "sim")]
#[test]
fn the_recorded_work_runs_before_the_loop_waits() {
    let (gpu, _) = simulated();
    let queued = gpu.clone();
    let (sender, recorded) = mpsc::channel::<()>();
    let items = recorded.into_iter().take(3);
    let mut loader = gpu
        .loader(items, options(1, 1), move |uploader, ()| {
            wait_for("a flush", || queued.memory().stats().queued == 0);
            filled(uploader, 0)
        })
        .unwrap();
    let x = gpu.ones(&[8], DType::F32).unwrap();
    for _ in 0..3 {
        let _sum = (&x + &x).unwrap();
        assert!(gpu.memory().stats().queued > 0);
        sender.send(()).unwrap();
        loader.next().unwrap().unwrap();
    }
    assert_eq!(loader.stats().waits, 3);
    assert!(loader.stats().waited > Duration::ZERO);
}

#[cfg(feature = "sim")]
#[test]
fn a_lost_device_ends_the_loader() {
    for threads in [0, 1, 4] {
        let (gpu, sim) = simulated();
        let mut loader = gpu.loader(0.., options(threads, 4), filled).unwrap();
        loader.next().unwrap().unwrap();
        sim.lose("unplugged");
        let error = loader.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
        assert!(loader.next().is_none());
        assert!(gpu.loader(0.., options(threads, 4), filled).is_err());
        gpu.reopen().unwrap();
        let mut loader = gpu.loader(3.., options(threads, 4), filled).unwrap();
        assert_eq!(first_of(&loader.next().unwrap().unwrap()), 3);
    }
}
