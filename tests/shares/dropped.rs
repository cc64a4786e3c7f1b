//! A tensor is dropped while the engine looks for room, when nothing else can leave.

use std::sync::{Arc, Mutex};

use lapidary::interop::Pin;
use lapidary::shares::ShareOptions;
use lapidary::sim::SimOptions;
use lapidary::stores::{Key, Store, StoreFailure, StoreTier};
use lapidary::{Budget, DType, Gpu, Options, Tensor};

use super::{MIB, PATIENT};

/// What another thread drops at the next write to a store. It is pinned until then.
type Held = Arc<Mutex<Option<(Pin, Tensor)>>>;

/// A store that has no room for anything.
struct Full(Held);

impl Store for Full {
    fn write(&self, _: Key, _: &[u8]) -> Result<(), StoreFailure> {
        drop(self.0.lock().unwrap().take());
        Err(StoreFailure::Full)
    }

    fn read(&self, _: Key, _: &mut [u8]) -> Result<(), StoreFailure> {
        Err(StoreFailure::NotFound)
    }

    fn remove(&self, _: Key) -> Result<(), StoreFailure> {
        Ok(())
    }
}

fn beside(maps_slabs: bool) -> (Gpu, Held) {
    let (held, staging_bytes) = (Held::default(), 8 * MIB);
    let full = StoreTier::new("full", Full(held.clone()), 64 * MIB).timeout(PATIENT * 2);
    let options = Options {
        budget: Some(Budget {
            staging_bytes: Some(staging_bytes),
            host_bytes: Some(0),
            disk_bytes: Some(0),
            ..Budget::device(10 * MIB + staging_bytes)
        }),
        stores: vec![full],
        ..Options::from_env().unwrap()
    };
    let device = SimOptions {
        maps_slabs,
        ..SimOptions::default()
    };
    (Gpu::simulated_with(device, options).unwrap().0, held)
}

fn filled(gpu: &Gpu, mib: usize) -> Tensor {
    let tensor = gpu.full(&[mib << 18], 7, DType::I32).unwrap();
    tensor.force().unwrap();
    tensor
}

#[test]
fn what_is_dropped_meanwhile_makes_room() {
    for maps_slabs in [false, true] {
        for is_ceiling in [false, true] {
            let (gpu, held) = beside(maps_slabs);
            let gpu = match is_ceiling {
                true => gpu
                    .share("job", ShareOptions::guaranteed(0).with_ceiling(8 * MIB))
                    .unwrap()
                    .gpu()
                    .clone(),
                false => gpu,
            };
            let kept = filled(&gpu, 4);
            let dropped = filled(&gpu, 4);
            *held.lock().unwrap() = Some((dropped.pin().unwrap(), dropped));
            let late = filled(&gpu, 3);
            assert!(held.lock().unwrap().is_none(), "the store was asked");
            for tensor in [kept, late] {
                assert!(tensor.to_vec::<i32>().unwrap().iter().all(|one| *one == 7));
            }
        }
    }
}
