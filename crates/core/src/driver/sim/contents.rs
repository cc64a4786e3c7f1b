//! The memory of the simulated device: its buffers, their sizes and their contents.
//!
//! A destroyed buffer leaves the table at once, so that no new op can name it. It *retires*: its
//! bytes and its memory stay until the submissions that use it are executed.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::driver::table::Table;
use crate::driver::{At, Binding, BufferId, BufferKind, MapMode, Signal};

/// The byte that fills new slabs if `dirty` is set.
const DIRT: u8 = 0xA5;

/// The state of a buffer between host and device.
#[derive(Debug)]
pub(super) enum Mapping {
    /// Submissions may name the buffer.
    None,
    /// The host has requested a mapping and waits for it.
    Wanted {
        mode: MapMode,
        range: Range<u64>,
        ready: Signal,
    },
    /// The buffer is mapped.
    Mapped { mode: MapMode, range: Range<u64> },
    /// The mapping failed, and the host has not unmapped the buffer yet.
    Failed,
}

impl Mapping {
    /// Whether the buffer is mapped, or a mapping is requested.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Mapping::Wanted { .. } | Mapping::Mapped { .. })
    }
}

/// A buffer.
#[derive(Debug)]
pub(super) struct SimBuffer {
    pub(super) kind: BufferKind,
    pub(super) size_bytes: u64,
    pub(super) label: String,
    pub(super) mapping: Mapping,
    /// The last submission that names the buffer; 0 for none.
    pub(super) last_use: u64,
    /// Empty if only sizes are simulated.
    bytes: Vec<u8>,
}

impl BufferKind {
    fn is_slab(self) -> bool {
        matches!(self, BufferKind::Slab | BufferKind::HostSlab)
    }

    /// The bytes of the device's memory that a buffer of this kind and size takes. Staging counts
    /// as the device's.
    fn device_bytes(self, size_bytes: u64) -> u64 {
        match self {
            BufferKind::HostSlab => 0,
            _ => size_bytes,
        }
    }
}

/// All buffers.
#[derive(Debug, Default)]
pub(super) struct Contents {
    live: Table<SimBuffer>,
    retiring: FxHashMap<BufferId, SimBuffer>,
    pub(super) live_bytes: u64,
    pub(super) retiring_bytes: u64,
    pub(super) peak_bytes: u64,
    /// The contents of buffers that have only sizes.
    zeros: Arc<[u8]>,
}

impl Contents {
    /// The kind of an existing buffer.
    pub(super) fn kind(&self, id: BufferId) -> Option<BufferKind> {
        self.live.get(id.0).map(|buffer| buffer.kind)
    }

    /// Creates a buffer, with bytes if `contents`. `None` if the host itself has no memory.
    pub(super) fn create(
        &mut self,
        kind: BufferKind,
        size_bytes: u64,
        label: String,
        contents: bool,
        dirty: bool,
    ) -> Option<BufferId> {
        let bytes = match contents {
            true => host_bytes(size_bytes, dirty && kind.is_slab())?,
            false => Vec::new(),
        };
        self.live_bytes += kind.device_bytes(size_bytes);
        self.peak_bytes = self.peak_bytes.max(self.taken_bytes());
        Some(BufferId(self.live.insert(SimBuffer {
            kind,
            size_bytes,
            label,
            mapping: Mapping::None,
            last_use: 0,
            bytes,
        })))
    }

    /// The bytes that live and retiring buffers take.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.live_bytes + self.retiring_bytes
    }

    pub(super) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// The buffer, unless it was destroyed.
    pub(super) fn get(&self, id: BufferId) -> Option<&SimBuffer> {
        self.live.get(id.0)
    }

    pub(super) fn get_mut(&mut self, id: BufferId) -> Option<&mut SimBuffer> {
        self.live.get_mut(id.0)
    }

    /// Removes all buffers, also those in use. Their ids never name a later buffer.
    pub(super) fn destroy_all(&mut self) {
        drop(self.live.clear());
        self.retiring.clear();
        (self.live_bytes, self.retiring_bytes) = (0, 0);
        self.zeros = Arc::default();
    }

    /// Removes a buffer from the table. Its memory returns once `completed` reaches its last use.
    /// Returns the buffer's mapping.
    pub(super) fn destroy(&mut self, id: BufferId, completed: u64) -> Option<Mapping> {
        let mut buffer = self.live.remove(id.0)?;
        let mapping = std::mem::replace(&mut buffer.mapping, Mapping::None);
        let device_bytes = buffer.kind.device_bytes(buffer.size_bytes);
        self.live_bytes -= device_bytes;
        if buffer.last_use > completed {
            self.retiring_bytes += device_bytes;
            self.retiring.insert(id, buffer);
        }
        Some(mapping)
    }

    /// Frees the destroyed buffers that no submission after `completed` uses.
    pub(super) fn retire(&mut self, completed: u64) {
        let retiring_bytes = &mut self.retiring_bytes;
        self.retiring.retain(|_, buffer| {
            let used = buffer.last_use > completed;
            if !used {
                *retiring_bytes -= buffer.kind.device_bytes(buffer.size_bytes);
            }
            used
        });
    }

    /// At least `size_bytes` of a buffer's contents; zeros if it has none.
    pub(super) fn read(&mut self, At(id, offset_bytes): At, size_bytes: u64) -> Arc<[u8]> {
        let bytes = self.live.get(id.0).map(|buffer| &buffer.bytes);
        if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
            return bytes[host_range(offset_bytes, size_bytes)].into();
        }
        if (self.zeros.len() as u64) < size_bytes {
            self.zeros = vec![0; size_bytes as usize].into();
        }
        self.zeros.clone()
    }

    /// Copies between two buffers. The submission has checked that they are valid and different.
    pub(super) fn copy(&mut self, src: At, dst: At, size_bytes: u64) {
        let mut target = std::mem::take(self.bytes_mut(dst.0));
        target[host_range(dst.1, size_bytes)]
            .copy_from_slice(&self.bytes(src.0)[host_range(src.1, size_bytes)]);
        *self.bytes_mut(dst.0) = target;
    }

    /// Sets a range to zero.
    pub(super) fn clear(&mut self, at: At, size_bytes: u64) {
        self.bytes_mut(at.0)[host_range(at.1, size_bytes)].fill(0);
    }

    /// Writes bytes, which the submission has checked.
    pub(super) fn write(&mut self, at: At, bytes: &[u8]) {
        let range = host_range(at.1, bytes.len() as u64);
        self.bytes_mut(at.0)[range].copy_from_slice(bytes);
    }

    /// The bytes of a binding.
    pub(super) fn load(&self, binding: &Binding) -> Vec<u8> {
        let range = host_range(binding.offset_bytes, binding.size_bytes);
        self.bytes(binding.buffer)[range].to_vec()
    }

    /// Replaces the bytes of a binding.
    pub(super) fn store(&mut self, binding: &Binding, bytes: &[u8]) {
        let range = host_range(binding.offset_bytes, binding.size_bytes);
        self.bytes_mut(binding.buffer)[range].copy_from_slice(bytes);
    }

    fn bytes(&self, id: BufferId) -> &Vec<u8> {
        let buffer = self.live.get(id.0).or_else(|| self.retiring.get(&id));
        &buffer.expect(KEPT).bytes
    }

    fn bytes_mut(&mut self, id: BufferId) -> &mut Vec<u8> {
        let buffer = (self.live.get_mut(id.0)).or_else(|| self.retiring.get_mut(&id));
        &mut buffer.expect(KEPT).bytes
    }
}

const KEPT: &str = "a buffer stays until the submissions that use it are executed";

impl SimBuffer {
    /// Replaces a part of the contents, if the buffer has contents.
    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        if !self.bytes.is_empty() {
            self.bytes[host_range(offset_bytes, bytes.len() as u64)].copy_from_slice(bytes);
        }
    }

    /// Whether a mapping was requested and not ended. Then submissions must not name the buffer.
    pub(super) fn is_mapped(&self) -> bool {
        !matches!(self.mapping, Mapping::None)
    }
}

/// A range as indices of the host. It was checked against the buffer, whose bytes fit in memory.
fn host_range(offset_bytes: u64, size_bytes: u64) -> Range<usize> {
    offset_bytes as usize..(offset_bytes + size_bytes) as usize
}

/// Checks first whether there is memory, since a plain `vec!` aborts without it. Requests zeroed
/// memory, which costs nothing until it is touched.
fn host_bytes(size_bytes: u64, dirty: bool) -> Option<Vec<u8>> {
    let size = usize::try_from(size_bytes).ok()?;
    Vec::<u8>::new().try_reserve_exact(size).ok()?;
    Some(match dirty {
        true => vec![DIRT; size],
        false => vec![0; size],
    })
}
