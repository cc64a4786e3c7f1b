//! Chunks that several threads add and wait for.

use std::sync::mpsc;

use super::*;
use crate::driver::sim::{Fault, FaultKind, SimDriver, SimOptions, Site};

fn uploads(options: SimOptions) -> Uploads {
    let (driver, _sim) = SimDriver::new(options).unwrap();
    Uploads::new(Device::new(Arc::new(driver)), Account::Uploads)
}

#[test]
fn a_thread_without_memory_waits_for_the_chunk_of_another() {
    let uploads = uploads(SimOptions::default());
    let (ended, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        // This thread would now create its chunk.
        let guard = uploads.growth.begin();
        assert!(guard.is_some());
        scope.spawn(|| {
            let grown = pollster::block_on(uploads.grow(100));
            ended.send(grown).unwrap();
        });
        // It wakes nobody before the thread waits, and a thread that it wakes waits again.
        while !uploads.growth.ended.notify_one() {
            std::thread::yield_now();
        }
        assert_eq!(ends.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(guard);
        // The other thread asks again, and adds no chunk of its own.
        assert_eq!(ends.recv(), Ok(Ok(true)));
        assert!(uploads.chunks.lock().is_empty());
    });
    assert_eq!(pollster::block_on(uploads.grow(100)), Ok(true));
    assert_eq!(uploads.chunks.lock().len(), 1);
}

#[test]
fn a_growth_that_fails_lets_others_begin() {
    let uploads = uploads(SimOptions::default());
    uploads.driver.ledger().set_limit(0, 0, None);
    for _ in 0..2 {
        assert_eq!(pollster::block_on(uploads.grow(100)), Ok(false));
    }
    uploads.driver.ledger().set_limit(MIB, MIB, None);
    assert_eq!(pollster::block_on(uploads.grow(100)), Ok(true));
}

#[test]
fn a_chunk_whose_mapping_failed_makes_room_for_another() {
    let (driver, sim) = SimDriver::new(SimOptions::default()).unwrap();
    let uploads = Uploads::new(Device::new(Arc::new(driver)), Account::Uploads);
    assert_eq!(pollster::block_on(uploads.grow(100)), Ok(true));
    let (region, _) = uploads.stage(&[1; 100]).unwrap().unwrap();
    uploads.seal(std::slice::from_ref(&region));
    drop(region);
    sim.arm(Fault::once(Site::MapDone, 1, FaultKind::Invalid));
    uploads.sweep().unwrap();
    // That is the fault of no request that comes later.
    assert_eq!(pollster::block_on(uploads.wait()), Ok(true));
    uploads.sweep().unwrap();
    assert!(uploads.chunks.lock().is_empty());
    assert_eq!(pollster::block_on(uploads.wait()), Ok(false));
    assert_eq!(pollster::block_on(uploads.grow(100)), Ok(true));
    assert!(uploads.stage(&[1; 100]).unwrap().is_some());
}

#[test]
fn a_chunk_returns_once_its_regions_are_submitted() {
    let uploads = uploads(SimOptions::default());
    assert!(!uploads.will_return(0));
    assert_eq!(pollster::block_on(uploads.grow(100)), Ok(true));
    assert!(uploads.will_return(0));
    let (first, _) = uploads.stage(&[1; 100]).unwrap().unwrap();
    let (second, _) = uploads.stage(&[2; 100]).unwrap().unwrap();
    // One of the two waits for memory. The other is in the hands of a thread.
    assert!(uploads.will_return(1));
    assert!(!uploads.will_return(2));
    drop(first);
    assert!(!uploads.will_return(1));
    drop(second);
    assert!(uploads.will_return(0));
}

#[test]
fn a_chunk_fits_what_the_device_has_left() {
    for (memory_bytes, chunk_bytes) in [
        (1 << 20, 1 << 20),
        (256 << 10, 256 << 10),
        (192 << 10, 64 << 10),
        (64 << 10, 64 << 10),
    ] {
        let uploads = uploads(SimOptions {
            memory_bytes,
            ..SimOptions::default()
        });
        assert_eq!(pollster::block_on(uploads.grow(100)), Ok(true));
        let chunks = uploads.chunks.lock();
        let sizes: Vec<u64> = chunks.iter().map(|chunk| chunk.size_bytes).collect();
        assert_eq!(sizes, [chunk_bytes], "of {memory_bytes} bytes");
    }
    let uploads = uploads(SimOptions {
        memory_bytes: (64 << 10) - 8,
        ..SimOptions::default()
    });
    assert_eq!(pollster::block_on(uploads.grow(100)), Ok(false));
}
