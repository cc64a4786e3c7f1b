//! How long execution passes wait for memory.
//!
//! A pass that meets a need for memory is *watched*: [`watch`] polls that work. The few places that
//! block say what for, by [`time`] and [`wait`]. They count only below a watch, so they count
//! nothing for a read of the app. Each wait counts for the innermost watch. Urgent commands and
//! functions of the app, which run in between, are not watched: [`Paused`].
//!
//! The watch is the thread's, and only while it polls the work: in a browser the thread does other
//! work while a pass waits.

use std::cell::Cell;
use std::cmp::Reverse;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Instant;

use crate::units::Nanoseconds;

/// How often and how long execution passes waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct Waited {
    /// The number of waits.
    pub times: u64,
    /// Their time in nanoseconds. 0 in a browser and on a simulated device.
    pub ns: u64,
}

impl Waited {
    pub(crate) fn new(times: u64, ns: u64) -> Waited {
        Waited { times, ns }
    }

    /// Both sums.
    fn plus(self, other: Waited) -> Waited {
        Waited {
            times: self.times.saturating_add(other.times),
            ns: self.ns.saturating_add(other.ns),
        }
    }

    fn since(self, before: Waited) -> Waited {
        Waited {
            times: self.times.saturating_sub(before.times),
            ns: self.ns.saturating_sub(before.ns),
        }
    }
}

/// Waits of execution passes for memory, by what they waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct Waits {
    /// For the device: until it has finished what uses a slab.
    pub device: Waited,
    /// For bytes on their way between the device and the host's memory.
    pub host: Waited,
    /// For stores of the app.
    pub store: Waited,
    /// For the disk, or for sources.
    pub disk: Waited,
}

impl Waits {
    /// All of them together.
    pub fn total(&self) -> Waited {
        (self.device.plus(self.host))
            .plus(self.store)
            .plus(self.disk)
    }

    /// The waits since others were counted.
    #[must_use]
    pub fn since(&self, before: &Waits) -> Waits {
        self.with(before, Waited::since)
    }

    fn with(&self, other: &Waits, each: impl Fn(Waited, Waited) -> Waited) -> Waits {
        Waits {
            device: each(self.device, other.device),
            host: each(self.host, other.host),
            store: each(self.store, other.store),
            disk: each(self.disk, other.disk),
        }
    }

    /// What was waited for most, `device`, `host`, `store` or `disk`, and these waits.
    pub fn longest(&self) -> (&'static str, Waited) {
        self.sorted()[0]
    }

    /// The waits with their names, the longest first.
    fn sorted(&self) -> [(&'static str, Waited); 4] {
        let mut parts = [
            ("device", self.device),
            ("host", self.host),
            ("store", self.store),
            ("disk", self.disk),
        ];
        parts.sort_by_key(|(_, waited)| Reverse((waited.ns, waited.times)));
        parts
    }

    /// Adds waits.
    pub(crate) fn add(&mut self, other: &Waits) {
        *self = self.with(other, Waited::plus);
    }

    fn of(&mut self, what: WaitsFor) -> &mut Waited {
        match what {
            WaitsFor::Device => &mut self.device,
            WaitsFor::Host => &mut self.host,
            WaitsFor::Store => &mut self.store,
            WaitsFor::Disk => &mut self.disk,
        }
    }
}

/// Prints the time, and its parts, the longest first: `1.20 s: disk 900 ms, device 300 ms`. Without
/// a clock the numbers of waits.
impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let has_clock = total.ns > 0;
        match (has_clock, total.times) {
            (true, _) => write!(f, "{}", Nanoseconds(total.ns))?,
            (false, 1) => f.write_str("1 time")?,
            (false, times) => write!(f, "{} times", Times(times))?,
        }
        let is_there = |(_, waited): &(_, Waited)| match has_clock {
            true => waited.ns > 0,
            false => waited.times > 0,
        };
        for (index, (what, waited)) in self.sorted().into_iter().filter(is_there).enumerate() {
            let lead = if index == 0 { ": " } else { ", " };
            match has_clock {
                true => write!(f, "{lead}{what} {}", Nanoseconds(waited.ns))?,
                false => write!(f, "{lead}{what} {}", Times(waited.times))?,
            }
        }
        Ok(())
    }
}

/// Prints a count in few columns.
struct Times(u64);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            times @ 0..1_000_000 => write!(f, "{times}"),
            more => write!(f, "{:.1e}", more as f64),
        }
    }
}

/// Waits for the memory of one maker's tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct MakerWaits {
    /// The place in the source that made the tensors: `name (file:line)` or `file:line`.
    pub tag: String,
    /// The waits until they had room or their bytes.
    pub waits: Waits,
}

/// What a pass waits for: see the fields of [`Waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Device,
    Host,
    Store,
    Disk,
}

/// Whether the work that this thread polls is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    No,
    Counted,
    Timed,
}

thread_local! {
    static WATCHED: Cell<Watched> = const { Cell::new(Watched::No) };

    /// The waits below the innermost watch. Like `WATCHED` it has no destructor, so that a thread
    /// may use it while it ends.
    static WAITS: Cell<Waits> = Cell::default();
}

/// Watches work. `note` gets the waits, if there are any, after each poll.
pub(crate) async fn watch<T>(
    has_clock: bool,
    work: impl Future<Output = T>,
    mut note: impl FnMut(&Waits),
) -> T {
    let mut work = pin!(work);
    let watched = match has_clock && cfg!(not(target_arch = "wasm32")) {
        true => Watched::Timed,
        false => Watched::Counted,
    };
    poll_fn(|context| {
        let outer = Paused::for_watch(watched);
        let polled = work.as_mut().poll(context);
        let waits = WAITS.get();
        drop(outer);
        if waits.total().times > 0 {
            note(&waits);
        }
        polled
    })
    .await
}

/// The watch of this thread, which counts nothing until this is dropped.
pub(crate) struct Paused {
    watched: Watched,
    waits: Waits,
}

impl Paused {
    /// Pauses the watch for something that is not watched.
    pub(crate) fn enter() -> Self {
        Paused::for_watch(Watched::No)
    }

    /// Pauses the watch for an inner one.
    fn for_watch(watched: Watched) -> Self {
        Paused {
            watched: WATCHED.replace(watched),
            waits: WAITS.take(),
        }
    }

    /// Polls work that is not watched.
    pub(crate) async fn during<T>(work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _paused = Paused::enter();
            work.as_mut().poll(context)
        })
        .await
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        WATCHED.set(self.watched);
        WAITS.set(self.waits);
    }
}

/// Whether a wait counts here.
pub(crate) fn are_watched() -> bool {
    WATCHED.get() != Watched::No
}

/// Does something that blocks. Counts it as one wait, if this thread is watched.
pub(crate) fn time<T>(what: WaitsFor, work: impl FnOnce() -> T) -> T {
    if !are_watched() {
        return work();
    }
    let began = now();
    // The app's code in it may wait for other memory.
    let paused = Paused::enter();
    let done = work();
    drop(paused);
    count(what, began);
    done
}

/// As [`time`], for something to be awaited.
pub(crate) async fn wait<T>(what: WaitsFor, work: impl Future<Output = T>) -> T {
    let began = now();
    let done = work.await;
    if are_watched() {
        count(what, began);
    }
    done
}

/// The beginning of a wait, if its time counts.
fn now() -> Option<Instant> {
    (WATCHED.get() == Watched::Timed).then(Instant::now)
}

/// Counts a wait that ends now.
fn count(what: WaitsFor, began: Option<Instant>) {
    let ns = began.map_or(0, |began| began.elapsed().as_nanos());
    let ns = u64::try_from(ns).unwrap_or(u64::MAX);
    let mut waits = WAITS.get();
    let of = waits.of(what);
    *of = of.plus(Waited { times: 1, ns });
    WAITS.set(waits);
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use super::*;

    fn watched(has_clock: bool, work: impl Future<Output = ()>) -> Waits {
        let mut seen = Waits::default();
        pollster::block_on(watch(has_clock, work, |waits| seen.add(waits)));
        seen
    }

    fn block(what: WaitsFor) {
        time(what, || ());
    }

    #[test]
    fn a_wait_counts_only_below_a_watch() {
        block(WaitsFor::Disk);
        let seen = watched(false, async {
            block(WaitsFor::Disk);
            wait(WaitsFor::Host, ready(())).await;
            wait(WaitsFor::Host, ready(())).await;
        });
        assert_eq!((seen.disk.times, seen.host.times), (1, 2));
        assert_eq!(seen.total(), Waited { times: 3, ns: 0 });
        assert!(!are_watched());
    }

    #[test]
    fn a_wait_counts_for_the_innermost_watch() {
        let mut inner = Waits::default();
        let outer = watched(false, async {
            block(WaitsFor::Device);
            watch(false, async { block(WaitsFor::Store) }, |waits| {
                inner.add(waits);
            })
            .await;
            block(WaitsFor::Device);
        });
        assert_eq!((outer.device.times, outer.store.times), (2, 0));
        assert_eq!((inner.device.times, inner.store.times), (0, 1));
    }

    #[test]
    fn what_comes_between_is_not_watched() {
        let seen = watched(false, async {
            Paused::during(async { block(WaitsFor::Device) }).await;
            // A wait within a wait is part of it.
            time(WaitsFor::Disk, || block(WaitsFor::Store));
        });
        assert_eq!((seen.total().times, seen.disk.times), (1, 1));
    }

    #[test]
    fn the_thread_is_watched_only_while_it_polls_the_work() {
        let mut polls = 0;
        let twice = poll_fn(|context| {
            block(WaitsFor::Device);
            polls += 1;
            context.waker().wake_by_ref();
            match polls {
                1 => std::task::Poll::Pending,
                _ => std::task::Poll::Ready(()),
            }
        });
        let seen = Cell::new(Waits::default());
        let note = |waits: &Waits| {
            let mut all = seen.get();
            all.add(waits);
            seen.set(all);
        };
        let mut work = pin!(watch(false, twice, note));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert!(!are_watched());
        block(WaitsFor::Device);
        assert_eq!(seen.get().total().times, 1);
        assert!(work.as_mut().poll(&mut context).is_ready());
        assert_eq!(seen.get().total().times, 2);
    }

    #[test]
    fn they_print_in_few_words() {
        let waited = |times, ns| Waited { times, ns };
        let mut waits = Waits {
            device: waited(3, 0),
            disk: waited(9, 0),
            ..Waits::default()
        };
        assert_eq!(waits.to_string(), "12 times: disk 9, device 3");
        waits.device.ns = 300_000_000;
        waits.disk.ns = 900_000_000;
        assert_eq!(waits.to_string(), "1.20 s: disk 900 ms, device 300 ms");
        assert_eq!(waits.longest(), ("disk", waits.disk));
        let before = Waits {
            disk: waited(8, 900_000_000),
            ..Waits::default()
        };
        let since = waits.since(&before);
        assert_eq!((since.disk, since.device), (waited(1, 0), waits.device));
        assert_eq!(Waits::default().to_string(), "0 times");
        let most = waited(u64::MAX, u64::MAX);
        let (device, host, store, disk) = (most, most, most, most);
        let all = Waits {
            device,
            host,
            store,
            disk,
        };
        assert!(all.to_string().len() <= 80, "{all}");
    }

    #[test]
    fn with_a_clock_the_time_counts() {
        let pause = Duration::from_millis(2);
        let seen = watched(true, async {
            time(WaitsFor::Disk, || std::thread::sleep(pause));
        });
        assert!(u128::from(seen.disk.ns) >= pause.as_nanos(), "{seen:?}");
        assert_eq!(seen.total(), seen.disk);
    }
}
