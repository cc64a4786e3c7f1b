//! Staging for uploads: a few mapped chunks. A call fills them, and a command copies from them.
//!
//! ```text
//!   chunk  │ region │ region │ region │        room        │
//!          └ copied from by queued commands ┘  ▲ used_bytes
//!
//!   Mapped ──seal, before a submission──► Sealed ──no region left──► Returning ──signal──► Mapped
//! ```
//!
//! Natively a new chunk is `Returning`. Uploads and restores have chunks of their own.
//!
//! The bytes of a region are copied in under the lock of this module, so a chunk is never sealed
//! during such a copy. `Queue::write_buffer` is not used: it runs before everything that was
//! recorded earlier, and it creates a buffer for each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::driver::{
    Account, At, BoxFuture, BufferId, Device, DriverError, DriverResult, MapMode, Op, Signal,
};
use crate::finally::Finally;
use crate::units::MIB;
use crate::waits::WaitsFor;

/// The limit of all chunks together. An upload that finds no room waits for the device.
pub(crate) const UPLOAD_LIMIT_BYTES: u64 = 64 * MIB;

/// The device gets a large upload in parts of this size. It copies one part while the CPU fills the
/// next chunk. The part is large enough that a submission costs little beside it, and small enough
/// that the bytes stay in the CPU's caches.
pub(crate) const FEED_BYTES: u64 = 4 * MIB;

/// The least and the greatest size of a chunk, unless a budget or a refusal leaves less.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = MIB..=FEED_BYTES;

/// If chunks of this many bytes are returning, a wait for one of them is better than a new chunk.
/// The memory of a new chunk has never been touched.
const ENOUGH_BYTES: u64 = 4 * FEED_BYTES;

/// A large upload is not split to use room smaller than this.
const LEAST_PIECE_BYTES: u64 = 64 << 10;

/// Bytes in a chunk that wait for the submission that copies them.
#[derive(Debug)]
pub struct Region {
    pub(crate) buffer: BufferId,
    pub(crate) offset_bytes: u64,
    /// A multiple of 4.
    pub(crate) size_bytes: u64,
    /// The epoch of the region's device, as [`Uploads::epoch`] counts.
    pub(crate) epoch: u64,
    pending: Arc<AtomicU32>,
}

impl Region {
    /// The op that copies its bytes.
    pub(crate) fn copy_to(&self, to: At) -> Op {
        Op::Copy(At(self.buffer, self.offset_bytes), to, self.size_bytes)
    }

    /// The number of regions of its chunk that are not submitted yet.
    pub(crate) fn regions_of_chunk(&self) -> u32 {
        self.pending.load(Ordering::Acquire)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
enum Phase {
    /// The CPU may write into the chunk.
    Mapped,
    /// The chunk is unmapped, and some of its regions are not submitted yet.
    Sealed,
    /// The mapping was requested; it takes place as soon as the device has read the chunk.
    Returning(Signal),
}

#[derive(Debug)]
struct Chunk {
    buffer: BufferId,
    size_bytes: u64,
    used_bytes: u64,
    phase: Phase,
    pending: Arc<AtomicU32>,
}

impl Chunk {
    fn new(buffer: BufferId, size_bytes: u64, phase: Phase) -> Self {
        Chunk {
            buffer,
            size_bytes,
            used_bytes: 0,
            phase,
            pending: Arc::default(),
        }
    }

    fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }
}

/// The bytes of all chunks.
fn total_bytes(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(|chunk| chunk.size_bytes).sum()
}

/// Lets one thread at a time create a chunk.
///
/// Until the chunk is in the table, only the ledger knows of its bytes. Another thread would find
/// neither room nor a chunk to wait for, and would report a lack of memory.
#[derive(Debug, Default)]
struct Growth {
    is_locked: Mutex<bool>,
    ended: Condvar,
}

impl Growth {
    /// Keeps other threads from creating a chunk until the result is dropped. `None` if another
    /// thread was creating one, once that thread has ended.
    fn begin(&self) -> Option<Finally<impl FnMut()>> {
        let mut is_locked = self.is_locked.lock();
        if *is_locked {
            self.ended
                .wait_while(&mut is_locked, |is_locked| *is_locked);
            return None;
        }
        *is_locked = true;
        Some(Finally(|| {
            *self.is_locked.lock() = false;
            self.ended.notify_all();
        }))
    }
}

/// The staging chunks.
#[derive(Debug)]
pub(crate) struct Uploads {
    driver: Device,
    account: Account,
    /// Whether bytes were staged since the last trim.
    used: AtomicBool,
    chunks: Mutex<Vec<Chunk>>,
    growth: Growth,
    /// The number of times that all chunks were forgotten. It changes under the lock of the chunks.
    epoch: AtomicU64,
}

impl Uploads {
    pub(crate) fn new(driver: Device, account: Account) -> Self {
        Uploads {
            driver,
            account,
            used: AtomicBool::new(false),
            chunks: Mutex::new(Vec::new()),
            growth: Growth::default(),
            epoch: AtomicU64::new(0),
        }
    }

    /// Copies the first of `bytes` into a chunk: as many as one chunk has room for, padded with
    /// zeros to a multiple of 4. Returns the region and the number of bytes taken. `None` when no
    /// chunk has room. Then the caller calls [`grow`](Self::grow), or submits and calls
    /// [`wait`](Self::wait).
    pub(crate) fn stage(&self, bytes: &[u8]) -> DriverResult<Option<(Region, usize)>> {
        self.used.store(true, Ordering::Relaxed);
        let mut chunks = self.chunks.lock();
        self.sweep_locked(&mut chunks)?;
        let wanted_bytes = bytes.len() as u64;
        let room = |chunk: &Chunk| match chunk.phase {
            Phase::Mapped => chunk.size_bytes - chunk.used_bytes,
            _ => 0,
        };
        // If the budget is small, a whole chunk may be smaller than `LEAST_PIECE_BYTES`, and than
        // the rest of a chunk that is too full.
        let least_bytes = wanted_bytes.clamp(8, LEAST_PIECE_BYTES);
        let chunks = chunks.iter_mut();
        let with_room = chunks.filter(|chunk| room(chunk) >= least_bytes.min(chunk.size_bytes));
        let Some(chunk) = with_room.max_by_key(|chunk| room(chunk)) else {
            return Ok(None);
        };
        let room_bytes = room(chunk);
        // The room is a multiple of 8, so only the last piece of an upload is padded.
        let taken = wanted_bytes.min(room_bytes) as usize;
        let (whole, tail) = bytes[..taken].split_at(taken & !3);
        let offset_bytes = chunk.used_bytes;
        let at = At(chunk.buffer, offset_bytes);
        self.driver.write_mapped(at, whole)?;
        if !tail.is_empty() {
            let mut word = [0; 4];
            word[..tail.len()].copy_from_slice(tail);
            let at = At(at.0, at.1 + whole.len() as u64);
            self.driver.write_mapped(at, &word)?;
        }
        let size_bytes = (taken as u64).next_multiple_of(4);
        // A view of mapped memory starts at a multiple of 8.
        chunk.used_bytes += size_bytes.next_multiple_of(8);
        chunk.pending.fetch_add(1, Ordering::AcqRel);
        let region = Region {
            buffer: chunk.buffer,
            offset_bytes,
            size_bytes,
            epoch: self.epoch(),
            pending: chunk.pending.clone(),
        };
        Ok(Some((region, taken)))
    }

    /// Adds a chunk for an upload of `wanted_bytes` without a wait. `false` if the driver cannot do
    /// that, or if the chunk would exceed the limit.
    pub(crate) fn grow_now(&self, wanted_bytes: u64) -> DriverResult<bool> {
        let Some(size_bytes) = self.size_of_next(wanted_bytes) else {
            return Ok(false);
        };
        let mut chunks = self.chunks.lock();
        let label = "lapidary upload";
        let Some(made) = self.driver.create_mapped(self.account, size_bytes, label) else {
            return Ok(false);
        };
        chunks.push(Chunk::new(made?, size_bytes, Phase::Mapped));
        Ok(true)
    }

    /// The size of a chunk for an upload of `wanted_bytes`. `None` when it would exceed the limit.
    fn size_of_next(&self, wanted_bytes: u64) -> Option<u64> {
        let (least, most) = (*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
        let most = most.min(self.driver.caps().max_buffer_bytes);
        // The limit allows at least two chunks: the CPU fills one while the device reads the other.
        let limit_bytes = self.limit_bytes();
        let most = most.min(limit_bytes / 2) & !7;
        let size_bytes = wanted_bytes.clamp(least.min(most), most);
        let size_bytes = size_bytes.next_power_of_two().min(most);
        let total_bytes = total_bytes(&self.chunks.lock());
        (most > 0 && total_bytes + size_bytes <= limit_bytes).then_some(size_bytes)
    }

    /// Adds a chunk for an upload of `wanted_bytes`. `false` when it would exceed the limit, or
    /// there is no memory for it. `true` without a chunk when another thread added one meanwhile,
    /// or the device was replaced; then the caller asks again.
    pub(crate) fn grow(&self, wanted_bytes: u64) -> BoxFuture<'_, DriverResult<bool>> {
        Box::pin(async move {
            let epoch = self.epoch();
            match self.grow_in(epoch, wanted_bytes).await {
                Err(_) if self.epoch() != epoch => Ok(true),
                Err(DriverError::OutOfMemory | DriverError::OverBudget) => Ok(false),
                grown => grown,
            }
        })
    }

    /// As [`grow`](Self::grow), for the device that is there now.
    async fn grow_in(&self, epoch: u64, wanted_bytes: u64) -> DriverResult<bool> {
        // Where a creation may wait, the app may stop polling the future that creates a chunk. No
        // other thread waits for that.
        let mut guard = None;
        if !self.driver.returns_early() {
            guard = self.growth.begin();
            if guard.is_none() {
                return Ok(true);
            }
        }
        let Some(size_bytes) = self.size_of_next(wanted_bytes) else {
            return Ok(false);
        };
        let limit_bytes = self.limit_bytes();
        let (buffer, size_bytes) = self.create(size_bytes).await?;
        let mapped = self.driver.map(At(buffer, 0), MapMode::Write, size_bytes);
        let mapped = mapped.inspect_err(|_| self.driver.destroy_buffer(buffer, 0))?;
        // The chunk enters the table before the wait, so that a dropped future loses nothing. It
        // does not enter if other threads have grown meanwhile, or the device was replaced.
        let (kept, is_here) = {
            let mut chunks = self.chunks.lock();
            let is_here = self.epoch() == epoch;
            let kept = is_here && total_bytes(&chunks) + size_bytes <= limit_bytes;
            if kept {
                let phase = Phase::Returning(mapped.clone());
                chunks.push(Chunk::new(buffer, size_bytes, phase));
            }
            (kept, is_here)
        };
        drop(guard);
        if !kept {
            self.discard(buffer);
            return Ok(!is_here);
        }
        let waited = self.driver.wait_for(WaitsFor::Host, &mapped).await;
        if waited.is_err() {
            // Otherwise the chunk would count as one that soon returns.
            self.chunks.lock().retain(|chunk| chunk.buffer != buffer);
            self.discard(buffer);
        }
        waited.map(|()| true)
    }

    /// Destroys a mapped buffer that no submission uses.
    fn discard(&self, buffer: BufferId) {
        self.driver.unmap(buffer);
        self.driver.destroy_buffer(buffer, 0);
    }

    /// Creates a buffer of this size, or a smaller one if the driver has no more memory.
    async fn create(&self, mut size_bytes: u64) -> DriverResult<(BufferId, u64)> {
        loop {
            let label = "lapidary upload";
            let made = self.driver.create_buffer(self.account, size_bytes, label);
            match made.await {
                Ok(buffer) => return Ok((buffer, size_bytes)),
                Err(DriverError::OutOfMemory) if size_bytes > LEAST_PIECE_BYTES => {
                    size_bytes = ((size_bytes / 4) & !7).max(LEAST_PIECE_BYTES);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the chunks can hold this many bytes at once.
    pub(crate) fn holds(&self, size_bytes: u64) -> bool {
        self.limit_bytes() >= size_bytes
    }

    /// The most bytes that all chunks may take.
    pub(crate) fn limit_bytes(&self) -> u64 {
        UPLOAD_LIMIT_BYTES.min(self.driver.ledger().staging_share_bytes(self.account))
    }

    /// Whether some chunk returns without more memory: its regions are all submitted, or some are
    /// not among the `left_behind` regions, whose commands wait for memory.
    pub(crate) fn will_return(&self, left_behind: u64) -> bool {
        let chunks = self.chunks.lock();
        let mut pending_regions = 0;
        for chunk in chunks.iter() {
            match chunk.pending.load(Ordering::Acquire) {
                0 => return true,
                pending => pending_regions += u64::from(pending),
            }
        }
        pending_regions > left_behind
    }

    /// Unmaps the chunks that the next submission uses.
    pub(crate) fn seal(&self, regions: &[Region]) {
        if regions.is_empty() {
            return;
        }
        for chunk in self.chunks.lock().iter_mut() {
            let named = regions.iter().any(|region| region.buffer == chunk.buffer);
            if named && matches!(chunk.phase, Phase::Mapped) {
                self.driver.unmap(chunk.buffer);
                chunk.phase = Phase::Sealed;
            }
        }
    }

    /// Requests the mapping of chunks whose regions are all submitted.
    pub(crate) fn sweep(&self) -> DriverResult<()> {
        self.sweep_locked(&mut self.chunks.lock())
    }

    fn sweep_locked(&self, chunks: &mut Vec<Chunk>) -> DriverResult<()> {
        let mut broken = Vec::new();
        for (index, chunk) in chunks.iter_mut().enumerate() {
            let idle = chunk.is_idle();
            match &chunk.phase {
                Phase::Mapped if idle => chunk.used_bytes = 0,
                Phase::Mapped => {}
                Phase::Sealed if idle => {
                    let (buffer, size_bytes) = (chunk.buffer, chunk.size_bytes);
                    let back = self.driver.map(At(buffer, 0), MapMode::Write, size_bytes)?;
                    chunk.phase = Phase::Returning(back);
                }
                Phase::Sealed => {}
                Phase::Returning(signal) => match signal.outcome() {
                    Some(true) => {
                        chunk.phase = Phase::Mapped;
                        chunk.used_bytes = 0;
                    }
                    Some(false) => broken.push(index),
                    None => {}
                },
            }
        }
        for index in broken.into_iter().rev() {
            let chunk = chunks.swap_remove(index);
            self.driver.destroy_in_use(chunk.buffer);
        }
        Ok(())
    }

    /// Waits until a returning chunk is mapped, or is broken. `false` if no chunk is returning.
    pub(crate) async fn wait(&self) -> DriverResult<bool> {
        let next = {
            let chunks = self.chunks.lock();
            let signals = chunks.iter().filter_map(|chunk| match &chunk.phase {
                Phase::Returning(signal) => Some(signal.clone()),
                _ => None,
            });
            signals.min_by_key(Signal::serial)
        };
        let Some(signal) = next else {
            return Ok(false);
        };
        match self.driver.wait_for(WaitsFor::Host, &signal).await {
            Err(DriverError::Lost(reason)) => Err(DriverError::Lost(reason)),
            // This mapping failed, perhaps long ago. The next sweep removes the chunk, so there is
            // room for another.
            Err(_) if signal.outcome() == Some(false) => Ok(true),
            waited => waited.map(|()| true),
        }
    }

    /// Whether enough chunks are returning.
    pub(crate) fn has_enough(&self) -> bool {
        let chunks = self.chunks.lock();
        let back = chunks
            .iter()
            .filter(|chunk| matches!(chunk.phase, Phase::Returning(_)));
        back.map(|chunk| chunk.size_bytes).sum::<u64>() >= ENOUGH_BYTES
    }

    /// Whether there is an empty mapped chunk.
    pub(crate) fn has_room(&self) -> bool {
        let is_empty =
            |chunk: &Chunk| matches!(chunk.phase, Phase::Mapped) && chunk.used_bytes == 0;
        self.chunks.lock().iter().any(is_empty)
    }

    /// Releases the empty chunks to the driver.
    pub(crate) fn trim(&self) {
        self.chunks.lock().retain(|chunk| {
            let kept = !(chunk.is_idle() && matches!(chunk.phase, Phase::Mapped));
            if !kept {
                self.discard(chunk.buffer);
            }
            kept
        });
    }

    /// As [`trim`](Self::trim), unless bytes were staged since the last call.
    pub(crate) fn trim_unused(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            self.trim();
        }
    }

    /// Forgets all chunks, because their device is gone. The staged bytes are lost.
    pub(crate) fn forget_all(&self) {
        let mut chunks = self.chunks.lock();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        chunks.clear();
    }

    /// The number of times that all chunks were forgotten. Regions of an earlier epoch are lost.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
