//! Stores of the app as tiers of evicted tensors, on a simulated device: their order, failures and
//! losses. And random programs over stores that fail at random. With the feature `redis` also a
//! Redis server of this machine's own.

mod device;
mod lost;
mod order;
mod random;
#[cfg(feature = "redis")]
mod redis;
pub(crate) mod shaky;
mod slow;

use std::sync::Arc;
use std::time::Duration;

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::stores::StoreTier;
use lapidary::{Budget, Gpu, Options, Tensor};

use shaky::Shaky;

/// Elements of a tensor of 4 KiB.
pub(crate) const LEN: usize = 1024;

/// A store in memory has all the time it wants.
pub(crate) const PATIENT: Duration = Duration::from_secs(600);

/// A time-out that a stopped store exceeds, and a store in memory does not.
pub(crate) const SHORT: Duration = Duration::from_millis(200);

/// The device has room for 6 tensors, and the host for none.
pub(crate) fn budget() -> Budget {
    Budget {
        host_bytes: Some(0),
        ..Budget::device(32 << 10)
    }
}

pub(crate) fn open(stores: Vec<StoreTier>, budget: Budget) -> (Gpu, SimHandle) {
    open_on(false, stores, budget)
}

pub(crate) fn open_on(
    maps_slabs: bool,
    stores: Vec<StoreTier>,
    budget: Budget,
) -> (Gpu, SimHandle) {
    let device = SimOptions {
        max_buffer_bytes: 4 << 20,
        maps_slabs,
        dirty: true,
        checks_shaders: false,
        ..SimOptions::default()
    };
    let options = Options {
        budget: Some(budget),
        stores,
        ..Options::from_env().unwrap()
    };
    Gpu::simulated_with(device, options).expect("a device")
}

/// A store in memory as a tier with this time-out.
pub(crate) fn tier(name: &str, most_bytes: u64, timeout: Duration) -> (Arc<Shaky>, StoreTier) {
    let store = Arc::new(Shaky::default());
    let tier = StoreTier::new(name, store.clone(), most_bytes).timeout(timeout);
    (store, tier)
}

/// The numbers from `start` on.
pub(crate) fn numbers(start: u32) -> Vec<u32> {
    (start..start + LEN as u32).collect()
}

#[track_caller]
pub(crate) fn tensor(gpu: &Gpu, start: u32) -> Tensor {
    gpu.tensor(&numbers(start), &[LEN]).expect("the shape fits")
}

#[track_caller]
pub(crate) fn assert_holds(x: &Tensor, start: u32) {
    assert!(x.to_vec::<u32>().expect("it has a value") == numbers(start));
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never {what}");
}
