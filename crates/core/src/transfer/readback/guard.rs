//! A reading that is cancelled when its last user drops it.

use std::ops::Deref;
use std::sync::Arc;

use super::Reading;

/// Cancels the reading on drop.
#[derive(Debug)]
pub(crate) struct ReadingGuard(pub(crate) Arc<Reading>);

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
