//! Random programs over two stores that fail at random, with the disk behind them. No byte is
//! wrong, nothing exceeds its limit, and tensors lose their value only by what a store has lost.
//!
//! `LAPIDARY_SEED` runs one program, `LAPIDARY_STEPS` sets the number of steps.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lapidary::stores::{StoreFailure, StoreTier};
use lapidary::{Budget, Error, Gpu, Residency, Tensor};

use super::shaky::{Chances, Shaky};
use super::{LEN, PATIENT, eventually, open_on};
use crate::pressure::{Seed, number};

const STEPS: u64 = 6000;
const STEPS_OF_PROGRAM: u64 = 200;
const HOST_BYTES: u64 = 12 << 10;
const STORE_BYTES: [u64; 2] = [40 << 10, 64 << 10];
const DISK_BYTES: u64 = 1 << 20;

/// A rest is five of these, so that stores come back within a program.
const TIMEOUT: Duration = Duration::from_millis(4);

struct Held {
    tensor: Tensor,
    values: Vec<u32>,
}

struct World {
    rng: Rng,
    gpu: Gpu,
    stores: [Arc<Shaky>; 2],
    held: Vec<Held>,
    /// Tensors that turned out to have lost their value.
    lost: u64,
}

/// What may happen to the stores of a program.
#[derive(Clone, Copy, Debug)]
enum Weather {
    Fair,
    /// Calls fail, but no value is lost.
    Failing,
    /// Values are lost and changed, too.
    Losing,
}

fn chances(rng: &mut Rng, weather: Weather) -> Chances {
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

impl World {
    fn new(seed: u64, weather: Weather) -> World {
        let mut rng = Rng::with_seed(seed);
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
            ..Budget::device(48 << 10)
        };
        let (gpu, _sim) = open_on(rng.bool(), tiers.collect(), budget);
        for store in &stores {
            let chances = chances(&mut rng, weather);
            store.shake(rng.u64(..), chances);
        }
        World {
            rng,
            gpu,
            stores,
            held: Vec::new(),
            lost: 0,
        }
    }

    fn add(&mut self, tensor: Tensor, values: Vec<u32>) {
        self.held.push(Held { tensor, values });
    }

    fn step(&mut self) {
        let at = self.rng.usize(..self.held.len().max(1));
        match self.rng.u32(..100) {
            _ if self.held.is_empty() => self.create(),
            0..20 if self.held.len() < 40 => self.create(),
            0..35 => drop(self.held.swap_remove(at)),
            35..55 => {
                let with = self.rng.usize(..self.held.len());
                let (x, y) = (&self.held[at], &self.held[with]);
                let len = x.values.len().min(y.values.len());
                let sum = |x: &Held| x.tensor.narrow(0, 0, len);
                let sum = sum(x)
                    .and_then(|x| x.add(&sum(y)?))
                    .expect("the shapes fit");
                let pairs = x.values.iter().zip(&y.values);
                let values = pairs.map(|(x, y)| x.wrapping_add(*y)).collect();
                self.add(sum, values);
            }
            55..70 => match self.held[at].tensor.evict() {
                Ok(()) => {}
                Err(error) => self.judge(at, &error),
            },
            70..75 => drop(self.held[at].tensor.prefetch()),
            75..80 => drop(self.gpu.flush()),
            80..85 => {
                let values: Vec<u32> = self.held[at].values.iter().map(|x| !x).collect();
                // A write that had to wait for staging, and then failed, leaves no value.
                match self.held[at].tensor.write(&values) {
                    Ok(()) => self.held[at].values = values,
                    Err(error) => {
                        assert!(!root(&error).is_final() || self.spoiled() > 0, "{error}");
                        self.held.swap_remove(at);
                    }
                }
            }
            _ => self.check(at),
        }
    }

    fn create(&mut self) {
        let len = self.rng.usize(1..=2 * LEN);
        let start = self.rng.u32(..);
        let values: Vec<u32> = (0..len as u32).map(|at| at.wrapping_add(start)).collect();
        // All staging may be held by work that waits for a store.
        match self.gpu.tensor(&values, &[len]) {
            Ok(tensor) => self.add(tensor, values),
            Err(error) => assert!(!error.is_final(), "{error}"),
        }
    }

    /// Reads a tensor. It has its values, or an error that a store explains.
    fn check(&mut self, at: usize) {
        let held = &self.held[at];
        match held.tensor.to_vec::<u32>() {
            Ok(got) => assert!(got == held.values, "wrong bytes"),
            Err(error) => self.judge(at, &error),
        }
    }

    /// The error is one that a store explains. A tensor that lost its value is dropped.
    fn judge(&mut self, at: usize, error: &Error) {
        match root(error) {
            Error::Store(cause) => {
                let failure = &cause.failure;
                if matches!(failure, StoreFailure::NotFound | StoreFailure::Damaged(_)) {
                    self.lost += 1;
                    self.held.swap_remove(at);
                }
            }
            // All tiers may rest at the same time, or be full.
            Error::OutOfMemory(_) | Error::Spill(_) => {}
            other => panic!("{other}"),
        }
    }

    fn spoiled(&self) -> u64 {
        self.stores.iter().map(|store| store.lock().spoiled).sum()
    }

    fn check_limits(&self) {
        let stats = self.gpu.memory().stats();
        assert!(stats.host_bytes.peak <= HOST_BYTES);
        assert!(stats.device_bytes.peak <= 48 << 10);
        assert!(stats.disk_bytes.peak <= DISK_BYTES);
        for (store, (used, most_bytes)) in
            self.stores.iter().zip(stats.stores.iter().zip(STORE_BYTES))
        {
            assert!(used.bytes.peak <= most_bytes);
            assert!(store.lock().peak_bytes <= used.bytes.peak);
        }
    }
}

/// The error at the beginning of a chain of causes.
fn root(error: &Error) -> &Error {
    match error {
        Error::Poisoned { cause, .. } => root(cause),
        other => other,
    }
}

fn run(seed: u64, weather: Weather, steps: u64) {
    let _seed = Seed(seed);
    let mut world = World::new(seed, weather);
    for _ in 0..steps {
        world.step();
    }
    world.check_limits();
    // The stores get well.
    for store in &world.stores {
        store.shake(0, Chances::default());
    }
    let gpu = world.gpu.clone();
    eventually("well", || {
        gpu.memory().stats().stores.iter().all(|store| !store.rests)
    });
    // Lost tensors may have been operands of others, which then have no value either. But without a
    // loss, everything is there.
    for at in (0..world.held.len()).rev() {
        world.check(at);
    }
    if world.spoiled() == 0 {
        assert_eq!(
            world.lost, 0,
            "a tensor is lost, and no store has lost anything"
        );
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
    world.check_limits();
    let stores = world.stores.clone();
    drop((world, gpu));
    eventually("removed", || stores.iter().all(|store| store.bytes() == 0));
}

#[test]
fn no_byte_is_wrong_and_none_is_lost_that_a_store_has() {
    let first = number("LAPIDARY_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = match (number("LAPIDARY_STEPS"), number("LAPIDARY_SEED")) {
        (Some(steps), _) => steps,
        (None, Some(_)) => 3 * STEPS_OF_PROGRAM,
        (None, None) => STEPS,
    };
    for program in 0..steps.div_ceil(STEPS_OF_PROGRAM) {
        let weather = match program % 3 {
            0 => Weather::Failing,
            1 => Weather::Losing,
            _ => Weather::Fair,
        };
        run(first.wrapping_add(program), weather, STEPS_OF_PROGRAM);
    }
}
