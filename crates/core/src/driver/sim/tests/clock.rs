//! Work takes the time of its bytes, of its copies and of its submissions.

use std::time::{Duration, Instant};

use super::*;
use crate::driver::Speed;
use crate::driver::sim::clock::QueueClock;

/// A byte in one direction, and in memory, takes a time that no other does.
const SPEED: Speed = Speed {
    upload_bytes_per_s: 1_000_000,
    download_bytes_per_s: 500_000,
    memory_bytes_per_s: 100_000_000,
    multiply_adds_per_s: 1,
    copy_ns: 5_000,
    submission_ns: 70_000,
};

const KEPT: u64 = 1024;

fn keeping(speed: Speed) -> Bench {
    Bench::new(SimOptions {
        mode: SimMode::SizesOnly,
        speed: Some(speed),
        keeps_time: true,
        ..SimOptions::default()
    })
}

/// The time that a submission takes.
fn busy_ns(bench: &Bench, work: &[Op]) -> u64 {
    let before = bench.sim.counters().busy_ns;
    bench.driver.submit(work, &[0; 8]).unwrap();
    bench.sim.counters().busy_ns - before
}

#[test]
fn each_step_takes_its_own_time_and_a_submission_takes_more() {
    let bench = keeping(SPEED);
    let (a, b) = (bench.slab(KEPT), bench.slab(KEPT));
    let upload = bench.buffer(BufferKind::Upload, KEPT);
    let readback = bench.buffer(BufferKind::Readback, KEPT);
    let kernel = bench.pipeline(add()).unwrap();
    let bound = [binding(a, 0, KEPT), binding(b, 0, KEPT / 2)];
    let group = bench.driver.create_bind_group(kernel, &bound).unwrap();

    let to_device = || copy(upload, 0, a, 0, 1000);
    let to_host = || copy(b, 0, readback, 0, 1000);
    let within = copy(a, 0, b, 0, 1000);
    let cases = [
        ("nothing", vec![], 70_000),
        (
            "to the device",
            vec![to_device()],
            70_000 + 5_000 + 1_000_000,
        ),
        ("to the host", vec![to_host()], 70_000 + 5_000 + 2_000_000),
        // Read and written.
        ("within the device", vec![within], 70_000 + 5_000 + 20_000),
        ("cleared", vec![clear(a, 0, 1000)], 70_000 + 10_000),
        (
            "a kernel",
            vec![dispatch(kernel, group, (0, 4))],
            70_000 + 15_360,
        ),
        (
            "one after the other",
            vec![to_device(), to_host()],
            70_000 + 10_000 + 3_000_000,
        ),
    ];
    for (name, work, expected_ns) in cases {
        assert_eq!(busy_ns(&bench, &work), expected_ns, "{name}");
    }
}

#[test]
fn a_submission_begins_when_the_one_before_it_has_ended() {
    let (mut clock, now) = (QueueClock::default(), Instant::now());
    let ms = Duration::from_millis;
    assert_eq!(clock.end_of(ms(5), now), now + ms(5));
    assert_eq!(clock.end_of(ms(2), now + ms(1)), now + ms(7));
    assert_eq!(clock.end_of(ms(1), now + ms(20)), now + ms(21));
}

#[test]
fn a_wait_lasts_as_long_as_the_work() {
    let bench = keeping(Speed {
        submission_ns: 20_000_000,
        ..SPEED
    });
    let begun = Instant::now();
    let done = [(); 2].map(|()| bench.driver.submit(&[], &[]).unwrap().done);
    bench.wait(&done[1]).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(40));
    assert_eq!(done[0].outcome(), Some(true));
}

#[test]
fn a_device_that_keeps_no_time_counts_none() {
    let bench = Bench::new(SimOptions {
        speed: Some(SPEED),
        ..SimOptions::default()
    });
    assert_eq!(busy_ns(&bench, &[]), 0);
}
