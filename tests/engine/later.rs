//! Sources whose bytes come later, as those that a server sends. A device with pauses awaits them,
//! as a browser does. On other devices a thread waits.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, DType, Error, Gpu, Residency, Source, Tensor};

use crate::engine::{ended, open, open_alone, options};

const MIB: u64 = 1 << 20;

/// The ranges that were asked for.
type Asked = Arc<Mutex<Vec<(u64, u64)>>>;

fn device(pauses: u32) -> (Gpu, SimHandle) {
    open(SimOptions {
        pauses,
        max_binding_bytes: 16 * MIB,
        ..options()
    })
}

/// Words that are their indices.
fn words(offset_bytes: u64, len_bytes: u64) -> Vec<u8> {
    let words = offset_bytes as u32 / 4..(offset_bytes + len_bytes) as u32 / 4;
    words.flat_map(u32::to_ne_bytes).collect()
}

/// A source of indices. Another thread answers.
fn server() -> (Source, Asked) {
    let asked = Asked::default();
    let told = asked.clone();
    let source = Source::reader_async(move |offset, len| {
        told.lock().unwrap().push((offset, len));
        let (send, sent) = channel();
        let (waker, waiting) = channel::<Waker>();
        thread::spawn(move || {
            let waker = waiting.recv();
            // A call that was given up has no waker.
            let _ = send.send(words(offset, len));
            waker.into_iter().for_each(Waker::wake);
        });
        poll_fn(move |context| match sent.try_recv() {
            Ok(bytes) => Poll::Ready(Ok(bytes)),
            Err(_) => {
                let _ = waker.send(context.waker().clone());
                match sent.try_recv() {
                    Ok(bytes) => Poll::Ready(Ok(bytes)),
                    Err(_) => Poll::Pending,
                }
            }
        })
    });
    (source, asked)
}

fn backed(gpu: &Gpu, source: Source, bytes: u64) -> Tensor {
    gpu.backed(source, &[bytes as usize / 4], DType::U32)
        .unwrap()
}

fn first(tensor: &Tensor) -> lapidary::Result<Vec<u32>> {
    tensor.narrow(0, 0, 8)?.add(1_u32)?.to_vec::<u32>()
}

#[test]
fn bytes_that_come_later_are_there_for_commands_and_reads() {
    for pauses in [0, 1] {
        let (gpu, sim) = device(pauses);
        let (source, asked) = server();
        let tensor = backed(&gpu, source, 9 * MIB);
        let read = tensor.to_vec::<u32>().unwrap();
        assert!(read.iter().copied().eq(0..9 << 18));
        assert_eq!(tensor.residency(), Residency::Backed);
        asked.lock().unwrap().clear();
        let added = tensor.add(1_u32).unwrap().to_vec::<u32>().unwrap();
        assert!(added.iter().copied().eq(1..=9 << 18));
        assert_eq!(tensor.residency(), Residency::Device);
        let mut asked = asked.lock().unwrap().clone();
        asked.sort_unstable();
        let all: u64 = asked.iter().map(|(_, len)| len).sum();
        assert_eq!((asked[0].0, all), (0, 9 * MIB), "{asked:?}");
        if pauses > 0 {
            assert_eq!(asked.len(), 3, "{asked:?}");
        }
        drop(tensor);
        ended(gpu, &sim);
    }
}

#[test]
fn what_was_dropped_under_pressure_is_asked_for_again() {
    for pauses in [0, 1] {
        let (gpu, sim) = open_alone(SimOptions {
            pauses,
            max_binding_bytes: 16 * MIB,
            ..options()
        });
        let budget = Budget {
            staging_bytes: Some(4 * MIB),
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(9 * MIB)
        };
        gpu.memory().set_budget(budget).unwrap();
        let (sources, asked): (Vec<_>, Vec<_>) = (0..6).map(|_| server()).unzip();
        let weights: Vec<Tensor> = sources
            .into_iter()
            .map(|source| backed(&gpu, source, MIB))
            .collect();
        for _ in 0..3 {
            for weight in &weights {
                assert_eq!(first(weight).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
            }
        }
        let times = asked.iter().map(|asked| asked.lock().unwrap().len());
        assert!(times.sum::<usize>() > weights.len(), "none was dropped");
        let stats = gpu.memory().stats();
        assert!(stats.dropped_to_source_bytes > 0);
        assert_eq!(stats.dropped_bytes, stats.dropped_to_source_bytes);
        drop(weights);
        ended(gpu, &sim);
    }
}

#[test]
fn rows_are_asked_for_and_no_others() {
    for pauses in [0, 1] {
        let (gpu, sim) = device(pauses);
        let (source, asked) = server();
        let table = gpu.backed(source, &[512, 24], DType::U32).unwrap();
        let tokens = gpu.tensor(&[3_u32, 500], &[2]).unwrap();
        let rows = table.embedding(&tokens).unwrap().to_vec::<u32>().unwrap();
        assert!(rows.iter().copied().eq((72..96).chain(12_000..12_024)));
        let mut asked = asked.lock().unwrap().clone();
        asked.sort_unstable();
        assert_eq!(asked, [(288, 96), (48_000, 96)]);
        drop((table, tokens));
        ended(gpu, &sim);
    }
}

/// A source that answers as `answer` does, the first time.
fn fails_once(
    answer: impl Fn(&Gpu, u64) -> io::Result<Vec<u8>> + Send + Sync + 'static,
    gpu: &Gpu,
) -> Source {
    let (has_failed, answer) = (AtomicBool::new(false), Arc::new(answer));
    let weak = gpu.clone();
    Source::reader_async(move |offset, len| {
        let fails = !has_failed.swap(true, Ordering::Relaxed);
        let (answer, gpu) = (answer.clone(), weak.clone());
        async move {
            match fails {
                true => answer(&gpu, len),
                false => Ok(words(offset, len)),
            }
        }
    })
}

#[test]
fn a_failure_is_an_error_and_the_next_call_asks_again() {
    type Answer = fn(&Gpu, u64) -> io::Result<Vec<u8>>;
    let answers: [(Answer, &str); 5] = [
        (|_, _| Err(io::Error::other("status 503")), "status 503"),
        (
            |_, len| Ok(vec![0; len as usize - 1]),
            "gave 4095 bytes instead of 4096",
        ),
        (
            |_, len| Ok(vec![0; len as usize + 4]),
            "gave 4100 bytes instead of 4096",
        ),
        (|_, _| panic!("on purpose"), "the source panicked"),
        (
            |gpu, _| Err(io::Error::other(gpu.flush().unwrap_err())),
            "a callback of this Gpu",
        ),
    ];
    for (answer, says) in answers {
        for pauses in [0, 1] {
            let (gpu, sim) = device(pauses);
            let tensor = backed(&gpu, fails_once(answer, &gpu), 4096);
            let error = first(&tensor).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Source {
                        offset_bytes: 0,
                        ..
                    }
                ),
                "{error}"
            );
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(first(&tensor).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
            drop(tensor);
            gpu.finish().unwrap();
            ended(gpu, &sim);
        }
    }
}

#[test]
fn a_pass_that_waits_for_a_source_goes_on_when_its_future_was_dropped() {
    let (gpu, sim) = device(1);
    let (is_there, polls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (there, polled) = (is_there.clone(), polls.clone());
    let source = Source::reader_async(move |offset, len| {
        let (there, polled) = (there.clone(), polled.clone());
        poll_fn(move |context| {
            polled.fetch_add(1, Ordering::Relaxed);
            context.waker().wake_by_ref();
            match there.load(Ordering::Relaxed) {
                true => Poll::Ready(Ok(words(offset, len))),
                false => Poll::Pending,
            }
        })
    });
    let tensor = backed(&gpu, source, 4096);
    let sum = tensor.add(1_u32).unwrap();
    {
        let mut forced = pin!(sum.force_async());
        let mut context = Context::from_waker(Waker::noop());
        while polls.load(Ordering::Relaxed) < 3 {
            assert!(forced.as_mut().poll(&mut context).is_pending());
        }
    }
    is_there.store(true, Ordering::Relaxed);
    assert!(sum.to_vec::<u32>().unwrap().iter().copied().eq(1..=1024));
    drop((tensor, sum));
    ended(gpu, &sim);
}
