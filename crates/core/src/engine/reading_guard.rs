//! A reading that is given up as soon as nobody waits for it.

use std::ops::Deref;
use std::sync::Arc;

use crate::transfer::Reading;

/// Tells the engine, on drop, that nobody wants the bytes.
#[derive(Debug)]
pub(super) struct ReadingGuard(Arc<Reading>);

impl ReadingGuard {
    pub(super) fn new(reading: Arc<Reading>) -> Self {
        ReadingGuard(reading)
    }
}

impl Deref for ReadingGuard {
    type Target = Arc<Reading>;

    fn deref(&self) -> &Arc<Reading> {
        &self.0
    }
}

impl Drop for ReadingGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
