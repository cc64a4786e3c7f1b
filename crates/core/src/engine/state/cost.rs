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
//!
//! Where the host has a heap that the device addresses, its costs are those of copies in the queue,
//! which the device times: see the driver's `LinkRun`.

use std::time::Duration;
#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

use crate::driver::{AdapterKind, Caps, LinkRun};
use crate::engine::kernel::Launch;
use crate::memory::{Tier, TransferCost};
use crate::transfer::MOST_STORES;

/// The time of a smaller transfer says more about the clock than about the tier.
const LEAST_BYTES: u64 = 64 << 10;

/// A new time counts for 1/8.
const NEWS_PART: u64 = 8;

/// The bounds of the measured speed of a tier.
const NS_PER_KIB: std::ops::RangeInclusive<u64> = 1..=10_000_000;

/// Large copies tell the speed of a link, small ones the time of each copy beside its bytes.
const LARGE_COPY_BYTES: u64 = 1 << 20;
const SMALL_COPY_BYTES: u64 = 64 << 10;

/// A measurement counts as at most so many times what is known, or as such a part. It may be odd:
/// the system may suspend the device amid the copies.
const MOST_OFF: f64 = 8.0;

/// The bounds of the time of a copy beside its bytes.
const NS_PER_COPY: (f64, f64) = (100.0, 1e6);

/// The costs of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    host: TransferCost,
    stores: [TransferCost; MOST_STORES],
    disk: TransferCost,
    compute: ComputeCost,
    /// The links to the heap in the host's memory, and from there to the device.
    links: [Link; 2],
}

/// The cost of copies between the device and the heap in the host's memory, one way.
#[derive(Clone, Copy, Debug)]
struct Link {
    ns_per_copy: f64,
    ns_per_byte: f64,
    /// Whether the speed was measured.
    is_measured: bool,
}

impl Link {
    fn guess(copy_ns: u32, bytes_per_s: u64) -> Self {
        Link {
            ns_per_copy: f64::from(copy_ns),
            ns_per_byte: 1e9 / bytes_per_s.max(1) as f64,
            is_measured: false,
        }
    }

    fn ns(&self, bytes: u64) -> f64 {
        self.ns_per_copy + bytes as f64 * self.ns_per_byte
    }

    fn cost(&self) -> TransferCost {
        TransferCost {
            ns_per_transfer: self.ns_per_copy as u32,
            ns_per_kib: (1024.0 * self.ns_per_byte).ceil() as u32,
        }
    }

    /// Notes the time of copies. The first speed replaces the guess, within bounds, and later ones
    /// change the mean.
    fn note(&mut self, run: &LinkRun) {
        let (ns, bytes, copies) = (run.ns as f64, run.bytes as f64, f64::from(run.copies));
        let each_bytes = run.bytes / u64::from(run.copies.max(1));
        let part = 1.0 / NEWS_PART as f64;
        if each_bytes >= LARGE_COPY_BYTES {
            // If each copy took longer than this, small ones would tell.
            let beside_ns = (copies * self.ns_per_copy).min(ns / 8.0);
            let bounds = [NS_PER_KIB.start(), NS_PER_KIB.end()].map(|ns| *ns as f64 / 1024.0);
            let news = ((ns - beside_ns) / bytes).clamp(bounds[0], bounds[1]);
            let known = self.ns_per_byte;
            let news = news.clamp(known / MOST_OFF, known * MOST_OFF);
            self.ns_per_byte = match self.is_measured {
                true => known + (news - known) * part,
                false => news,
            };
            self.is_measured = true;
        } else if each_bytes <= SMALL_COPY_BYTES && copies > 0.0 {
            let news = (ns - bytes * self.ns_per_byte) / copies;
            let known = self.ns_per_copy.max(NS_PER_COPY.0);
            let news = news.clamp(known / MOST_OFF, known * MOST_OFF);
            let news = news.clamp(NS_PER_COPY.0, NS_PER_COPY.1);
            self.ns_per_copy += (news - self.ns_per_copy) * part;
        }
    }
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
    pub(crate) fn new(caps: &Caps) -> Self {
        let cost = |ns_per_transfer, ns_per_kib| TransferCost {
            ns_per_transfer,
            ns_per_kib,
        };
        let mut costs = Costs {
            host: cost(20_000, 200),
            stores: [cost(100_000, 1000); MOST_STORES],
            disk: cost(60_000, 500),
            compute: ComputeCost::guess(caps.kind),
            // PCIe 4 × 16.
            links: [Link::guess(5_000, 25_000_000_000); 2],
        };
        if let Some(speed) = caps.speed {
            let ns_per = |per_second: u64| 1e9 / per_second.max(1) as f64;
            let both = [speed.download_bytes_per_s, speed.upload_bytes_per_s];
            costs.links = both.map(|bytes_per_s| Link::guess(speed.copy_ns, bytes_per_s));
            costs.compute = ComputeCost {
                ns_per_launch: 0.0,
                ns_per_byte: ns_per(speed.memory_bytes_per_s),
                ns_per_multiply_add: ns_per(speed.multiply_adds_per_s),
            };
        }
        if caps.speed.is_some() || caps.host_heap {
            // With a heap, a copy in the queue.
            costs.host = costs.links[1].cost();
        }
        costs
    }

    /// The predicted time of a copy between the device and the heap in the host's memory.
    pub(crate) fn link_ns(&self, is_to_device: bool, size_bytes: u64) -> f64 {
        self.links[usize::from(is_to_device)].ns(size_bytes)
    }

    /// The measured speed of such copies; `None` before the first measurement.
    pub(crate) fn link_bytes_per_s(&self, is_to_device: bool) -> Option<u64> {
        let link = &self.links[usize::from(is_to_device)];
        (link.is_measured).then_some((1e9 / link.ns_per_byte) as u64)
    }

    /// Notes the time of such copies.
    pub(crate) fn note_link(&mut self, run: &LinkRun) {
        let link = &mut self.links[usize::from(run.is_to_device)];
        link.note(run);
        if run.is_to_device {
            self.host = link.cost();
        }
    }

    /// The predicted time of a launch, in nanoseconds, before the meter scales it.
    pub(crate) fn compute_ns(&self, launch: &Launch) -> f64 {
        let cost = &self.compute;
        let bytes = launch.operand_bytes() as f64 * cost.ns_per_byte;
        cost.ns_per_launch + bytes.max(launch.work as f64 * cost.ns_per_multiply_add)
    }

    /// The cost of restoring bytes from a tier. A source counts as a disk.
    pub(crate) fn transfer_cost(&self, tier: Tier) -> TransferCost {
        match tier {
            Tier::Host => self.host,
            // Tiers have numbers below that of stores.
            Tier::Store(number) => self.stores[usize::from(number) % MOST_STORES],
            Tier::Disk => self.disk,
        }
    }

    /// Notes the time of a transfer of `size_bytes` from a tier.
    pub(crate) fn note(&mut self, tier: Tier, size_bytes: u64, time: Duration) {
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
pub(crate) struct Stopwatch {
    runs: bool,
    spent: Duration,
}

impl Stopwatch {
    /// A stopwatch that runs if `runs` is set and there is a clock.
    pub(crate) fn new(runs: bool) -> Self {
        Stopwatch {
            runs: runs && cfg!(not(target_arch = "wasm32")),
            spent: Duration::ZERO,
        }
    }

    /// Runs `work` and counts its time.
    pub(crate) fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
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
    pub(crate) fn spent(&self) -> Option<Duration> {
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

    fn of_copies(copies: u32, bytes: u64, ns: u64) -> LinkRun {
        LinkRun {
            is_to_device: true,
            copies,
            bytes,
            ns,
        }
    }

    #[test]
    fn the_links_of_the_heap_are_learned_each_way() {
        let mut costs = guesses();
        let guess = costs.link_ns(false, 0);
        assert_eq!(costs.link_bytes_per_s(true), None);
        // 10 GB/s, and 20 µs for each copy, in turns.
        for _ in 0..60 {
            costs.note_link(&of_copies(2, 20_000_000, 2_040_000));
            costs.note_link(&of_copies(100, 1_000_000, 2_100_000));
        }
        let speed = costs.link_bytes_per_s(true).unwrap();
        assert!(speed.abs_diff(10_000_000_000) < 100_000_000, "{speed}");
        let small_ns = costs.link_ns(true, 10_000);
        assert!((small_ns - 21_000.0).abs() < 200.0, "{small_ns}");
        let cost = costs.transfer_cost(Tier::Host);
        assert!(cost.ns_per_kib.abs_diff(103) <= 1, "{cost:?}");
        assert!(cost.ns_per_transfer.abs_diff(20_000) <= 200, "{cost:?}");
        // The other way nothing was measured.
        assert_eq!(costs.link_bytes_per_s(false), None);
        assert_eq!(costs.link_ns(false, 0), guess);
    }

    #[test]
    fn the_first_large_copy_replaces_the_guess_and_one_odd_time_does_little() {
        let mut costs = guesses();
        costs.note_link(&of_copies(1, 100_000_000, 4_000_000 + 5_000));
        let speed = costs.link_bytes_per_s(true).unwrap();
        assert!(speed.abs_diff(25_000_000_000) < 10_000_000, "{speed}");
        costs.note_link(&of_copies(1, 100_000_000, 40_000_000));
        let after = costs.link_bytes_per_s(true).unwrap();
        assert!(after > speed / 3, "{after}");
        for odd in [
            of_copies(0, 0, 0),
            of_copies(1, 0, u64::MAX),
            of_copies(1, u64::MAX, 1),
            of_copies(1, u64::MAX, u64::MAX),
            of_copies(u32::MAX, 1, u64::MAX),
        ] {
            costs.note_link(&odd);
            let found = [costs.link_ns(true, 1 << 20), costs.link_ns(true, 0)];
            assert!(
                found.iter().all(|ns| ns.is_finite() && *ns > 0.0),
                "{odd:?}"
            );
            assert!(costs.transfer_cost(Tier::Host).ns_per_kib > 0);
        }
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
