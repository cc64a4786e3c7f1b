//! The costs of restoring bytes from the host, from each store of the app, and from the disk or a
//! source. They begin as guesses; measurements on this machine replace them.
//!
//! The cost of computing begins as a guess for the kind of adapter. The times of submissions scale
//! it: see the driver's meter.
//!
//! The engine times only the work of bringing bytes in. It times no wait, because the other work of
//! the device says nothing about the tier. It does not time evictions, because the choice of
//! victims does not use their cost. A simulated device keeps the guesses, so that the same calls
//! have the same outcome. A dry run keeps those of its device.

use std::time::Duration;
#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

use crate::driver::{AdapterKind, Caps};
use crate::engine::kernel::Launch;
use crate::memory::Tier;
use crate::memory::TransferCost;
use crate::transfer::MOST_STORES;

/// The time of a smaller transfer says more about the clock than about the tier.
const LEAST_BYTES: u64 = 64 << 10;

/// A new time counts for 1/8.
const NEWS_PART: u64 = 8;

/// The bounds of the measured speed of a tier.
const NS_PER_KIB: std::ops::RangeInclusive<u64> = 1..=10_000_000;

/// The costs of one device.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Costs {
    host: TransferCost,
    stores: [TransferCost; MOST_STORES],
    disk: TransferCost,
    compute: ComputeCost,
}

/// The cost of a launch: whichever takes longer, its bytes or its multiply-adds.
#[derive(Clone, Copy, Debug)]
struct ComputeCost {
    ns_per_launch: f64,
    ns_per_byte: f64,
    ns_per_multiply_add: f64,
}

impl ComputeCost {
    /// The first guess: the order of magnitude of such adapters.
    fn guess(kind: AdapterKind) -> Self {
        let (ns_per_byte, ns_per_multiply_add) = match kind {
            AdapterKind::Cpu => (0.25, 0.1),
            AdapterKind::Integrated => (0.02, 0.002),
            _ => (0.003, 0.000_2),
        };
        ComputeCost {
            ns_per_launch: 5_000.0,
            ns_per_byte,
            ns_per_multiply_add,
        }
    }
}

impl Costs {
    pub(in crate::engine) fn new(caps: &Caps) -> Self {
        let mut costs = Costs {
            host: TransferCost {
                ns_per_transfer: 20_000,
                ns_per_kib: 200,
            },
            stores: [TransferCost {
                ns_per_transfer: 100_000,
                ns_per_kib: 1000,
            }; MOST_STORES],
            disk: TransferCost {
                ns_per_transfer: 60_000,
                ns_per_kib: 500,
            },
            compute: ComputeCost::guess(caps.kind),
        };
        if caps.host_heap {
            // A copy in the queue, over PCIe 4 × 16.
            costs.host = TransferCost {
                ns_per_transfer: 5_000,
                ns_per_kib: 41,
            };
        }
        if let Some(speed) = caps.speed {
            let ns_per = |per_second: u64| 1e9 / per_second.max(1) as f64;
            costs.host = TransferCost {
                ns_per_transfer: speed.copy_ns,
                ns_per_kib: (1024.0 * ns_per(speed.upload_bytes_per_s)).ceil() as u32,
            };
            costs.compute = ComputeCost {
                ns_per_launch: 0.0,
                ns_per_byte: ns_per(speed.memory_bytes_per_s),
                ns_per_multiply_add: ns_per(speed.multiply_adds_per_s),
            };
        }
        costs
    }

    /// The predicted time of a launch, in nanoseconds, before the meter scales it.
    pub(in crate::engine) fn compute_ns(&self, launch: &Launch) -> f64 {
        let cost = &self.compute;
        let bytes = launch.operand_bytes() as f64 * cost.ns_per_byte;
        cost.ns_per_launch + bytes.max(launch.work as f64 * cost.ns_per_multiply_add)
    }

    /// The cost of restoring bytes from a tier. A source counts as a disk.
    pub(in crate::engine) fn transfer_cost(&self, tier: Tier) -> TransferCost {
        match tier {
            Tier::Host => self.host,
            // Tiers have numbers below that of stores.
            Tier::Store(number) => self.stores[usize::from(number) % MOST_STORES],
            Tier::Disk => self.disk,
        }
    }

    /// Notes the time of a transfer of `size_bytes` from a tier.
    pub(in crate::engine) fn note(&mut self, tier: Tier, size_bytes: u64, time: Duration) {
        if size_bytes < LEAST_BYTES {
            return;
        }
        let cost = match tier {
            Tier::Host => &mut self.host,
            Tier::Store(number) => &mut self.stores[usize::from(number) % MOST_STORES],
            Tier::Disk => &mut self.disk,
        };
        let ns = time.as_nanos() * 1024 / u128::from(size_bytes);
        let news = u64::try_from(ns).unwrap_or(u64::MAX);
        let news = news.clamp(*NS_PER_KIB.start(), *NS_PER_KIB.end());
        let mean = (u64::from(cost.ns_per_kib) * (NEWS_PART - 1) + news).div_ceil(NEWS_PART);
        cost.ns_per_kib = mean.min(*NS_PER_KIB.end()) as u32;
    }
}

/// The time spent working, without the waits in between.
#[derive(Debug)]
pub(in crate::engine) struct Stopwatch {
    runs: bool,
    spent: Duration,
}

impl Stopwatch {
    /// A stopwatch that runs if `runs` is set and there is a clock.
    pub(in crate::engine) fn new(runs: bool) -> Self {
        Stopwatch {
            runs: runs && cfg!(not(target_arch = "wasm32")),
            spent: Duration::ZERO,
        }
    }

    /// Runs `work` and counts its time.
    pub(in crate::engine) fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        #[cfg(not(target_arch = "wasm32"))]
        if self.runs {
            let start = Instant::now();
            let done = work();
            self.spent += start.elapsed();
            return done;
        }
        work()
    }

    /// The counted time, or `None` without a clock.
    pub(in crate::engine) fn spent(&self) -> Option<Duration> {
        self.runs.then_some(self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimDriver, SimOptions};
    use crate::driver::{Driver, Speed};

    fn guesses() -> Costs {
        let (driver, _) = SimDriver::new(SimOptions::default()).unwrap();
        Costs::new(driver.caps())
    }

    #[test]
    fn what_is_measured_replaces_the_guess_little_by_little() {
        let mut costs = guesses();
        let (guess, other) = (
            costs.transfer_cost(Tier::Disk),
            costs.transfer_cost(Tier::Host),
        );
        costs.note(Tier::Disk, 1 << 20, Duration::from_micros(1024 * 2));
        let once = costs.transfer_cost(Tier::Disk).ns_per_kib;
        assert!(guess.ns_per_kib < once && once < 2000, "{once}");
        for _ in 0..100 {
            costs.note(Tier::Disk, 1 << 20, Duration::from_micros(1024 * 2));
        }
        assert!(costs.transfer_cost(Tier::Disk).ns_per_kib.abs_diff(2000) <= 8);
        assert_eq!(
            costs.transfer_cost(Tier::Disk).ns_per_transfer,
            guess.ns_per_transfer
        );
        assert_eq!(costs.transfer_cost(Tier::Host), other);
    }

    #[test]
    fn a_device_of_known_speed_begins_with_its_own_costs() {
        let (driver, _) = SimDriver::new(SimOptions {
            speed: Some(Speed {
                upload_bytes_per_s: 1_024_000_000,
                ..Speed::default()
            }),
            ..SimOptions::default()
        })
        .unwrap();
        let cost = Costs::new(driver.caps()).transfer_cost(Tier::Host);
        assert_eq!(cost.ns(10 << 10), 10 * 1000 + 5_000);
    }

    #[test]
    fn no_time_is_too_odd() {
        let mut costs = guesses();
        costs.note(Tier::Host, 1000, Duration::MAX);
        assert_eq!(
            costs.transfer_cost(Tier::Host),
            guesses().transfer_cost(Tier::Host)
        );
        for time in [Duration::MAX, Duration::ZERO] {
            for _ in 0..200 {
                costs.note(Tier::Host, u64::MAX, time);
                costs.note(Tier::Disk, LEAST_BYTES, time);
            }
            let found = [Tier::Host, Tier::Disk].map(|tier| costs.transfer_cost(tier).ns_per_kib);
            let sound = |ns: &u32| NS_PER_KIB.contains(&u64::from(*ns));
            assert!(found.iter().all(sound), "{found:?}");
        }
    }
}
