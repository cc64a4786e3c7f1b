//! What goes to the device and comes back: reads, writes in place, and waiting for a value.

use std::mem;
use std::sync::{Arc, Mutex};

use super::Buffer;
use super::landing::{Arrival, Landing, lock};
use crate::dtype::Element;
#[cfg(not(target_arch = "wasm32"))]
use crate::engine::block_on;
use crate::error::{Error, Result};
use crate::transfer::Piece;

impl Buffer {
    /// The bytes as elements, once all work before this call is done.
    ///
    /// The read takes its place in the queue at the call, not at the first poll: it does not see
    /// what is written after the call. Several reads may be under way. Natively the future blocks
    /// the thread that polls it until the value is there, as
    /// [`Gpu::open_async`](crate::Gpu::open_async) says; in a browser it waits without blocking.
    ///
    /// # Errors
    /// [`Error::Buffer`] for a size that is no whole number of elements; else what became of the
    /// work that the value needs.
    ///
    /// ```no_run
    /// # async fn show() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open_async(Default::default()).await?;
    /// let buffer = gpu.buffer_from(&[1.0_f32, 2.0])?;
    /// assert_eq!(buffer.read::<f32>().await?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read<T: Element>(&self) -> impl Future<Output = Result<Vec<T>>> + use<T> {
        let checked = self.check_elements::<T>("read");
        let read = checked.and_then(|()| self.start_read::<T>(Vec::new()));
        async move { read?.elements().await }
    }

    /// The bytes as elements: [`read`](Self::read), and waits for it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_elements::<T>("to_vec")?;
        self.read_now("Buffer::to_vec", Vec::new())
    }

    /// As [`to_vec`](Self::to_vec), into a vector that is there already: what it held is replaced,
    /// its memory is used again. For programs that read every frame.
    ///
    /// # Errors
    /// As [`read`](Self::read); then the vector is empty.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn read_into<T: Element>(&self, elements: &mut Vec<T>) -> Result<()> {
        let spare = mem::take(elements);
        self.check_elements::<T>("read_into")?;
        *elements = self.read_now("Buffer::read_into", spare)?;
        Ok(())
    }

    /// Waits for the bytes, and lets a function see them as elements.
    ///
    /// It sees the memory itself, without a copy, if the first byte is aligned for `T`: where host
    /// and device share memory the buffer's own, unless another thread has the device's work in
    /// hand or the buffer was evicted; elsewhere that which the device copied to, up to 32 MiB,
    /// less under a small budget. Else it sees a copy.
    ///
    /// The function is called on this thread. It may record work; a call that waits for the device
    /// is refused with [`Error::Reentered`]. If it panics, the panic goes on to the caller, and
    /// nothing else is lost.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn read_with<T: Element, R>(&self, look: impl FnOnce(&[T]) -> R) -> Result<R> {
        self.check_elements::<T>("read_with")?;
        if self.is_empty() {
            return Ok(self.engine.call_theirs(|| look(&[])));
        }
        let (mut look, mut seen) = (Some(look), None);
        let (piece, len) = (self.piece(), self.elements::<T>());
        let into = Arc::new(Mutex::new(Landing::new(Vec::new())));
        let landed = into.clone();
        let sink = Box::new(move |piece: &[u8]| lock(&landed).take_in(piece, len));
        let mut show = |bytes: &[u8]| match (T::seen_in(bytes), look.take()) {
            (Some(elements), Some(look)) => seen = Some(look(elements)),
            (_, unused) => {
                look = unused;
                lock(&into).take_in(bytes, len);
            }
        };
        self.engine.show(&self.storage, piece, sink, &mut show)?;
        if let Some(seen) = seen {
            return Ok(seen);
        }
        let landed = mem::replace(&mut *lock(&into), Landing::new(Vec::new()));
        let elements = landed.elements()?;
        match look {
            Some(look) => Ok(self.engine.call_theirs(|| look(&elements))),
            None => Err(Error::Reentered),
        }
    }

    /// Writes all bytes in place. The elements are taken over before this returns, and reach the
    /// device after the work before this call and before that after it.
    ///
    /// # Errors
    /// [`Error::Buffer`] for elements of another size than the buffer's, or for a slice that starts
    /// or ends inside a word of 4 bytes which holds others' bytes too; [`Error::DeviceLost`]. In a
    /// browser also [`Error::WouldBlock`] for more than the staging memory has room for, and then
    /// the buffer may have no value any more: there, [`write_async`](Self::write_async) waits.
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
        self.engine.upload(&self.storage, self.offset_bytes, bytes)
    }

    /// As [`write`](Self::write), as a future: in a browser it waits for staging memory without
    /// blocking. If it is dropped before its end, the buffer has no value any more.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), but for the one that a browser has.
    pub async fn write_async<T: Element>(&self, elements: &[T]) -> Result<()> {
        self.check_write(elements)?;
        if elements.is_empty() {
            return Ok(());
        }
        let (bytes, at) = (T::bytes_of(elements), self.offset_bytes);
        self.engine.upload_async(&self.storage, at, bytes).await
    }

    /// Sees to it that the buffer has a value: runs the work that it waits for, and returns when
    /// that is submitted.
    ///
    /// # Errors
    /// What became of that work. After [`Error::OutOfMemory`] it is still queued: drop some buffers
    /// and call again.
    pub async fn force_async(&self) -> Result<()> {
        self.engine.force(&self.storage).await
    }

    /// [`force_async`](Self::force_async), and waits for it.
    ///
    /// # Errors
    /// As [`force_async`](Self::force_async).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn force(&self) -> Result<()> {
        block_on("Buffer::force", self.force_async())
    }

    /// Reads into `spare`, whatever it holds, and waits: where the bytes lie, if that can be.
    #[doc(hidden)]
    #[cfg(not(target_arch = "wasm32"))]
    pub fn read_now<T: Element>(&self, operation: &'static str, spare: Vec<T>) -> Result<Vec<T>> {
        if self.is_empty() {
            return block_on(operation, self.start_read(spare)?.elements());
        }
        let (piece, len) = (self.piece(), self.elements::<T>());
        let mut landing = Landing::new(spare);
        let mut land = |bytes: &[u8]| landing.take_in(bytes, len);
        if self.engine.show_in_place(&self.storage, piece, &mut land)? {
            return landing.elements();
        }
        block_on(operation, self.start_read(landing.into_spare())?.elements())
    }

    /// Starts a read into `spare`, whatever it holds.
    #[doc(hidden)]
    pub fn start_read<T: Element>(&self, mut spare: Vec<T>) -> Result<Arrival<T>> {
        if self.is_empty() {
            spare.clear();
        }
        let landing = Arc::new(Mutex::new(Landing::new(spare)));
        let landed = match self.is_empty() {
            true => None,
            false => {
                let (into, len) = (landing.clone(), self.elements::<T>());
                let sink = Box::new(move |piece: &[u8]| lock(&into).take_in(piece, len));
                Some(self.engine.read_to(&self.storage, self.piece(), sink)?)
            }
        };
        Ok(Arrival { landed, landing })
    }

    fn piece(&self) -> Piece {
        Piece {
            offset_bytes: self.offset_bytes,
            size_bytes: self.size_bytes,
        }
    }

    fn elements<T: Element>(&self) -> usize {
        self.size_bytes as usize / size_of::<T>()
    }

    fn check_elements<T: Element>(&self, operation: &'static str) -> Result<()> {
        let element_bytes = size_of::<T>() as u64;
        match self.size_bytes.is_multiple_of(element_bytes) {
            true => Ok(()),
            false => Err(Error::Buffer {
                operation,
                reason: format!(
                    "{} bytes are no whole number of elements of {element_bytes}",
                    self.size_bytes
                ),
            }),
        }
    }

    fn check_write<T: Element>(&self, elements: &[T]) -> Result<()> {
        let (start, got) = (self.offset_bytes, size_of_val(elements) as u64);
        let end = start + self.size_bytes;
        let reason = if got != self.size_bytes {
            format!("{got} bytes were given to a buffer of {}", self.size_bytes)
        } else if !self.is_whole_words() && got > 0 {
            format!(
                "bytes {start} to {end} of the memory start or end inside a word of 4 bytes which \
                 holds others' bytes too; write to more of the buffer"
            )
        } else {
            return Ok(());
        };
        Err(Error::Buffer {
            operation: "write",
            reason,
        })
    }
}
