//! Works that stop anywhere. After 0, 1, 2, … polls of a work something happens to its future or to
//! the device. At each of about 7,600 stops no value is wrong, nothing hangs, and nothing is left.
//!
//! On a device with `pauses: 1` each wait of a pass is pending once, so a test can stop there.
//! `works` has what is stopped, `events` what happens then, `world` the device and its tensors.

mod events;
mod works;
mod world;

use std::task::{Context, Poll, Waker};

use crate::engine::threads::watched;
use events::{EVENTS, Event};
use works::Work;
use world::{Way, World};

/// The most polls until a work ends.
const MOST_POLLS: usize = 1000;

/// Names the stop at which a test fails.
struct At<'a>(&'a str, Event, Way, usize);

impl Drop for At<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let At(name, event, way, polls) = self;
            eprintln!("{name}, {way:?}, {event:?} after {polls} polls");
        }
    }
}

/// Stops a work after 0, 1, 2, … polls, until it ends by itself, with each event each time.
fn stop_everywhere(name: &str, work: &Work) {
    watched(|| {
        let mut stops = 0;
        for way in [Way::Staged, Way::Mapped, Way::Heap] {
            for event in EVENTS {
                for polls in 0.. {
                    let _at = At(name, event, way, polls);
                    stops += 1;
                    if stop(work, event, way, polls) {
                        assert!(polls > 0, "it never waits");
                        break;
                    }
                    assert!(polls < MOST_POLLS, "it never ends");
                }
            }
        }
        eprintln!("{name}: {stops} stops");
    });
}

/// Stops a work after this many polls. Returns whether it had ended before.
fn stop(work: &Work, event: Event, way: Way, polls: usize) -> bool {
    let world = World::new(way, work.setup);
    let mut stopped = (work.begin)(&world);
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = || stopped.future.as_mut().poll(&mut context);
    let ended = (0..polls).find_map(|_| match poll() {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    });
    let has_ended = ended.is_some();
    ended.map_or(Ok(()), |result| result).unwrap();
    let are_safe: Vec<bool> = stopped
        .held
        .iter()
        .map(|value| value.is_safe(way))
        .collect();
    event.strike(&world, (!has_ended).then_some(stopped.future));
    for (value, is_safe) in stopped.held.iter().zip(are_safe) {
        event.check(value, false, is_safe);
    }
    for value in &stopped.made {
        event.check(value, true, false);
    }
    drop((stopped.held, stopped.made));
    world.end();
    has_ended
}

macro_rules! stops {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                stop_everywhere(stringify!($name), &works::$name());
            }
        )*
    };
}

stops! {
    an_eviction_to_the_host
    an_eviction_to_the_disk
    an_eviction_to_a_store
    an_eviction_that_the_app_wants
    a_restore
    a_restore_from_the_disk
    a_restore_from_a_store
    a_restore_that_has_to_evict
    a_restore_from_a_source
    a_restore_from_an_asynchronous_source
    a_compaction_for_a_command
    a_compaction_that_the_app_wants
    a_recomputation
    an_upload
    an_upload_to_an_evicted_tensor
    a_drain_to_a_ceiling
    a_drain_to_a_budget
    a_read
    a_read_of_an_evicted_tensor
    rows_of_an_evicted_table
    a_pin
    a_repack
}
