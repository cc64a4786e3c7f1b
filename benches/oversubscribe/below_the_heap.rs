//! Tensors that change in each pass, in a quarter of their bytes on the device, a quarter in the
//! heap, and a store for the rest.
//!
//! The reference is the time of the same passes without a budget, and of the store: the bytes that
//! it takes and gives, at its rate. Below 1 the store works while the device computes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lapidary::stores::{Key, Store, StoreFailure, StoreTier};
use lapidary::{Budget, DType, Gpu, Options, Result, Tensor};

const TENSORS: usize = 256;
/// Elements of a tensor, of 1 MiB.
const LEN: usize = 1 << 18;
const ALL_BYTES: u64 = (TENSORS * LEN * 4) as u64;
/// Kernels that change a tensor in a pass.
const CHANGES: usize = 8;
/// Passes after two that do not count.
const PASSES: u32 = 3;
const RUNS: usize = 3;
/// Bytes a second that the store takes or gives.
const STORE_BYTES_PER_S: f64 = 1e9;

pub(crate) fn tell() -> Result<()> {
    let free = passes(None)?.0;
    println!(
        "{TENSORS} tensors of 1 MiB that change, a quarter on the device and a quarter in the heap; \
         a store of 1 GB/s has the rest. A pass without a budget takes {:.0} ms",
        super::ms(free)
    );
    for _ in 0..RUNS {
        let (time, of_store, waits) = passes(Some(ALL_BYTES / 4))?;
        println!(
            "  {:.0} ms, and the store works for {:.0} ms: {:.2} x (kernels and store); {waits} \
             waits a pass",
            super::ms(time),
            super::ms(of_store),
            time.as_secs_f64() / (free + of_store).as_secs_f64()
        );
    }
    Ok(())
}

/// The time of a pass, that for which the store works, and the waits for memory.
fn passes(budget_bytes: Option<u64>) -> Result<(Duration, Duration, u64)> {
    let store = Arc::new(RatedStore::default());
    let gpu = Gpu::open(Options {
        host_heap: Some(true),
        budget: budget_bytes.map(|bytes| Budget {
            host_bytes: Some(bytes),
            disk_bytes: Some(0),
            ..Budget::device(bytes)
        }),
        stores: vec![StoreTier::new("rated", store.clone(), ALL_BYTES)],
        ..Options::from_env()?
    })?;
    let tensors = (0..TENSORS).map(|_| gpu.zeros(&[LEN], DType::F32));
    let tensors: Vec<Tensor> = tensors.collect::<Result<_>>()?;
    for _ in 0..2 {
        pass(&gpu, &tensors)?;
    }
    let (before, busy_before) = (gpu.memory().stats(), store.busy());
    let begun = Instant::now();
    for _ in 0..PASSES {
        pass(&gpu, &tensors)?;
    }
    let (time, busy) = (begun.elapsed(), store.busy() - busy_before);
    let waits = gpu.memory().stats().waits().total().times - before.waits().total().times;
    let expected = f32::from(u16::try_from((PASSES as usize + 2) * CHANGES).unwrap_or(u16::MAX));
    for tensor in [&tensors[0], &tensors[TENSORS - 1]] {
        assert_eq!(tensor.narrow(0, LEN - 1, 1)?.item::<f32>()?, expected);
    }
    Ok((time / PASSES, busy / PASSES, waits / u64::from(PASSES)))
}

fn pass(gpu: &Gpu, tensors: &[Tensor]) -> Result<()> {
    for tensor in tensors {
        for _ in 0..CHANGES {
            tensor.add_(1.0)?;
        }
    }
    gpu.finish()
}

/// A store that takes and gives bytes at its rate, to one caller at a time.
#[derive(Default)]
struct RatedStore(Mutex<Rated>);

#[derive(Default)]
struct Rated {
    values: HashMap<Key, Vec<u8>>,
    busy: Duration,
}

impl RatedStore {
    fn busy(&self) -> Duration {
        self.0.lock().expect("no caller panics").busy
    }

    /// Does `work` on this many bytes, in the time that they take.
    fn timed<T>(&self, bytes: usize, work: impl FnOnce(&mut Rated) -> T) -> T {
        let mut rated = self.0.lock().expect("no caller panics");
        let (begun, result) = (Instant::now(), work(&mut rated));
        let taken = Duration::from_secs_f64(bytes as f64 / STORE_BYTES_PER_S);
        thread::sleep(taken.saturating_sub(begun.elapsed()));
        rated.busy += taken;
        result
    }
}

impl Store for RatedStore {
    fn write(&self, key: Key, bytes: &[u8]) -> std::result::Result<(), StoreFailure> {
        self.timed(bytes.len(), |rated| rated.values.insert(key, bytes.into()));
        Ok(())
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> std::result::Result<(), StoreFailure> {
        self.timed(bytes.len(), |rated| {
            let value = rated.values.get(&key).ok_or(StoreFailure::NotFound)?;
            bytes.copy_from_slice(value);
            Ok(())
        })
    }

    fn remove(&self, key: Key) -> std::result::Result<(), StoreFailure> {
        self.timed(0, |rated| rated.values.remove(&key));
        Ok(())
    }
}
