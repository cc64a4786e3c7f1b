//! Random programs over two stores that fail at random, with the disk behind them. No byte is
//! wrong, nothing exceeds its limit, and tensors lose their value only by what a store has lost.

use std::sync::Arc;
use std::time::Duration;

use lapidary::stores::StoreTier;
use lapidary::{Budget, Residency};

use super::shaky::{Chances, Shaky};
use super::{PATIENT, eventually, open_on};
use crate::programs::{self, Dice, Program};
use crate::random::world::{Rules, World};

const HOST_BYTES: u64 = 12 << 10;
const STORE_BYTES: [u64; 2] = [40 << 10, 64 << 10];
const DISK_BYTES: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 48 << 10;

/// A rest is five of these, so that stores come back within a program.
const TIMEOUT: Duration = Duration::from_millis(4);

const RULES: Rules = Rules {
    column: 2,
    values_of_24: 1,
    held: 40,
    // 8 KiB.
    elements: 2048,
    is_short: false,
    has_stores: true,
    leaves: true,
    pins: false,
    alone: true,
    trouble: None,
};

/// What may happen to the stores of a program.
#[derive(Clone, Copy, Debug)]
enum Weather {
    Fair,
    /// Calls fail, but no value is lost.
    Failing,
    /// Values are lost and changed, too.
    Losing,
}

fn chances(rng: &mut Dice, weather: Weather) -> Chances {
    let mut up_to = |most: u32| rng.u32(..=most);
    let failing = Chances {
        full: up_to(60),
        gone: up_to(100),
        times_out: up_to(30),
        other: up_to(60),
        panics: up_to(10),
        ..Chances::default()
    };
    match weather {
        Weather::Fair => Chances::default(),
        Weather::Failing => failing,
        Weather::Losing => Chances {
            loses: up_to(40),
            flips: up_to(40),
            ..failing
        },
    }
}

fn check_limits(world: &World, stores: &[Arc<Shaky>]) {
    let stats = world.gpu.memory().stats();
    assert!(stats.host_bytes.peak <= HOST_BYTES);
    assert!(stats.device_bytes.peak <= DEVICE_BYTES);
    assert!(stats.disk_bytes.peak <= DISK_BYTES);
    for (store, (used, most_bytes)) in stores.iter().zip(stats.stores.iter().zip(STORE_BYTES)) {
        assert!(used.bytes.peak <= most_bytes);
        assert!(store.lock().peak_bytes <= used.bytes.peak);
    }
}

fn run(program: &Program) {
    let mut rng = program.dice(0);
    let weather = match program.seed % 3 {
        0 => Weather::Failing,
        1 => Weather::Losing,
        _ => Weather::Fair,
    };
    // Without failures, a store that is slow because this machine is must not rest.
    let timeout = match weather {
        Weather::Fair => PATIENT,
        _ => TIMEOUT,
    };
    let stores = [(); 2].map(|()| Arc::new(Shaky::default()));
    let tiers = (stores.iter().zip(STORE_BYTES)).map(|(store, most_bytes)| {
        StoreTier::new("shaky", store.clone(), most_bytes).timeout(timeout)
    });
    let budget = Budget {
        host_bytes: Some(HOST_BYTES),
        disk_bytes: Some(DISK_BYTES),
        ..Budget::device(DEVICE_BYTES)
    };
    let (gpu, sim) = open_on(rng.bool(), tiers.collect(), budget);
    for store in &stores {
        let chances = chances(&mut rng, weather);
        store.shake(rng.u64(..), chances);
    }
    let mut world = World::on(program, gpu.clone(), sim, RULES);
    program.steps.iter().for_each(|&step| world.step(step));
    check_limits(&world, &stores);
    // The stores get well.
    for store in &stores {
        store.shake(0, Chances::default());
    }
    eventually("well", || {
        gpu.memory().stats().stores.iter().all(|store| !store.rests)
    });
    // Lost tensors may have been operands of others, which then have no value either. But without a
    // loss, everything is there.
    world.check_all();
    if stores.iter().all(|store| store.lock().spoiled == 0) {
        let lost = world.lost;
        assert_eq!(lost, 0, "a tensor is lost, and no store has lost anything");
        for held in &world.held {
            let is_poisoned = held.tensor.residency() == Residency::Poisoned;
            assert!(!is_poisoned, "{:?}", held.tensor.force());
        }
    }
    if matches!(weather, Weather::Fair) {
        let stats = gpu.memory().stats();
        let troubles = |store: &lapidary::stores::StoreUse| store.failures + store.lost;
        assert_eq!(stats.stores.iter().map(troubles).sum::<u64>(), 0);
    }
    check_limits(&world, &stores);
    drop(gpu);
    world.end();
    eventually("removed", || stores.iter().all(|store| store.bytes() == 0));
}

#[test]
fn no_byte_is_wrong_and_none_is_lost_that_a_store_has() {
    programs::check_from(fastrand::u64(..), 30, 200, run);
}
