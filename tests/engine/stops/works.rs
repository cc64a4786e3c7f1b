//! The works that are stopped.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use lapidary::shares::ShareOptions;
use lapidary::{DType, Gpu, Result, Source, Tensor};

use super::world::{KIB, LOWER, Rest, Setup, Stopped, Value, World, numbers};

/// The size of a large tensor: seven parts.
const LARGE: u64 = 448 * KIB;

pub(super) struct Work {
    pub(super) setup: Setup,
    pub(super) begin: fn(&World) -> Stopped,
}

impl Work {
    fn new(begin: fn(&World) -> Stopped) -> Work {
        let setup = Setup {
            has_no_host: false,
            has_store: false,
            never_move: false,
            most_urgent_bytes: u64::MAX,
        };
        Work { setup, begin }
    }

    fn with(begin: fn(&World) -> Stopped, change: impl FnOnce(&mut Setup)) -> Work {
        let mut work = Work::new(begin);
        change(&mut work.setup);
        work
    }
}

fn stopped(
    future: impl Future<Output = Result<()>> + 'static,
    held: Vec<Value>,
    made: Vec<Value>,
) -> Stopped {
    Stopped {
        future: Box::pin(future),
        held,
        made,
    }
}

fn zeros(gpu: &Gpu, bytes: u64) -> Value {
    let len = bytes as usize / 4;
    Value::new(gpu.zeros(&[len], DType::U32).unwrap(), vec![0; len])
}

/// A small result of a command that needs the whole operand.
fn part(operand: &Value) -> Value {
    let made = operand.tensor.narrow(0, 100, 300).unwrap().copy().unwrap();
    Value::new(made, operand.words[100..400].to_vec())
}

fn force(tensor: &Tensor) -> Rest {
    let tensor = tensor.clone();
    Box::pin(async move { tensor.force_async().await })
}

fn prefetch(gpu: &Gpu, tensor: &Tensor) -> Rest {
    tensor.prefetch().unwrap();
    let gpu = gpu.clone();
    Box::pin(async move { gpu.flush_async().await })
}

fn evicting(world: &World) -> Stopped {
    let held = vec![
        Value::settled(&world.job, 1, LARGE),
        Value::settled(&world.job, 7, 4 * KIB),
    ];
    let made = zeros(&world.job, 640 * KIB);
    stopped(force(&made.tensor), held, vec![made])
}

pub(super) fn an_eviction_to_the_host() -> Work {
    Work::new(evicting)
}

pub(super) fn an_eviction_to_the_disk() -> Work {
    Work::with(evicting, |setup| setup.has_no_host = true)
}

pub(super) fn an_eviction_to_a_store() -> Work {
    Work::with(evicting, |setup| setup.has_store = true)
}

pub(super) fn an_eviction_that_the_app_wants() -> Work {
    Work::new(|world| {
        let held = Value::settled(&world.job, 1, LARGE);
        let tensor = held.tensor.clone();
        let evict = async move { tensor.evict_async().await };
        stopped(evict, vec![held], vec![])
    })
}

fn restoring(world: &World) -> Stopped {
    let held = Value::settled(&world.job, 1, LARGE);
    held.tensor.evict().unwrap();
    stopped(prefetch(&world.job, &held.tensor), vec![held], vec![])
}

pub(super) fn a_restore() -> Work {
    Work::new(restoring)
}

pub(super) fn a_restore_from_the_disk() -> Work {
    Work::with(restoring, |setup| setup.has_no_host = true)
}

pub(super) fn a_restore_from_a_store() -> Work {
    Work::with(restoring, |setup| setup.has_store = true)
}

pub(super) fn a_restore_that_has_to_evict() -> Work {
    Work::new(|world| {
        let held = [Value::settled(&world.job, 1, LARGE)];
        held[0].tensor.evict().unwrap();
        let other = Value::settled(&world.job, 3, 768 * KIB);
        let made = part(&held[0]);
        let held = held.into_iter().chain([other]).collect();
        stopped(force(&made.tensor), held, vec![made])
    })
}

fn restoring_from(world: &World, source: impl Fn(Arc<[u8]>) -> Source) -> Stopped {
    static BYTES: OnceLock<Arc<[u8]>> = OnceLock::new();
    let words = numbers(0, LARGE);
    let bytes = || words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let source = source(BYTES.get_or_init(bytes).clone());
    let held = world.job.backed(source, &[words.len()], DType::U32);
    let held = Value::new(held.unwrap(), words);
    stopped(prefetch(&world.job, &held.tensor), vec![held], vec![])
}

pub(super) fn a_restore_from_a_source() -> Work {
    Work::new(|world| restoring_from(world, Source::bytes))
}

/// Each answer of the source is pending once.
fn asynchronous(bytes: Arc<[u8]>) -> Source {
    Source::reader_async(move |offset_bytes, len_bytes| {
        let (bytes, mut is_pending) = (bytes.clone(), true);
        poll_fn(move |context| {
            if std::mem::take(&mut is_pending) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let range = offset_bytes as usize..(offset_bytes + len_bytes) as usize;
            Poll::Ready(Ok(bytes[range].to_vec()))
        })
    })
}

pub(super) fn a_restore_from_an_asynchronous_source() -> Work {
    Work::new(|world| restoring_from(world, asynchronous))
}

/// Tensors with holes between them.
fn scattered(gpu: &Gpu) -> Vec<Value> {
    let all: Vec<_> = (0..16)
        .map(|start| Value::settled(gpu, start, 64 * KIB))
        .collect();
    gpu.finish().unwrap();
    all.into_iter().step_by(2).collect()
}

pub(super) fn a_compaction_for_a_command() -> Work {
    Work::new(|world| {
        let held = scattered(&world.job);
        let made = zeros(&world.job, 448 * KIB);
        stopped(force(&made.tensor), held, vec![made])
    })
}

pub(super) fn a_compaction_that_the_app_wants() -> Work {
    Work::new(|world| {
        let held = scattered(&world.job);
        let gpu = world.gpu.clone();
        let compact = async move { gpu.memory().compact_async(u64::MAX).await.map(drop) };
        stopped(compact, held, vec![])
    })
}

pub(super) fn a_recomputation() -> Work {
    Work::new(|world| {
        let input = Value::settled(&world.job, 1, LARGE);
        let computed = part(&input);
        let again = |inputs: &[Tensor]| inputs[0].narrow(0, 100, 300)?.copy();
        let inputs = [&input.tensor];
        computed.tensor.recompute_with(&inputs, again).unwrap();
        computed.tensor.evict().unwrap();
        input.tensor.evict().unwrap();
        let other = Value::settled(&world.job, 3, 768 * KIB);
        let made = computed.tensor.narrow(0, 5, 20).unwrap().copy().unwrap();
        let made = Value::new(made, computed.words[5..25].to_vec());
        stopped(
            force(&made.tensor),
            vec![input, computed, other],
            vec![made],
        )
    })
}

fn uploading(world: &World, is_evicted: bool) -> Stopped {
    let before = Value::settled(&world.job, 1, LARGE);
    if is_evicted {
        before.tensor.evict().unwrap();
    }
    let tensor = before.tensor.clone();
    let words = numbers(6, LARGE);
    let made = Value {
        words: words.clone(),
        before: Some(before.words),
        ..before
    };
    let write = async move { tensor.write_async(&words).await };
    stopped(write, vec![], vec![made])
}

pub(super) fn an_upload() -> Work {
    Work::new(|world| uploading(world, false))
}

pub(super) fn an_upload_to_an_evicted_tensor() -> Work {
    Work::new(|world| uploading(world, true))
}

pub(super) fn a_drain_to_a_ceiling() -> Work {
    Work::new(|world| {
        let held = [1, 2, 3].map(|start| Value::settled(&world.job, start, 256 * KIB));
        let job = world.job.clone();
        let drain = async move {
            let lower = ShareOptions::guaranteed(0)
                .with_ceiling(256 * KIB)
                .with_priority(-1);
            job.resize_async(lower).await.map(drop)
        };
        stopped(drain, held.into(), vec![])
    })
}

pub(super) fn a_drain_to_a_budget() -> Work {
    Work::new(|world| {
        let held = [1, 2, 3].map(|start| Value::settled(&world.job, start, 320 * KIB));
        let gpu = world.gpu.clone();
        let drain = async move {
            let before = gpu.memory().budget();
            let lower = World::budget_of(before, LOWER);
            gpu.memory().set_budget_async(lower).await?;
            gpu.memory().set_budget_async(before).await.map(drop)
        };
        stopped(drain, held.into(), vec![])
    })
}

fn reading(world: &World, is_evicted: bool) -> Stopped {
    let held = Value::settled(&world.job, 1, LARGE);
    if is_evicted {
        held.tensor.evict().unwrap();
    }
    let (read, words) = (held.tensor.to_vec_async::<u32>(), held.words.clone());
    let read = async move {
        let read = read.await?;
        assert!(read == words, "a wrong value is read");
        Ok(())
    };
    stopped(read, vec![held], vec![])
}

pub(super) fn a_read() -> Work {
    Work::new(|world| reading(world, false))
}

pub(super) fn a_read_of_an_evicted_tensor() -> Work {
    Work::new(|world| reading(world, true))
}

pub(super) fn rows_of_an_evicted_table() -> Work {
    Work::new(|world| {
        const WIDTH: usize = 128;
        let table = Value::settled(&world.job, 1, LARGE);
        table.tensor.evict().unwrap();
        let named = [5_u32, 800, 0, 77];
        let tokens = world.job.tensor(&named, &[named.len()]).unwrap();
        tokens.force().unwrap();
        let rows = table
            .tensor
            .view_as(&[table.words.len() / WIDTH, WIDTH])
            .unwrap();
        let made = rows.index_select(0, &tokens).unwrap();
        let words = named.iter().flat_map(|&row| {
            let start = row as usize * WIDTH;
            table.words[start..start + WIDTH].to_vec()
        });
        let made = Value::new(made, words.collect());
        let tokens = Value::new(tokens, named.to_vec());
        stopped(force(&made.tensor), vec![table, tokens], vec![made])
    })
}

pub(super) fn a_pin() -> Work {
    let begin = |world: &World| {
        let held = Value::settled(&world.job, 1, LARGE);
        held.tensor.evict().unwrap();
        let other = Value::settled(&world.job, 3, 768 * KIB);
        let tensor = held.tensor.clone();
        let pin = async move { tensor.pin_async().await.map(drop) };
        stopped(pin, vec![held, other], vec![])
    };
    Work::with(begin, |setup| setup.most_urgent_bytes = 256 * KIB)
}

/// Its operand lies in the middle of the only slab, where nothing moves.
pub(super) fn a_repack() -> Work {
    let begin = |world: &World| {
        let before = Value::settled(&world.job, 1, 256 * KIB);
        let operand = Value::settled(&world.job, 2, LARGE);
        drop(before);
        world.gpu.finish().unwrap();
        let made = operand.tensor.copy().unwrap();
        let made = Value::new(made, operand.words.clone());
        stopped(force(&made.tensor), vec![operand], vec![made])
    };
    Work::with(begin, |setup| setup.never_move = true)
}
