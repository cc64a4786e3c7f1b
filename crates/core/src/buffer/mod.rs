//! Buffers: bytes that the engine places, moves, evicts and restores. A buffer is only a handle; a
//! storage has the bytes.
//!
//! `io` reads and writes, and `placement` says where the bytes should be. `landing` turns arriving
//! bytes into elements, and `pieces` takes bytes from device to device. `words` has the kernels
//! that fill and copy.

mod io;
mod landing;
pub(crate) mod pieces;
mod placement;
#[cfg(test)]
mod tests;
mod to;
pub(crate) mod words;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::dtype::Element;
use crate::engine::{Engine, Handle};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::memory::{Residency, Source, Storage, Tag};

pub use placement::Pin;

/// Bytes on the device, or evicted by the budget.
///
/// Cheap to clone: clones and slices share their bytes, so a write through one shows in all. The
/// memory is freed when the last of them is dropped, on any thread; the drop never waits.
///
/// A buffer has no address. The engine looks up its place when it encodes a command that uses the
/// buffer. So between any two commands the buffer may move, be evicted and be restored. An evicted
/// buffer is in the host's memory, in a [store](crate::stores) or on disk. A
/// [`Kernel`](crate::Kernel) binds it by name. [`Gpu::with_bound`] gives your own passes its place
/// for one call.
///
/// ```no_run
/// use lapidary_core::{Gpu, Kernel, Options};
///
/// # fn main() -> lapidary_core::Result<()> {
/// let gpu = Gpu::open(Options::default())?;
/// let numbers = gpu.buffer_from(&[1.0_f32, 2.0, 3.0])?.named("numbers");
/// let double = Kernel::new(&gpu, "
///     @group(0) @binding(0) var<storage, read_write> x: array<f32>;
///     @compute @workgroup_size(64)
///     fn double(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&x) { x[id.x] *= 2.0; }
///     }
/// ")?;
/// double.call().bind("x", &numbers).groups([1, 1, 1]).run()?;
/// assert_eq!(numbers.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Buffer {
    engine: Handle<Engine>,
    storage: Handle<Storage>,
    offset_bytes: u64,
    size_bytes: u64,
}

impl Buffer {
    /// A new buffer, without a value yet.
    #[doc(hidden)]
    #[track_caller]
    pub fn new(engine: &Handle<Engine>, size_bytes: u64) -> Result<Buffer> {
        Ok(Self::whole(engine, engine.storage(size_bytes)?))
    }

    /// All bytes of a storage.
    pub(crate) fn whole(engine: &Handle<Engine>, storage: Handle<Storage>) -> Buffer {
        let size_bytes = storage.len_bytes();
        Self::part(engine, storage, 0, size_bytes)
    }

    /// Some bytes of a storage.
    #[doc(hidden)]
    pub fn part(
        engine: &Handle<Engine>,
        storage: Handle<Storage>,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Buffer {
        debug_assert!(offset_bytes + size_bytes <= storage.size_bytes());
        Buffer {
            engine: engine.clone().resolved(),
            storage: storage.resolved(),
            offset_bytes,
            size_bytes,
        }
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Is the size 0 bytes?
    pub fn is_empty(&self) -> bool {
        self.size_bytes == 0
    }

    /// A range of the bytes, as a buffer that shares them.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let all = gpu.buffer_from(&[1_u32, 2, 3, 4])?;
    /// assert_eq!(all.slice(8..16)?.to_vec::<u32>()?, [3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Buffer`] for a range that exceeds the buffer.
    pub fn slice(&self, bytes: Range<u64>) -> Result<Buffer> {
        if bytes.start > bytes.end || bytes.end > self.size_bytes {
            let (start, end, all) = (bytes.start, bytes.end, self.size_bytes);
            let reason = format!("bytes {start}..{end} of a buffer that has {all}");
            return Err(Error::buffer("slice", reason));
        }
        Ok(Buffer {
            offset_bytes: self.offset_bytes + bytes.start,
            size_bytes: bytes.end - bytes.start,
            ..self.clone()
        })
    }

    /// A new buffer with the same bytes.
    ///
    /// # Errors
    /// [`Error::NeverFits`], [`Error::DeviceLost`]; [`Error::Buffer`] for a slice that starts
    /// inside a word of 4 bytes.
    #[track_caller]
    pub fn copy(&self) -> Result<Buffer> {
        let start = self.offset_bytes;
        if !self.is_empty() && !start.is_multiple_of(4) {
            let reason = format!("the slice starts at byte {start}, inside a word of 4 bytes");
            return Err(Error::buffer("copy", reason));
        }
        let copy = Buffer::new(&self.engine, self.size_bytes)?;
        if self.size_bytes > 0 {
            words::copy(self, &copy)?;
        }
        Ok(copy)
    }

    /// Queues a clear of all its memory.
    pub(crate) fn clear(&self) -> Result<()> {
        self.engine.here().clear(&self.storage.here())
    }

    /// The call site and the name of its memory. A slice has the tag of the buffer that it belongs
    /// to.
    pub fn tag(&self) -> Tag {
        self.storage.here().tag()
    }

    /// Names the buffer. Reports and errors use the name for all buffers that share the bytes.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.engine.here().name(&self.storage.here(), name);
        self
    }

    /// Where its bytes are at the moment.
    pub fn residency(&self) -> Residency {
        self.storage.here().residency()
    }

    /// The number of writes to its memory so far, through any slice.
    pub fn version(&self) -> u64 {
        self.storage.here().version()
    }

    /// Do both buffers share one memory? Their ranges need not overlap.
    pub fn shares_memory_with(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.storage.here(), &other.storage.here())
    }

    #[doc(hidden)]
    pub fn engine(&self) -> &Handle<Engine> {
        &self.engine
    }

    #[doc(hidden)]
    pub fn storage(&self) -> &Handle<Storage> {
        &self.storage
    }

    /// Offset in the shared memory, in bytes.
    #[doc(hidden)]
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Is its last word free of other buffers' bytes? The memory ends with padding.
    #[doc(hidden)]
    pub fn ends_with_word(&self) -> bool {
        let end = self.offset_bytes + self.size_bytes;
        end.is_multiple_of(4) || end == self.storage.len_bytes()
    }

    /// Can kernels write it word by word without changing other bytes?
    #[doc(hidden)]
    pub fn is_whole_words(&self) -> bool {
        self.offset_bytes.is_multiple_of(4) && self.ends_with_word()
    }

    /// Refuses a slice that does not cover its whole memory.
    fn check_whole(&self, operation: &'static str) -> Result<()> {
        let is_whole = self.offset_bytes == 0 && self.size_bytes == self.storage.len_bytes();
        match (is_whole, self.residency()) {
            (true, Residency::Imported) => Err(Error::Pinned {
                operation,
                made_at: self.tag().to_string(),
            }),
            (true, _) => Ok(()),
            (false, _) => Err(Error::buffer(
                operation,
                "a slice is not all of its memory; name the buffer that it is a slice of",
            )),
        }
    }
}

impl Gpu {
    /// A buffer whose bytes are unspecified until something writes them.
    ///
    /// # Errors
    /// [`Error::NeverFits`] for more bytes than a buffer of the device holds.
    #[track_caller]
    pub fn buffer(&self, size_bytes: u64) -> Result<Buffer> {
        Buffer::new(self.engine(), size_bytes)
    }

    /// A buffer of `size_bytes` zeros.
    ///
    /// # Errors
    /// As [`buffer`](Gpu::buffer), and [`Error::DeviceLost`].
    #[track_caller]
    pub fn buffer_zeroed(&self, size_bytes: u64) -> Result<Buffer> {
        let buffer = self.buffer(size_bytes)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// A buffer with these elements. The call copies them before it returns.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let buffer = gpu.buffer_from(&[1.0_f32, 2.0])?;
    /// assert_eq!(buffer.size_bytes(), 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`buffer_zeroed`](Gpu::buffer_zeroed). In a browser also [`Error::WouldBlock`] for more
    /// bytes than the staging memory has room for. There, use
    /// [`buffer_from_async`](Gpu::buffer_from_async), which waits.
    #[track_caller]
    pub fn buffer_from<T: Element>(&self, elements: &[T]) -> Result<Buffer> {
        let buffer = self.buffer(size_of_val(elements) as u64)?;
        buffer.write(elements)?;
        Ok(buffer)
    }

    /// As [`buffer_from`](Gpu::buffer_from), as a future. In a browser it waits for staging memory
    /// without blocking.
    ///
    /// # Errors
    /// As [`buffer_from`](Gpu::buffer_from), without [`Error::WouldBlock`].
    #[track_caller]
    pub fn buffer_from_async<T: Element>(
        &self,
        elements: &[T],
    ) -> impl Future<Output = Result<Buffer>> {
        // Made here, because an async block does not know the caller's line.
        let buffer = self.buffer(size_of_val(elements) as u64);
        async move {
            let buffer = buffer?;
            buffer.write_async(elements).await?;
            Ok(buffer)
        }
    }

    /// A buffer with a source. The source gives the bytes at the first use, and again after each
    /// eviction.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use lapidary_core::Source;
    ///
    /// let tile = gpu.buffer_backed(Source::file("tiles.bin", 7 << 20)?, 1 << 20)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`buffer`](Gpu::buffer); [`Error::Buffer`] for a source that is known to be too short.
    #[track_caller]
    pub fn buffer_backed(&self, source: Source, size_bytes: u64) -> Result<Buffer> {
        check_source("buffer_backed", &source, size_bytes)?;
        let buffer = self.buffer(size_bytes)?;
        let storage = buffer.storage.here();
        self.engine().here().back_new(&storage, source);
        Ok(buffer)
    }
}

fn check_source(operation: &'static str, source: &Source, size_bytes: u64) -> Result<()> {
    match source.len_bytes() {
        Some(len_bytes) if len_bytes < size_bytes => {
            let reason = format!("the source has {len_bytes} bytes, and {size_bytes} are needed");
            Err(Error::buffer(operation, reason))
        }
        _ => Ok(()),
    }
}

/// Does not print the bytes: reading them would wait for the device.
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("size_bytes", &self.size_bytes)
            .field("offset_bytes", &self.offset_bytes)
            .field("residency", &self.residency())
            .field("made_at", &format_args!("{}", self.tag()))
            .finish()
    }
}

/// Its size and tag: ``1.00 MiB `particles` (src/main.rs:7)``. Never waits.
impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", crate::units::Bytes(self.size_bytes), self.tag())
    }
}
