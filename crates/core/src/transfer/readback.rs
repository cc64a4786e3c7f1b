//! Reading back: the device copies into a buffer that the CPU maps once the copy is done.
//!
//! A read is a [`Reading`], cut into [`Piece`]s of at most 4 MiB. Each piece is a command. When the
//! execution pass encodes the command, it takes a buffer from the pool. When the submission is
//! done, the bytes go to the reading's sink, in order, and the buffer returns to the pool. The pool
//! is bounded. When it is used up, the thread that executes the queue takes in the oldest pieces,
//! also those of readings that no thread waits for. So any number of reads may be in flight.

mod guard;
mod shown;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::refusal;
use crate::driver::{
    Account, At, BoxFuture, BufferId, Device, DriverError, DriverResult, MapMode, Signal,
};
use crate::error::Error;
use crate::units::MIB;
use crate::waits::WaitsFor;
pub(crate) use guard::ReadingGuard;

/// The limit of the pool. When its buffers reach it, the oldest pieces are taken in first.
const LIMIT_BYTES: u64 = 64 * MIB;

/// The largest piece. The host copies one piece out while the device copies the next.
const PIECE_BYTES: u64 = 4 * MIB;

/// A piece of at least this size is submitted at once, so that it arrives before the pieces after
/// it.
pub(crate) const LARGE_PIECE_BYTES: u64 = MIB;

/// The smallest buffer. Larger ones are powers of two times this.
const LEAST_BUFFER_BYTES: u64 = 4 << 10;

/// The size of the buffer that is kept for when the driver has no memory left.
const KEPT_BYTES: u64 = 64 << 10;

/// The target for the bytes of a reading. It gets them in order.
pub(crate) type Sink = Box<dyn FnMut(&[u8]) + Send>;

/// A part of a reading: `size_bytes` bytes from `offset_bytes` of the storage.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub(crate) offset_bytes: u64,
    pub(crate) size_bytes: u64,
}

/// Whether an error came late, from a browser, though the mapping seems to have the bytes: the copy
/// may be what was refused.
fn is_refused(signal: &Signal, waited: &DriverResult<()>) -> bool {
    let is_lost = |error: &DriverError| matches!(error, DriverError::Lost(_));
    signal.outcome() == Some(true) && waited.as_ref().is_err_and(|error| !is_lost(error))
}

impl Piece {
    /// The words that contain the piece: (offset, size), both multiples of 4.
    pub(crate) fn words(&self) -> (u64, u64) {
        let start = self.offset_bytes & !3;
        let end = (self.offset_bytes + self.size_bytes).next_multiple_of(4);
        (start, end - start)
    }
}

struct InFlight {
    piece: Piece,
    buffer: BufferId,
    buffer_bytes: u64,
    signal: Signal,
    /// The epoch of the buffer's device, as [`ReadbackPool::epoch`] counts.
    epoch: u64,
}

/// A read in progress.
pub struct Reading {
    state: Mutex<ReadingState>,
    /// The number of submitted pieces. Callers that must not wait read it without the lock: bytes
    /// are copied under the lock.
    under_way: AtomicUsize,
    awaited: AtomicBool,
    cancelled: AtomicBool,
    failure: OnceLock<Error>,
}

struct ReadingState {
    sink: Sink,
    in_flight: VecDeque<InFlight>,
    pieces_left: usize,
}

debug_by_name!(Reading);

impl Reading {
    /// A reading of `size_bytes` from `offset_bytes`, and its pieces. Each piece has at most
    /// `piece_bytes`, which [`Readbacks::piece_bytes`] gives.
    pub(crate) fn new(
        offset_bytes: u64,
        size_bytes: u64,
        piece_bytes: u64,
        sink: Sink,
    ) -> (Arc<Self>, Vec<Piece>) {
        let mut pieces = Vec::new();
        let (mut at, end) = (offset_bytes, offset_bytes + size_bytes);
        while at < end {
            // Every piece but the first starts at a whole word.
            let stop = end.min((at & !3) + piece_bytes);
            pieces.push(Piece {
                offset_bytes: at,
                size_bytes: stop - at,
            });
            at = stop;
        }
        let reading = Reading {
            state: Mutex::new(ReadingState {
                sink,
                in_flight: VecDeque::new(),
                pieces_left: pieces.len(),
            }),
            under_way: AtomicUsize::new(0),
            awaited: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            failure: OnceLock::new(),
        };
        (Arc::new(reading), pieces)
    }

    /// From now on the executing thread waits for the bytes and has no other work.
    pub(crate) fn await_now(&self) {
        self.awaited.store(true, Ordering::Release);
    }

    /// Whether the executing thread waits for the bytes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Notes that no thread needs the bytes any more.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether no thread needs the bytes any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Notes that the bytes will not arrive, and why. Only the first reason counts.
    #[cold]
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
        self.cancel();
    }

    /// The reason why the bytes will not arrive, if there is one.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Whether all pieces have arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.state.lock().pieces_left == 0
    }

    /// Delivers a piece that needed no buffer of the pool, because its block itself was mapped.
    pub(crate) fn deliver(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        (state.sink)(bytes);
        state.pieces_left -= 1;
    }

    /// Whether all pieces that have not arrived are submitted, or none will be any more.
    pub(crate) fn is_submitted(&self) -> bool {
        let state = self.state.lock();
        state.pieces_left == state.in_flight.len() || self.failure.get().is_some()
    }

    /// The signal of the next piece to arrive. `None` if no piece is submitted.
    pub(crate) fn next_signal(&self) -> Option<Signal> {
        let state = self.state.lock();
        state.in_flight.front().map(|next| next.signal.clone())
    }

    /// Whether the next piece has arrived and no other thread is taking it in.
    fn has_arrived(&self) -> bool {
        let Some(state) = self.state.try_lock() else {
            return false;
        };
        let next = state.in_flight.front();
        next.is_some_and(|next| next.signal.outcome().is_some())
    }
}

#[derive(Debug, Default)]
struct ReadbackPool {
    free: Vec<(BufferId, u64)>,
    total_bytes: u64,
    /// Readings with submitted pieces, oldest first.
    readings: VecDeque<Arc<Reading>>,
    kept: SpareBuffer,
    /// The number of times that all buffers were forgotten.
    epoch: u64,
    /// The bytes of buffers whose contents a caller is looking at.
    shown_bytes: u64,
}

/// A buffer for when the driver has no memory for another. Without a buffer, no tensor could be
/// evicted to free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SpareBuffer {
    #[default]
    None,
    Idle(BufferId),
    /// The pool is using the buffer.
    Lent,
}

impl ReadbackPool {
    /// Counts a destroyed buffer. If it was the kept buffer, another will be created.
    fn forget(&mut self, buffer_bytes: u64) {
        self.total_bytes -= buffer_bytes;
        if self.kept == SpareBuffer::Lent && buffer_bytes == KEPT_BYTES {
            self.kept = SpareBuffer::None;
        }
    }

    /// Takes the buffer of a piece back, or counts it as destroyed if it is not usable.
    fn take_back(&mut self, arrived: &InFlight, is_usable: bool) {
        if arrived.epoch != self.epoch {
            // The buffer was lost with its device.
        } else if is_usable {
            self.free.push((arrived.buffer, arrived.buffer_bytes));
        } else {
            self.forget(arrived.buffer_bytes);
        }
    }

    /// Forgets the readings without submitted pieces. It asks for these without the reading's lock:
    /// the pool is asked for buffers in places that must not wait for a copy.
    fn forget_arrived(&mut self) {
        self.readings
            .retain(|reading| reading.under_way.load(Ordering::Acquire) > 0);
    }
}

/// The pool of read-back buffers.
#[derive(Debug)]
pub(crate) struct Readbacks {
    driver: Device,
    /// Whether a read took place since the last trim.
    used: AtomicBool,
    pool: Mutex<ReadbackPool>,
}

impl Readbacks {
    pub(crate) fn new(driver: Device) -> Self {
        Readbacks {
            driver,
            used: AtomicBool::new(false),
            pool: Mutex::new(ReadbackPool::default()),
        }
    }

    /// The largest piece. At least two pieces fit into the pool.
    pub(crate) fn piece_bytes(&self) -> u64 {
        let most_bytes = self.driver.caps().max_buffer_bytes & !3;
        let half_bytes = most_bytes.min(self.limit_bytes() / 2);
        let most_bytes = half_bytes.clamp(self.least_buffer_bytes(), PIECE_BYTES);
        1 << most_bytes.ilog2()
    }

    /// Half of the staging bytes of the budget, or more while the budget has room.
    fn limit_bytes(&self) -> u64 {
        LIMIT_BYTES.min(self.driver.ledger().staging_share_bytes(Account::Readbacks))
    }

    /// The smallest buffer that is worth creating. It is smaller if the budget is tiny.
    fn least_buffer_bytes(&self) -> u64 {
        let half_bytes = (self.limit_bytes() / 2).max(64);
        LEAST_BUFFER_BYTES.min(1 << half_bytes.ilog2())
    }

    /// A free buffer of at least `size_bytes`, with its size. `None` if the pool has none.
    pub(crate) fn take(&self, size_bytes: u64) -> Option<(BufferId, u64)> {
        self.used.store(true, Ordering::Relaxed);
        let mut pool = self.pool.lock();
        let fits = pool.free.iter().enumerate();
        let fits = fits.filter(|(_, (_, bytes))| *bytes >= size_bytes);
        let (index, _) = fits.min_by_key(|(_, (_, bytes))| *bytes)?;
        Some(pool.free.swap_remove(index))
    }

    /// Provides a free buffer for a piece: a new one, or one of an older piece. The submission of
    /// the older piece must be in progress.
    pub(crate) fn provide(&self, size_bytes: u64) -> BoxFuture<'_, DriverResult<()>> {
        Box::pin(async move {
            let most = self.driver.caps().max_buffer_bytes & !3;
            let buffer_bytes = size_bytes
                .next_power_of_two()
                .max(self.least_buffer_bytes());
            let buffer_bytes = buffer_bytes.min(most).max(size_bytes);
            let limit_bytes = self.limit_bytes();
            self.take_in_all(Reading::is_cancelled);
            let mut refused = None;
            loop {
                let (oldest, too_small) = {
                    let mut pool = self.pool.lock();
                    if pool.free.iter().any(|(_, bytes)| *bytes >= size_bytes) {
                        return Ok(());
                    }
                    let fits = pool.total_bytes + buffer_bytes <= limit_bytes;
                    match fits && refused.is_none() {
                        true => (None, None),
                        false => (pool.readings.front().cloned(), pool.free.pop()),
                    }
                };
                if let Some(too_small) = too_small {
                    self.set_aside(&mut self.pool.lock(), too_small);
                    refused = None;
                    continue;
                }
                if let Some(oldest) = oldest {
                    self.take_in(&oldest).await?;
                    // The copies of that submission have arrived too. So there is no need to wait
                    // for each.
                    self.take_in_all(Reading::has_arrived);
                    continue;
                }
                if let Some(error) = refused {
                    return Err(error);
                }
                match self.create(buffer_bytes).await {
                    Ok(buffer) => {
                        let mut pool = self.pool.lock();
                        pool.total_bytes += buffer_bytes;
                        pool.free.push((buffer, buffer_bytes));
                        return Ok(());
                    }
                    // The buffers that are in use may be reused.
                    Err(error @ (DriverError::OutOfMemory | DriverError::OverBudget)) => {
                        if self.lend_kept(size_bytes) {
                            return Ok(());
                        }
                        refused = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    async fn create(&self, buffer_bytes: u64) -> DriverResult<BufferId> {
        let (account, label) = (Account::Readbacks, "lapidary read-back");
        self.driver
            .create_buffer(account, buffer_bytes, label)
            .await
    }

    /// Keeps a small buffer aside as long as there is something to evict. If there is no memory for
    /// this buffer, the driver has none to save either.
    pub(crate) async fn keep_one(&self) {
        if self.pool.lock().kept != SpareBuffer::None {
            return;
        }
        if let Ok(buffer) = self.create(KEPT_BYTES).await {
            self.pool.lock().kept = SpareBuffer::Idle(buffer);
        }
    }

    /// Releases the kept buffer, because nothing is left to evict.
    pub(crate) fn keep_none(&self) {
        let kept = std::mem::take(&mut self.pool.lock().kept);
        if let SpareBuffer::Idle(buffer) = kept {
            self.driver.destroy_buffer(buffer, 0);
        }
    }

    fn lend_kept(&self, size_bytes: u64) -> bool {
        let mut pool = self.pool.lock();
        match pool.kept {
            SpareBuffer::Idle(buffer) if size_bytes <= KEPT_BYTES => {
                pool.kept = SpareBuffer::Lent;
                pool.free.push((buffer, KEPT_BYTES));
                pool.total_bytes += KEPT_BYTES;
                true
            }
            _ => false,
        }
    }

    /// The bytes of pieces that need not wait for older ones.
    pub(crate) fn room_bytes(&self) -> u64 {
        let limit_bytes = self.limit_bytes();
        let pool = self.pool.lock();
        let free_bytes: u64 = pool.free.iter().map(|(_, bytes)| bytes).sum();
        free_bytes + limit_bytes.saturating_sub(pool.total_bytes)
    }

    /// Whether a piece finds a free buffer, or room for a new one, without waiting for an older
    /// piece.
    pub(crate) fn has_room(&self, size_bytes: u64) -> bool {
        let is_free = {
            let pool = self.pool.lock();
            pool.free.iter().any(|(_, bytes)| *bytes >= size_bytes)
        };
        is_free || self.room_bytes() >= size_bytes.next_power_of_two()
    }

    /// Maps the buffer, once the submitted copy of a piece into it is done.
    pub(crate) fn submitted(
        &self,
        reading: &Arc<Reading>,
        piece: Piece,
        (buffer, buffer_bytes): (BufferId, u64),
    ) -> DriverResult<()> {
        let (_, size_bytes) = piece.words();
        let signal = match self.driver.map(At(buffer, 0), MapMode::Read, size_bytes) {
            Ok(signal) => signal,
            Err(error) => {
                self.driver.destroy_in_use(buffer);
                self.pool.lock().forget(buffer_bytes);
                return Err(error);
            }
        };
        let epoch = self.pool.lock().epoch;
        reading.under_way.fetch_add(1, Ordering::AcqRel);
        reading.state.lock().in_flight.push_back(InFlight {
            piece,
            buffer,
            buffer_bytes,
            signal,
            epoch,
        });
        let mut pool = self.pool.lock();
        let is_known = (pool.readings.iter()).any(|other| Arc::ptr_eq(other, reading));
        if !is_known {
            pool.readings.push_back(reading.clone());
        }
        Ok(())
    }

    /// Returns a buffer to the pool. Its copy was never submitted.
    pub(crate) fn give_back(&self, buffer: (BufferId, u64)) {
        self.pool.lock().free.push(buffer);
    }

    /// Waits for the next piece of a reading and hands its bytes to the sink. If the piece did not
    /// arrive, the reading fails. An error means that the caller could not wait.
    pub(crate) async fn take_in(&self, reading: &Arc<Reading>) -> DriverResult<()> {
        let Some(signal) = reading.next_signal() else {
            return Ok(());
        };
        let waited = self.driver.wait_for(WaitsFor::Host, &signal).await;
        if signal.outcome().is_none() || is_refused(&signal, &waited) {
            return waited;
        }
        self.take_in_arrived(reading);
        Ok(())
    }

    /// Takes in what has arrived of the readings that are `wanted`. Of a cancelled reading it takes
    /// only the buffers.
    fn take_in_all(&self, wanted: fn(&Reading) -> bool) {
        let readings: Vec<_> = self.pool.lock().readings.iter().cloned().collect();
        let readings = readings.iter().filter(|reading| wanted(reading));
        readings.for_each(|reading| self.take_in_arrived(reading));
    }

    /// Hands over the pieces that have arrived, and takes their buffers back.
    pub(crate) fn take_in_arrived(&self, reading: &Arc<Reading>) {
        let mut back = Vec::new();
        self.pass_on_arrived(reading, &mut back);
        let mut pool = self.pool.lock();
        for (arrived, is_usable) in back {
            pool.take_back(&arrived, is_usable);
        }
        pool.forget_arrived();
    }

    /// Hands over the pieces that have arrived, in order. The freed buffers go to `back`, each with
    /// whether it can be used again.
    fn pass_on_arrived(&self, reading: &Reading, back: &mut Vec<(InFlight, bool)>) {
        let mut state = reading.state.lock();
        while let Some(mapped) = state
            .in_flight
            .front()
            .and_then(|next| next.signal.outcome())
        {
            let Some(arrived) = state.in_flight.pop_front() else {
                break;
            };
            let buffer = arrived.buffer;
            let read = match mapped {
                true if reading.is_cancelled() => Ok(()),
                true => self.pass_on(&arrived, &mut state.sink),
                false => Err(self.why_not_mapped()),
            };
            self.driver.unmap(buffer);
            if read.is_err() {
                self.driver.destroy_in_use(buffer);
            }
            back.push((arrived, read.is_ok()));
            // This comes last: a replacement of the device waits for readings with submitted
            // pieces.
            reading.under_way.fetch_sub(1, Ordering::AcqRel);
            match read {
                Ok(()) => state.pieces_left -= 1,
                Err(error) => reading.fail(refusal("a read", error)),
            }
        }
    }

    /// The reading is in progress here, and a lost device is not replaced before it ends. So the
    /// answer is about the right device.
    fn why_not_mapped(&self) -> DriverError {
        match self.driver.lost() {
            Some(reason) => DriverError::Lost(reason.to_string()),
            None => DriverError::Invalid("a read-back buffer was not mapped".into()),
        }
    }

    /// Passes the bytes of a mapped piece to `look`.
    fn pass_on(&self, arrived: &InFlight, look: &mut dyn FnMut(&[u8])) -> DriverResult<()> {
        let skip = (arrived.piece.offset_bytes & 3) as usize;
        let end = skip + arrived.piece.size_bytes as usize;
        let (_, size_bytes) = arrived.piece.words();
        let mut look = |bytes: &[u8]| look(&bytes[skip..end]);
        (self.driver).read_mapped(At(arrived.buffer, 0), size_bytes, &mut look)
    }

    /// Releases a free buffer to the driver, unless it is the kept one.
    fn set_aside(&self, pool: &mut ReadbackPool, (buffer, buffer_bytes): (BufferId, u64)) {
        pool.total_bytes -= buffer_bytes;
        if pool.kept == SpareBuffer::Lent && buffer_bytes == KEPT_BYTES {
            pool.kept = SpareBuffer::Idle(buffer);
        } else {
            self.driver.destroy_buffer(buffer, 0);
        }
    }

    /// Releases the free buffers to the driver. First it hands over what has arrived: who reads may
    /// ask for it late.
    pub(crate) fn trim(&self) {
        self.take_in_all(|reading| reading.is_cancelled() || reading.has_arrived());
        let mut pool = self.pool.lock();
        while let Some(free) = pool.free.pop() {
            self.set_aside(&mut pool, free);
        }
    }

    /// As [`trim`](Self::trim), unless a read took place since the last call.
    pub(crate) fn trim_unused(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            self.trim();
        }
    }

    /// Forgets all buffers, because their device is gone. Readings in progress fail with `cause`.
    pub(crate) fn forget_all(&self, cause: &Error) {
        let readings = {
            let mut pool = self.pool.lock();
            pool.epoch += 1;
            pool.free.clear();
            pool.total_bytes = 0;
            pool.kept = SpareBuffer::None;
            std::mem::take(&mut pool.readings)
        };
        for reading in readings {
            reading.state.lock().in_flight.clear();
            reading.fail(cause.clone());
        }
    }
}

#[cfg(test)]
mod tests;
