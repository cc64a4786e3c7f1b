//! Reads and writes of the CPU: a buffer's range between the request for its mapping and the unmap.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::failure::invalid;
use super::super::{AdapterKind, At, BufferId, DriverError, DriverResult, MapMode, Signal};
use super::guard::Guard;
#[cfg(not(target_arch = "wasm32"))]
use super::guard::unscoped;
use super::opened::Opened;
#[cfg(not(target_arch = "wasm32"))]
use crate::finally::Finally;
use crate::parallel::{PART_BYTES, share_out};

/// wgpu gives views of ranges that start at a multiple of this.
const VIEW_ALIGNMENT_BYTES: u64 = wgpu::MAP_ALIGNMENT;

impl Opened {
    pub(super) fn map_range(&self, at: At, mode: MapMode, size_bytes: u64) -> DriverResult<Signal> {
        self.guard.check()?;
        let (signal, notice) = self.guard.progress.mapping();
        let raw = self.claim(at, size_bytes, &signal)?;
        let mode = match mode {
            MapMode::Read => wgpu::MapMode::Read,
            MapMode::Write => wgpu::MapMode::Write,
        };
        let refused = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&refused);
        let asked = self.guard.in_passing(|| {
            raw.map_async(mode, at.1..at.1 + size_bytes, move |result| {
                seen.store(result.is_err(), Ordering::Release);
                notice.tell(result.is_ok());
            });
            // Natively a wrong request, or one after a loss, is refused before the call returns.
            match refused.load(Ordering::Acquire) {
                true => invalid("the device refused to map the buffer in this mode"),
                false => Ok(signal),
            }
        });
        if asked.is_err() {
            self.end_mapping(at.0);
        }
        asked
    }

    /// Notes the mapping of a buffer. Refuses if the buffer is unknown, too short, or mapped
    /// already.
    fn claim(
        &self,
        At(buffer, offset_bytes): At,
        size_bytes: u64,
        signal: &Signal,
    ) -> DriverResult<wgpu::Buffer> {
        let mut tables = self.tables_mut();
        let Some(entry) = tables.buffers.get_mut(buffer.0) else {
            return invalid("a mapping of an unknown buffer");
        };
        let end = offset_bytes.checked_add(size_bytes);
        if end.is_none_or(|end| end > entry.raw.size()) {
            return invalid(format!(
                "a mapping of {size_bytes} bytes at {offset_bytes} of a buffer of {} bytes",
                entry.raw.size()
            ));
        }
        if entry.mapping.is_some() {
            return invalid("a mapping of a buffer that is mapped already");
        }
        entry.mapping = Some(signal.clone());
        Ok(entry.raw.clone())
    }

    pub(super) fn write_range(&self, At(buffer, at): At, bytes: &[u8]) -> DriverResult<()> {
        let raw = self.mapped(buffer)?;
        let first = at / VIEW_ALIGNMENT_BYTES * VIEW_ALIGNMENT_BYTES;
        let Some(end) = end_of(at, bytes.len() as u64, &raw) else {
            return invalid("a write past the end of a mapped buffer");
        };
        // A software adapter copies the previous piece on the same cores, and further threads would
        // disturb it.
        let by_threads = self.caps.kind != AdapterKind::Cpu;
        self.in_view(|| copy_into(&raw, first..end, at, bytes, by_threads))
    }

    pub(super) fn read_range(
        &self,
        At(buffer, at): At,
        size_bytes: u64,
        look: &mut dyn FnMut(&[u8]),
    ) -> DriverResult<()> {
        let raw = self.mapped(buffer)?;
        let Some(end) = end_of(at, size_bytes, &raw) else {
            return invalid("a read past the end of a mapped buffer");
        };
        let view = self.in_view(|| raw.get_mapped_range(at..end).map_err(refusal))?;
        // This call is not guarded: a panic in `look` belongs to the caller.
        look(&view[..size_bytes as usize]);
        Ok(())
    }

    /// Gets a view of a mapped buffer within its range.
    fn in_view<T>(&self, call: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        let shown = self.guard.in_passing(call);
        // A browser refuses a view if the page has destroyed the device; the promise of the device
        // reports that later. A RangeError has another cause: the page has no room for the bytes.
        #[cfg(target_arch = "wasm32")]
        let shown = shown.map_err(|error| match &error {
            DriverError::Invalid(reason) if reason.contains("RangeError") => error,
            _ => self.guard.gone(),
        });
        shown
    }

    /// Maps a range, passes it to `look` and ends the mapping. Otherwise that takes four calls,
    /// each with a question to the device. `None` if the mapping does not come at once; then
    /// nothing has changed.
    ///
    /// No question to the device is needed here. A lost device refuses the request for a mapping,
    /// and everything before the request was done by a device that existed.
    #[cfg(not(target_arch = "wasm32"))]
    fn map_now(
        &self,
        at: At,
        mode: MapMode,
        size_bytes: u64,
        look: impl FnOnce(&wgpu::Buffer) -> DriverResult<()>,
    ) -> Option<DriverResult<()>> {
        let signal = match self.map_range(at, mode, size_bytes) {
            Ok(signal) => signal,
            Err(error) => return Some(Err(error)),
        };
        let ended = Finally(|| self.end_mapping(at.0));
        let looked = self.guard.look(wgpu::PollType::Poll);
        let raw = match (looked, signal.outcome()) {
            (Err(error), _) => return Some(Err(error)),
            (Ok(()), Some(true)) => self.mapped(at.0),
            (Ok(()), _) => return None,
        };
        let shown = raw.and_then(|raw| look(&raw));
        drop(ended);
        Some(shown.and_then(|()| self.guard.check()))
    }

    /// Writes to a buffer that no submission uses, in one step.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn write_now(&self, At(buffer, at): At, bytes: &[u8]) -> Option<DriverResult<()>> {
        let first = at / VIEW_ALIGNMENT_BYTES * VIEW_ALIGNMENT_BYTES;
        let end = (at + bytes.len() as u64).next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        self.map_now(At(buffer, first), MapMode::Write, end - first, |raw| {
            unscoped(|| copy_into(raw, first..end, at, bytes, true))
        })
    }

    /// Passes a range of a buffer that no submission uses to `look`, in one step.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn read_now(
        &self,
        at: At,
        size_bytes: u64,
        look: &mut dyn FnMut(&[u8]),
    ) -> Option<DriverResult<()>> {
        self.map_now(at, MapMode::Read, size_bytes, |raw| {
            let range = at.1..at.1 + size_bytes;
            let view = unscoped(|| raw.get_mapped_range(range).map_err(refusal))?;
            look(&view);
            Ok(())
        })
    }

    fn mapped(&self, buffer: BufferId) -> DriverResult<wgpu::Buffer> {
        self.guard.check()?;
        let tables = self.tables();
        match tables.buffers.get(buffer.0) {
            Some(entry) if entry.mapping.is_some() => Ok(entry.raw.clone()),
            _ => invalid("an access to a buffer that is not mapped"),
        }
    }

    pub(super) fn end_mapping(&self, buffer: BufferId) {
        let mut tables = self.tables_mut();
        let Some(entry) = tables.buffers.get_mut(buffer.0) else {
            return;
        };
        let Some(signal) = entry.mapping.take() else {
            return;
        };
        let raw = entry.raw.clone();
        drop(tables);
        unmap(&self.guard, &raw, &signal);
    }
}

/// Ends a mapping, or takes back a request for one.
pub(super) fn unmap(guard: &Guard, raw: &wgpu::Buffer, signal: &Signal) {
    loop {
        let pending = signal.outcome().is_none();
        let unmapped = guard.in_passing(|| {
            raw.unmap();
            Ok(())
        });
        let done = unmapped.is_ok() || signal.outcome() == Some(false);
        // If another thread's poll is mapping the buffer at this moment, wgpu calls the buffer
        // unmapped, and maps it a moment later.
        if done || !pending {
            return;
        }
        std::thread::yield_now();
    }
}

/// Writes to a mapped buffer at `offset_bytes`, which lies inside `view`. With `by_threads` several
/// threads share large copies.
fn copy_into(
    raw: &wgpu::Buffer,
    view: Range<u64>,
    offset_bytes: u64,
    bytes: &[u8],
    by_threads: bool,
) -> DriverResult<()> {
    let start = (offset_bytes - view.start) as usize;
    let mut view = raw.get_mapped_range_mut(view).map_err(refusal)?;
    let mut view = view.slice(start..start + bytes.len());
    if !by_threads {
        view.copy_from_slice(bytes);
        return Ok(());
    }
    // Of a range mapped for writing, wgpu gives only arrays of one size to other threads.
    let (parts, mut rest) = view.into_chunks::<PART_BYTES>();
    let from = bytes.chunks_exact(PART_BYTES);
    rest.copy_from_slice(from.remainder());
    let parts: Vec<_> = parts.into_iter().zip(from).collect();
    share_out(bytes.len(), parts.into_iter(), |(to, from)| {
        wgpu::WriteOnly::<[u8]>::from(to).copy_from_slice(from);
    });
    Ok(())
}

/// The end of a view of the range: wgpu gives views of multiples of 4 bytes.
fn end_of(offset_bytes: u64, size_bytes: u64, raw: &wgpu::Buffer) -> Option<u64> {
    let end = offset_bytes.checked_add(size_bytes)?;
    let end = end.checked_next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT)?;
    (end <= raw.size()).then_some(end)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn refusal(error: wgpu::MapRangeError) -> DriverError {
    DriverError::Invalid(error.to_string())
}
