//! Puts bytes that arrive from the device into a vector of elements.

use std::sync::Arc;
use std::{fmt, mem};

use parking_lot::Mutex;

use crate::driver::BoxFuture;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::transfer::Sink;

/// A read under way.
pub struct Arrival<T> {
    /// Ready when all bytes have arrived; `None` if there are none.
    pub(super) landed: Option<BoxFuture<'static, Result<()>>>,
    /// The vector that receives them.
    pub(super) landing: Arc<Mutex<Landing<T>>>,
}

impl<T> fmt::Debug for Arrival<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").finish_non_exhaustive()
    }
}

impl<T: Element> Arrival<T> {
    /// Waits for the elements.
    ///
    /// # Errors
    /// The errors of the work that computes the value.
    pub async fn elements(self) -> Result<Vec<T>> {
        if let Some(landed) = self.landed {
            landed.await?;
        }
        self.landing.lock().take()
    }
}

/// The elements of a range that have arrived so far.
pub(super) struct Landing<T> {
    pub(super) elements: Vec<T>,
    arrived_bytes: usize,
    /// The host has no room for the elements.
    is_refused: bool,
}

impl<T: Element> Landing<T> {
    /// A landing into an existing vector, whose contents it replaces, and the sink of a read of
    /// `len` elements that fills it.
    pub(super) fn shared(elements: Vec<T>, len: usize) -> (Arc<Mutex<Self>>, Sink) {
        let landing = Arc::new(Mutex::new(Landing::new(elements)));
        let into = landing.clone();
        let sink = move |piece: &[u8]| into.lock().take_in(piece, len);
        (landing, Box::new(sink))
    }

    /// Uses an existing vector and replaces its contents.
    pub(super) fn new(elements: Vec<T>) -> Self {
        Landing {
            elements,
            arrived_bytes: 0,
            is_refused: false,
        }
    }

    /// Takes all elements, after all bytes have arrived.
    pub(super) fn take(&mut self) -> Result<Vec<T>> {
        mem::replace(self, Landing::new(Vec::new())).elements()
    }

    /// All elements, after all bytes have arrived.
    pub(super) fn elements(self) -> Result<Vec<T>> {
        match self.is_refused {
            false => Ok(self.elements),
            true => Err(Error::buffer(
                "read",
                format!("the host has no room for {} bytes", self.arrived_bytes),
            )),
        }
    }

    /// Takes the next bytes of a read of `len` elements. They may end inside an element.
    pub(super) fn take_in(&mut self, piece: &[u8], len: usize) {
        // Allocate only now, so that a read in the queue takes no memory.
        if self.arrived_bytes == 0 {
            self.is_refused = !has_room_for(&self.elements, len);
        }
        if self.is_refused {
            self.arrived_bytes += piece.len();
            return;
        }
        if self.elements.capacity() == 0 {
            let whole = (piece.len() == len * size_of::<T>() && piece.len() < ZEROED_BYTES)
                .then(|| T::seen_in(piece))
                .flatten();
            if let Some(elements) = whole {
                self.elements = elements.to_vec();
                self.arrived_bytes = piece.len();
                return;
            }
            self.elements = bytemuck::zeroed_vec(len);
        } else if self.arrived_bytes == 0 {
            self.elements.resize(len, T::default());
        }
        T::decode(&mut self.elements, self.arrived_bytes, piece);
        self.arrived_bytes += piece.len();
    }
}

/// From this size on the system gives zeroed memory, which needs no write before the bytes arrive.
/// A smaller allocation may reuse freed memory, and zeroing it takes as long as filling it.
const ZEROED_BYTES: usize = 32 << 20;

/// So few elements that checking for room beforehand does not pay.
const FEW: usize = 1 << 16;

/// Can a vector grow to `len` elements? A failed allocation would end the program, so
/// `try_reserve_exact` asks first. The reserved memory is dropped: a vector zeroed at its creation
/// is faster.
fn has_room_for<T>(elements: &Vec<T>, len: usize) -> bool {
    len <= FEW || len <= elements.capacity() || Vec::<T>::new().try_reserve_exact(len).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_elements_than_the_host_can_hold_are_no_abort() {
        let mut landing = Landing {
            elements: Vec::<u32>::new(),
            arrived_bytes: 0,
            is_refused: false,
        };
        landing.take_in(&[1, 0, 0, 0], 1 << 58);
        landing.take_in(&[1, 0, 0, 0], 1 << 58);
        assert!(landing.is_refused && landing.elements.is_empty());
    }
}
