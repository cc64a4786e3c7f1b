//! Tensors that are evicted to an object store: a folder, or memory. The same code takes S3 and
//! the others that the crate `object_store` knows.
//!
//! ```text
//! cargo run --release -p objects -- /mnt/neighbour    # a folder, say of a network file system
//! cargo run --release -p objects                      # memory
//! ```
//!
//! The program adds up 64 tensors of 1 MiB within 16 MiB on the device. None are in the host's own
//! part or on its disk. So most of them go to the store and come back.

mod objects;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lapidary::stores::StoreTier;
use lapidary::{Budget, Gpu, Options, Residency, Tensor};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use objects::Objects;

const MIB: u64 = 1 << 20;
const TENSORS: u32 = 64;
const LEN: usize = 1 << 18;

/// A store that removes nothing for so long is left as it is.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let store: Arc<dyn ObjectStore> = match std::env::args().nth(1) {
        Some(folder) => {
            std::fs::create_dir_all(&folder)?;
            Arc::new(LocalFileSystem::new_with_prefix(folder)?)
        }
        None => Arc::new(InMemory::new()),
    };
    let left = Objects::new(store.clone());
    let gpu = Gpu::open(Options {
        budget: Some(Budget {
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(16 * MIB)
        }),
        stores: vec![StoreTier::new("objects", Objects::new(store), 256 * MIB)],
        ..Options::from_env()?
    })?;

    let tensors: Vec<Tensor> = (0..TENSORS)
        .map(|number| gpu.full(&[LEN], number, lapidary::DType::U32))
        .collect::<Result<_, _>>()?;
    let mut sum = tensors[0].clone();
    for tensor in &tensors[1..] {
        sum = sum.add(tensor)?;
    }
    let expected = TENSORS * (TENSORS - 1) / 2;
    if sum.to_vec::<u32>()? != vec![expected; LEN] {
        return Err("the sum is wrong".into());
    }
    let is_in_store = |tensor: &&Tensor| tensor.residency() == Residency::Store;
    let in_store = tensors.iter().filter(is_in_store).count();
    let stats = gpu.memory().stats();
    println!("{stats}");
    let store = &stats.stores[0];
    let written_mib = store.written_bytes / MIB;
    // What was dropped is removed in the background. A store that refuses that is asked again.
    drop((tensors, sum));
    gpu.finish()?;
    let begun = Instant::now();
    while gpu.memory().stats().store_bytes() > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    let left = left.count()?;
    println!("objects: in_store={in_store} written_mib={written_mib} left={left}");
    Ok(())
}
