//! Shares of a device's memory: guarantees, ceilings, what is lent, and that no share sees bytes of
//! another one.

mod dropped;
mod fair;
mod halfway;
mod isolation;
mod jobs;
mod lent;
mod limits;
mod many_jobs;
mod outranked;
mod preparing;
mod priority;
mod promises;
mod reports;
mod steps;
mod tenant;
mod uploads;

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Buffer, Gpu, Options, Residency, Source};

const MIB: u64 = 1 << 20;

/// A simulated device whose slabs have room for `bytes`, and the bytes of staging beside them.
fn device(bytes: u64) -> Gpu {
    device_of(bytes, false)
}

/// The same, whose slabs the host sees or not.
fn device_of(bytes: u64, maps_slabs: bool) -> Gpu {
    with_handle(bytes, maps_slabs).0
}

/// The same, with the handle of the simulation.
fn with_handle(bytes: u64, maps_slabs: bool) -> (Gpu, SimHandle) {
    let staging_bytes = 8 * MIB;
    let budget = Budget {
        staging_bytes: Some(staging_bytes),
        ..Budget::device(bytes + staging_bytes)
    };
    open_with_handle(budget, maps_slabs)
}

fn with_budget(budget: Budget) -> Gpu {
    open(budget, false)
}

fn open(budget: Budget, maps_slabs: bool) -> Gpu {
    open_with_handle(budget, maps_slabs).0
}

fn open_with_handle(budget: Budget, maps_slabs: bool) -> (Gpu, SimHandle) {
    let options = Options {
        budget: Some(budget),
        ..Options::from_env().unwrap()
    };
    let device = SimOptions {
        dirty: true,
        maps_slabs,
        ..SimOptions::default()
    };
    Gpu::simulated_with(device, options).unwrap()
}

/// A buffer of this many bytes that is on the device.
fn filled(gpu: &Gpu, bytes: u64, word: u32) -> Buffer {
    let buffer = gpu.buffer_from(&vec![word; bytes as usize / 4]).unwrap();
    buffer.force().unwrap();
    buffer
}

/// How many of them are on the device.
fn on_device(buffers: &[Buffer]) -> usize {
    let here = buffers.iter();
    here.filter(|one| one.residency() == Residency::Device)
        .count()
}

/// Do all of them have the word that they were filled with?
fn assert_filled(buffers: &[Buffer], word: u32) {
    for buffer in buffers {
        let words = buffer.to_vec::<u32>().unwrap();
        assert!(words.iter().all(|one| *one == word), "{buffer}");
    }
}

/// A call that hangs fails its test after this time.
const PATIENT: Duration = Duration::from_secs(60);

/// A place where the engine calls the test, and stops until the test lets it go on.
struct Gate {
    is_there: Receiver<()>,
    opens: Sender<()>,
}

impl Gate {
    /// A gate, and the function that the engine calls.
    fn new() -> (Gate, impl Fn() + Send + Sync + 'static) {
        let (reaches, is_there) = mpsc::channel();
        let (opens, is_open) = mpsc::channel();
        let is_open = Mutex::new(is_open);
        let stop = move || {
            // A test that has ended does not mind.
            let _ = reaches.send(());
            let _ = is_open.lock().unwrap().recv();
        };
        (Gate { is_there, opens }, stop)
    }

    fn wait(&self) {
        self.is_there.recv_timeout(PATIENT).expect("it comes here");
    }

    fn open(&self) {
        self.opens.send(()).unwrap();
    }

    /// A source of ones behind the gate.
    fn source() -> (Gate, Source) {
        let (gate, stop) = Gate::new();
        let source = Source::reader(move |_, bytes| {
            stop();
            bytes.fill(1);
            Ok(())
        });
        (gate, source)
    }
}
