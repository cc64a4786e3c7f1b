//! Memory use of a part of a program, between two moments.

use std::fmt;

use crate::engine::{Engine, Handle, Tally, block_on};
use crate::error::Result;
use crate::memory::Scope;
use crate::units::Bytes;
use crate::waits::Waits;

/// A measurement under way: see [`GpuMemory::measure`](crate::GpuMemory::measure). Dropping it
/// cancels it.
#[derive(Debug)]
#[must_use = "`end` returns what was measured"]
pub struct Measure {
    name: String,
    /// The one on which it began.
    engine: Handle<Engine>,
    number: u64,
    before: Tally,
    /// Tags everything made during the measurement with the name.
    scope: Option<Scope>,
}

/// Memory use of a part of a program. All sizes are in bytes.
///
/// `Display` prints one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct Measured {
    /// The name given to the measurement.
    pub name: String,
    /// Bytes of tensors on the device at the beginning.
    pub live_before_bytes: u64,
    /// Most bytes of tensors on the device during the measurement.
    pub peak_live_bytes: u64,
    /// Bytes of tensors on the device at the end.
    pub live_after_bytes: u64,
    /// Most bytes of slabs during the measurement.
    pub peak_reserved_bytes: u64,
    /// Total bytes of the blocks that tensors got.
    pub allocated_bytes: u64,
    /// Number of the blocks that tensors got.
    pub allocations: u64,
    /// Total bytes of the blocks that tensors freed.
    pub freed_bytes: u64,
    /// Commands that ran.
    pub commands: u64,
    /// Submissions.
    pub submissions: u64,
    /// Buffers created for any purpose.
    pub buffers_created: u64,
    /// Bytes moved to make room.
    pub moved_bytes: u64,
    /// Bytes of tensors written to the host, to a store or to the disk.
    pub evicted_bytes: u64,
    /// Bytes of tensors that were dropped, because a source, a copy or a recipe has them.
    pub dropped_bytes: u64,
    /// Bytes of tensors restored.
    pub restored_bytes: u64,
    /// Requests that found no memory.
    pub refusals: u64,
    /// How often and how long execution passes waited for memory.
    pub waits: Waits,
}

impl Measure {
    pub(crate) async fn begin(engine: Handle<Engine>, name: &str) -> Result<Self> {
        engine.own().flush().await?;
        let (number, before) = engine.own().begin_measure();
        Ok(Measure {
            name: name.into(),
            scope: Some(Scope::enter(name)),
            engine,
            number,
            before,
        })
    }

    /// Runs all recorded work and returns the measurement.
    ///
    /// # Errors
    /// As [`Gpu::flush`](crate::Gpu::flush).
    pub fn end(self) -> Result<Measured> {
        block_on("Measure::end", self.end_async())
    }

    /// As [`end`](Measure::end), as a future.
    pub async fn end_async(mut self) -> Result<Measured> {
        self.scope = None;
        self.engine.own().flush().await?;
        let (after, peaks) = self.engine.own().end_measure(self.number);
        let before = &self.before;
        let (now, then) = (&after.counters, &before.counters);
        let (peak_live_bytes, peak_reserved_bytes) = peaks.unwrap_or_default();
        Ok(Measured {
            name: std::mem::take(&mut self.name),
            live_before_bytes: before.live_bytes.now,
            peak_live_bytes,
            live_after_bytes: after.live_bytes.now,
            peak_reserved_bytes,
            allocated_bytes: after.live_bytes.up - before.live_bytes.up,
            allocations: after.allocations - before.allocations,
            freed_bytes: after.live_bytes.down - before.live_bytes.down,
            commands: now.commands - then.commands,
            submissions: now.submissions - then.submissions,
            buffers_created: after.buffers_created - before.buffers_created,
            moved_bytes: after.moved_bytes - before.moved_bytes,
            evicted_bytes: now.evicted_bytes - then.evicted_bytes,
            dropped_bytes: now.dropped_bytes - then.dropped_bytes,
            restored_bytes: now.restored_bytes - then.restored_bytes,
            refusals: now.refusals - then.refusals,
            waits: now.waits().since(&then.waits()),
        })
    }
}

impl Drop for Measure {
    fn drop(&mut self) {
        self.engine.own().give_up_measure(self.number);
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (self.live_before_bytes, self.live_after_bytes);
        let left = match after.checked_sub(before) {
            Some(more) => format!("left {} more", Bytes(more)),
            None => format!("left {} less", Bytes(before - after)),
        };
        write!(
            f,
            "{}: {} at most, {} allocated in {} blocks, {left}; {} commands in {} submissions",
            crate::memory::printable(&self.name, 40),
            Bytes(self.peak_live_bytes),
            Bytes(self.allocated_bytes),
            self.allocations,
            self.commands,
            self.submissions,
        )?;
        if [self.evicted_bytes, self.dropped_bytes, self.restored_bytes] != [0; 3] {
            let [evicted, dropped, restored] =
                [self.evicted_bytes, self.dropped_bytes, self.restored_bytes].map(Bytes);
            write!(
                f,
                "; {evicted} evicted, {dropped} dropped, {restored} restored"
            )?;
        }
        if self.waits.total().times > 0 {
            write!(f, "; waited for memory {}", self.waits)?;
        }
        Ok(())
    }
}
