//! The pool beside readings that take long.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::driver::sim::{SimDriver, SimOptions};

/// A reading of four bytes whose copy is submitted and done.
fn arrived(readbacks: &Readbacks, sink: Sink) -> Arc<Reading> {
    let (reading, pieces) = Reading::new(0, 4, 16 << 20, sink);
    pollster::block_on(readbacks.provide(4)).unwrap();
    let buffer = readbacks.take(4).unwrap();
    readbacks.submitted(&reading, pieces[0], buffer).unwrap();
    reading
}

#[test]
fn the_pool_does_not_wait_for_a_reading_that_copies() {
    let (driver, _sim) = SimDriver::new(SimOptions::default()).unwrap();
    let readbacks = Readbacks::new(Device::new(Arc::new(driver)));
    let (begun, copying) = mpsc::channel();
    let (go_on, may_end) = mpsc::channel::<()>();
    let slow = arrived(
        &readbacks,
        Box::new(move |_| {
            begun.send(()).unwrap();
            may_end.recv().unwrap();
        }),
    );
    let other = arrived(&readbacks, Box::new(|_| ()));
    let (done, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| pollster::block_on(readbacks.take_in(&slow)).unwrap());
        copying.recv().unwrap();
        scope.spawn(|| {
            pollster::block_on(readbacks.take_in(&other)).unwrap();
            done.send(readbacks.take(4).is_some()).unwrap();
        });
        // The limit is long, so only a lock can exceed it.
        let ended = ends.recv_timeout(Duration::from_secs(30));
        go_on.send(()).unwrap();
        assert_eq!(ended, Ok(true));
    });
    assert!(slow.is_done() && other.is_done());
    assert!(readbacks.pool.lock().readings.is_empty());
}

#[test]
fn what_has_arrived_is_handed_over_before_buffers_are_released() {
    let (driver, _sim) = SimDriver::new(SimOptions::default()).unwrap();
    let readbacks = Readbacks::new(Device::new(Arc::new(driver)));
    let (heard, hears) = mpsc::channel();
    let sink = move |bytes: &[u8]| heard.send(bytes.len()).unwrap();
    let reading = arrived(&readbacks, Box::new(sink));
    let signal = reading.next_signal().unwrap();
    pollster::block_on(readbacks.driver.wait(&signal)).unwrap();
    // Nobody has asked for it yet.
    readbacks.trim();
    assert_eq!(hears.try_recv(), Ok(4));
    assert!(reading.is_done());
    assert_eq!(readbacks.pool.lock().total_bytes, 0);
}

#[test]
fn the_buffer_that_is_kept_stays_kept() {
    let memory_bytes = 128 << 10;
    let options = SimOptions {
        memory_bytes,
        ..SimOptions::default()
    };
    let (driver, _sim) = SimDriver::new(options).unwrap();
    let driver = Device::new(Arc::new(driver));
    let readbacks = Readbacks::new(driver.clone());
    pollster::block_on(readbacks.keep_one());
    // Another account takes all memory but a small rest.
    let others = driver.create_buffer(Account::Slabs, memory_bytes - KEPT_BYTES, "a slab");
    pollster::block_on(others).unwrap();
    for _ in 0..3 {
        let lent = pollster::block_on(readbacks.provide(KEPT_BYTES));
        assert!(lent.is_ok() && readbacks.pool.lock().kept == SpareBuffer::Lent);
        // The request is too large for the memory, even if the free buffer were released for it.
        let larger = pollster::block_on(readbacks.provide(2 * KEPT_BYTES));
        assert_eq!(larger, Err(DriverError::OutOfMemory));
        let pool = readbacks.pool.lock();
        assert!(matches!(pool.kept, SpareBuffer::Idle(_)));
        assert_eq!(pool.total_bytes, 0);
    }
}
