//! Read-backs that a caller looks at in the mapped buffer, without a copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{InFlight, Readbacks, Reading, is_refused};
use crate::driver::DriverResult;

/// A buffer outside the pool, for as long as a caller looks at it.
struct Lent<'a> {
    readbacks: &'a Readbacks,
    arrived: InFlight,
    is_usable: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let (buffer, buffer_bytes) = (self.arrived.buffer, self.arrived.buffer_bytes);
        let driver = &self.readbacks.driver;
        driver.unmap(buffer);
        if !self.is_usable {
            driver.destroy_in_use(buffer);
        }
        let mut pool = self.readbacks.pool.lock();
        pool.shown_bytes -= buffer_bytes;
        pool.take_back(&self.arrived, self.is_usable);
    }
}

impl Readbacks {
    /// Whether a caller may look at a piece of this size in its buffer. At most half of the pool
    /// may be lent in this way, because the callers decide for how long.
    pub(crate) fn may_show(&self, size_bytes: u64) -> bool {
        let most_bytes = self.limit_bytes() / 2;
        let shown_bytes = self.pool.lock().shown_bytes;
        shown_bytes + size_bytes.next_power_of_two() <= most_bytes
    }

    /// Waits for the only piece of a reading and passes it to `look`, with no lock held. `false` if
    /// another thread needed room and has passed the piece to the sink.
    pub(crate) async fn show(
        &self,
        reading: &Arc<Reading>,
        look: &mut impl FnMut(&[u8]),
    ) -> DriverResult<bool> {
        let Some(signal) = reading.next_signal() else {
            return Ok(false);
        };
        let waited = self.driver.wait(&signal).await;
        if signal.outcome().is_none() || is_refused(&signal, &waited) {
            return waited.map(|()| false);
        }
        let Some(mut lent) = self.lend(reading) else {
            self.take_in_arrived(reading);
            return Ok(false);
        };
        let read = self.pass_on(&lent.arrived, look);
        lent.is_usable = read.is_ok();
        read.map(|()| true)
    }

    /// Takes the next piece of a reading if it is mapped. The piece then no longer counts as
    /// submitted.
    fn lend(&self, reading: &Reading) -> Option<Lent<'_>> {
        let arrived = {
            let mut state = reading.state.lock();
            let is_mapped = state.in_flight.front()?.signal.outcome() == Some(true);
            match is_mapped {
                true => state.in_flight.pop_front()?,
                false => return None,
            }
        };
        reading.under_way.fetch_sub(1, Ordering::AcqRel);
        let mut pool = self.pool.lock();
        // A caller that needs room waits only for readings with submitted pieces.
        pool.forget_arrived();
        let is_here = arrived.epoch == pool.epoch;
        pool.shown_bytes += arrived.buffer_bytes;
        drop(pool);
        let lent = Lent {
            readbacks: self,
            arrived,
            is_usable: true,
        };
        is_here.then_some(lent)
    }
}
