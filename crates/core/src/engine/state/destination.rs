//! The destination of evicted bytes.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::memory::{Copies, HostCharge, HostCopy, Tier};
use crate::transfer::{Sink, SpillWriter, StoreWriter};

/// The receiver of a victim's bytes.
#[derive(Debug)]
pub(crate) enum Destination {
    Host(Vec<u8>, HostCharge),
    /// The number of the store, and the writer there.
    Store(u8, StoreWriter),
    Disk(SpillWriter),
}

impl Destination {
    pub(crate) fn tier(&self) -> Tier {
        match self {
            Destination::Host(..) => Tier::Host,
            Destination::Store(number, _) => Tier::Store(*number),
            Destination::Disk(_) => Tier::Disk,
        }
    }

    /// Writes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            // Memory for all bytes was allocated before, unless the simulated buffers have no
            // contents.
            Destination::Host(copy, _) => {
                let room = copy.capacity() - copy.len();
                copy.extend_from_slice(&bytes[..room.min(bytes.len())]);
                Ok(())
            }
            Destination::Store(_, writer) => writer.write(bytes),
            Destination::Disk(writer) => writer.write(bytes),
        }
    }

    /// Whether all bytes that came have reached it, or one write has failed.
    fn is_written(&self) -> bool {
        match self {
            Destination::Host(..) => true,
            Destination::Store(_, writer) => writer.is_written(),
            Destination::Disk(writer) => writer.is_written(),
        }
    }

    /// Turns the complete bytes into a copy of the storage. Waits until they are written.
    pub(crate) fn finish(self, copies: &mut Copies) -> Result<()> {
        match self {
            Destination::Host(bytes, charge) => {
                copies.host = Some(Arc::new(HostCopy::Plain { bytes, charge }));
            }
            Destination::Store(number, writer) => {
                copies.store = Some((number, writer.finish()?));
            }
            Destination::Disk(writer) => copies.disk = Some(Arc::new(writer.finish()?)),
        }
        Ok(())
    }
}

/// A destination that a reading's sink fills, and the first error.
type Shared = Mutex<(Option<Destination>, Option<Error>)>;

/// The owner of a destination. On drop the destination releases its memory or its disk space. A
/// cancelled reading keeps its sink until the reading is taken in, and would keep both until then.
#[derive(Debug)]
pub(crate) struct DestinationGuard(Arc<Shared>);

impl DestinationGuard {
    /// Guards a destination, and returns the sink of the reading that fills it.
    pub(crate) fn new(destination: Destination) -> (Self, Sink) {
        let guard = DestinationGuard(Arc::new(Mutex::new((Some(destination), None))));
        let into = guard.0.clone();
        let sink = move |piece: &[u8]| {
            let (destination, error) = &mut *into.lock();
            if let (Some(destination), None) = (destination, &error) {
                *error = destination.take(piece).err();
            }
        };
        (guard, Box::new(sink))
    }

    /// Whether all bytes that came have reached it, or one write has failed.
    pub(crate) fn is_written(&self) -> bool {
        let (destination, error) = &*self.0.lock();
        error.is_some() || destination.as_ref().is_none_or(Destination::is_written)
    }

    /// Turns the complete bytes into a copy of the storage. Waits until they are written.
    pub(crate) fn finish(&self, copies: &mut Copies) -> Result<()> {
        match std::mem::take(&mut *self.0.lock()) {
            (Some(destination), None) => destination.finish(copies),
            (_, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }
}

impl Drop for DestinationGuard {
    fn drop(&mut self) {
        let destination = self.0.lock().0.take();
        drop(destination);
    }
}
