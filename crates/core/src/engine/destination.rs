//! Where the bytes of a storage go that leaves the device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::memory::{Copies, HostCharge, HostCopy};
use crate::transfer::{Sink, SpillWriter};

/// Where bytes go that leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    Host,
    Disk,
}

/// What takes a victim's bytes.
#[derive(Debug)]
pub(super) enum Destination {
    Host(Vec<u8>, HostCharge),
    Disk(SpillWriter),
}

impl Destination {
    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            // Room was made for all of them before, unless the device has none to give.
            Destination::Host(copy, _) => {
                let room = copy.capacity() - copy.len();
                copy.extend_from_slice(&bytes[..room.min(bytes.len())]);
                Ok(())
            }
            Destination::Disk(writer) => writer.write(bytes),
        }
    }

    /// All bytes have come: they are a copy from now on.
    pub(super) fn finish(self, copies: &mut Copies) -> Result<()> {
        match self {
            Destination::Host(bytes, charge) => {
                copies.host = Some(Arc::new(HostCopy { bytes, charge }));
            }
            Destination::Disk(writer) => copies.disk = Some(Arc::new(writer.finish()?)),
        }
        Ok(())
    }
}

/// A taker that a reading's sink fills, and the first thing that went wrong with it.
#[derive(Debug)]
struct Shared(Mutex<(Option<Destination>, Option<Error>)>);

impl Shared {
    fn finish(&self, copies: &mut Copies) -> Result<()> {
        match std::mem::take(&mut *self.lock()) {
            (Some(destination), None) => destination.finish(copies),
            (_, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Destination>, Option<Error>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What takes a victim's bytes, for as long as somebody wants them: a reading that was given up
/// holds its sink until it is taken in, and would keep the room on the host or on disk for so long.
#[derive(Debug)]
pub(super) struct DestinationGuard(Arc<Shared>);

impl DestinationGuard {
    /// Guards a destination, and makes the sink of the reading that fills it.
    pub(super) fn new(destination: Destination) -> (Self, Sink) {
        let guard = DestinationGuard(Arc::new(Shared(Mutex::new((Some(destination), None)))));
        let into = guard.0.clone();
        let sink = move |piece: &[u8]| {
            let (destination, error) = &mut *into.lock();
            if let (Some(destination), None) = (destination, &error) {
                *error = destination.take(piece).err();
            }
        };
        (guard, Box::new(sink))
    }

    /// All that was to come has come: it is a copy from now on.
    pub(super) fn finish(&self, copies: &mut Copies) -> Result<()> {
        self.0.finish(copies)
    }
}

impl Drop for DestinationGuard {
    fn drop(&mut self) {
        let destination = self.0.lock().0.take();
        drop(destination);
    }
}
