//! Reads, writes in place, and waiting for a value.

use super::Buffer;
use super::landing::{Arrival, Landing};
use crate::dtype::Element;
#[cfg(not(target_arch = "wasm32"))]
use crate::engine::{SeenRead, block_on};
use crate::error::{Error, Result};
use crate::transfer::Piece;

impl Buffer {
    /// Reads the bytes as elements, after all work before this call.
    ///
    /// The read is queued at the call, not at the first poll: it does not see later writes. Several
    /// reads may be under way. Natively the future blocks the thread that polls it until the value
    /// is there, as [`Gpu::open_async`](crate::Gpu::open_async) says. In a browser it waits without
    /// blocking.
    ///
    /// # Errors
    /// [`Error::Buffer`] if the size is not a multiple of the element's size; else the errors of
    /// the work that computes the value.
    ///
    /// ```no_run
    /// # async fn show() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open_async(Default::default()).await?;
    /// let buffer = gpu.buffer_from(&[1.0_f32, 2.0])?;
    /// assert_eq!(buffer.to_vec_async::<f32>().await?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn to_vec_async<T: Element>(&self) -> impl Future<Output = Result<Vec<T>>> + use<T> {
        let read = match self.check_elements::<T>("to_vec_async") {
            Ok(()) => self.start_read::<T>(Vec::new()),
            Err(error) => Err(error),
        };
        async move { read?.elements().await }
    }

    /// As [`to_vec_async`](Self::to_vec_async), and waits for the result.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_elements::<T>("to_vec")?;
        self.read_now("Buffer::to_vec", Vec::new())
    }

    /// As [`to_vec`](Self::to_vec), into an existing vector. The elements replace its contents, and
    /// its memory is reused. For programs that read every frame.
    ///
    /// # Errors
    /// As [`to_vec_async`](Self::to_vec_async). The vector is empty after an error.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn read_into<T: Element>(&self, elements: &mut Vec<T>) -> Result<()> {
        let spare = std::mem::take(elements);
        self.check_elements::<T>("read_into")?;
        *elements = self.read_now("Buffer::read_into", spare)?;
        Ok(())
    }

    /// Waits for the bytes, and passes them to a function as elements.
    ///
    /// The slice is the memory itself, without a copy, if its first byte is aligned for `T`. Where
    /// host and device share memory, that is the buffer's own memory. The exceptions are an evicted
    /// buffer, and a moment when another thread runs the device's work. On other devices it is the
    /// read-back buffer, up to 32 MiB, less under a small budget. In all other cases the slice is a
    /// copy.
    ///
    /// The function runs on this thread. It may record work. A call that waits for the device
    /// returns [`Error::Reentered`]. A panic in the function reaches the caller, and nothing else
    /// is lost.
    ///
    /// # Errors
    /// As [`to_vec_async`](Self::to_vec_async).
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn read_with<T: Element, R>(&self, look: impl FnOnce(&[T]) -> R) -> Result<R> {
        self.check_elements::<T>("read_with")?;
        if self.is_empty() {
            return Ok(self.engine.here().call_theirs(|| look(&[])));
        }
        let (mut look, mut seen) = (Some(look), None);
        let (piece, len) = (self.piece(), self.elements::<T>());
        let (into, sink) = Landing::shared(Vec::new(), len);
        let mut show = |bytes: &[u8]| match (T::seen_in(bytes), look.take()) {
            (Some(elements), Some(look)) => seen = Some(look(elements)),
            (_, unused) => {
                look = unused;
                into.lock().take_in(bytes, len);
            }
        };
        // The function is the app's.
        let mut show = |bytes: &[u8]| self.engine.here().call_theirs(|| show(bytes));
        let (engine, storage) = (self.engine.here(), self.storage.here());
        if !engine.show_in_place(&storage, piece, &mut show)? {
            let read = SeenRead::begin(&engine, &storage, piece, sink)?;
            block_on("a read", read.see(&mut show))?;
        }
        if let Some(seen) = seen {
            return Ok(seen);
        }
        let elements = into.lock().take()?;
        match look {
            Some(look) => Ok(self.engine.here().call_theirs(|| look(&elements))),
            None => Err(Error::Reentered),
        }
    }

    /// Writes all bytes in place. The call copies the elements before it returns. The write runs
    /// after earlier work and before later work.
    ///
    /// # Errors
    /// [`Error::Buffer`] if the elements' size is not the buffer's size. The same error for a slice
    /// that starts or ends inside a word of 4 bytes shared with other bytes. [`Error::DeviceLost`].
    /// In a browser also [`Error::WouldBlock`] for more bytes than the staging memory has room for;
    /// then the buffer may have lost its value. There, use [`write_async`](Self::write_async),
    /// which waits.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let buffer = gpu.buffer_from(&[1_u32, 2, 3, 4])?;
    /// buffer.slice(8..16)?.write(&[7_u32, 8])?;
    /// assert_eq!(buffer.to_vec::<u32>()?, [1, 2, 7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<T: Element>(&self, elements: &[T]) -> Result<()> {
        self.check_write(elements)?;
        if elements.is_empty() {
            return Ok(());
        }
        let bytes = T::bytes_of(elements);
        let storage = self.storage.here();
        (self.engine.here()).upload(&storage, self.offset_bytes, bytes)
    }

    /// As [`write`](Self::write), as a future. In a browser it waits for staging memory without
    /// blocking. A future that is dropped before its end leaves the buffer without a value. If
    /// nothing was written yet, it leaves the old one.
    ///
    /// # Errors
    /// As [`write`](Self::write), without [`Error::WouldBlock`].
    pub async fn write_async<T: Element>(&self, elements: &[T]) -> Result<()> {
        self.check_write(elements)?;
        if elements.is_empty() {
            return Ok(());
        }
        let (bytes, at) = (T::bytes_of(elements), self.offset_bytes);
        let storage = self.storage.here();
        (self.engine.here()).upload_async(&storage, at, bytes).await
    }

    /// Runs the work that computes the buffer's value, and returns when that work is submitted.
    ///
    /// # Errors
    /// The errors of that work. After [`Error::OutOfMemory`] the work is still queued: drop some
    /// buffers and call again.
    pub async fn force_async(&self) -> Result<()> {
        self.engine.here().force(&self.storage.here()).await
    }

    /// As [`force_async`](Self::force_async), and waits for the result.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn force(&self) -> Result<()> {
        block_on("Buffer::force", self.force_async())
    }

    /// Reads into `spare`, replacing its contents, and waits. Reads in place where possible.
    #[doc(hidden)]
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn read_now<T: Element>(&self, operation: &'static str, spare: Vec<T>) -> Result<Vec<T>> {
        if self.is_empty() {
            return block_on(operation, self.start_read(spare)?.elements());
        }
        let (piece, len) = (self.piece(), self.elements::<T>());
        let mut landing = Landing::new(spare);
        let mut land = |bytes: &[u8]| landing.take_in(bytes, len);
        let (engine, storage) = (self.engine.here(), self.storage.here());
        if engine.show_in_place(&storage, piece, &mut land)? {
            return landing.elements();
        }
        block_on(operation, self.start_read(landing.elements)?.elements())
    }

    /// Starts a read into `spare`, replacing its contents.
    #[doc(hidden)]
    #[track_caller]
    pub fn start_read<T: Element>(&self, mut spare: Vec<T>) -> Result<Arrival<T>> {
        if self.is_empty() {
            spare.clear();
        }
        let (landing, sink) = Landing::shared(spare, self.elements::<T>());
        let landed = match self.is_empty() {
            true => None,
            false => {
                let (engine, storage) = (self.engine.here(), self.storage.here());
                Some(engine.read_to(&storage, self.piece(), sink)?)
            }
        };
        Ok(Arrival { landed, landing })
    }

    pub(super) fn piece(&self) -> Piece {
        Piece {
            offset_bytes: self.offset_bytes,
            size_bytes: self.size_bytes,
        }
    }

    fn elements<T: Element>(&self) -> usize {
        self.size_bytes as usize / size_of::<T>()
    }

    fn check_elements<T: Element>(&self, operation: &'static str) -> Result<()> {
        let (bytes, of) = (self.size_bytes, size_of::<T>() as u64);
        if bytes.is_multiple_of(of) {
            return Ok(());
        }
        let reason = format!("{bytes} bytes are not a multiple of the element size of {of}");
        Err(Error::buffer(operation, reason))
    }

    fn check_write<T: Element>(&self, elements: &[T]) -> Result<()> {
        let (start, got) = (self.offset_bytes, size_of_val(elements) as u64);
        let end = start + self.size_bytes;
        let reason = if got != self.size_bytes {
            format!(
                "{got} bytes were given for a buffer of {} bytes",
                self.size_bytes
            )
        } else if !self.is_whole_words() && got > 0 {
            format!(
                "bytes {start} to {end} of the memory start or end inside a word of 4 bytes which \
                 holds others' bytes too; write to more of the buffer"
            )
        } else {
            return Ok(());
        };
        Err(Error::buffer("write", reason))
    }
}
