//! Uploads of elements that are computed or read on the way: the app's function writes them, and
//! they go to staging memory piece by piece.

use std::mem;

use super::Gpu;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::{Element, Error, Result};

const OPERATION: &str = "upload_with";

/// Size of the block that gathers single elements, or few at a time. It stays in a CPU's caches.
const BLOCK_BYTES: usize = 64 << 10;

impl Gpu {
    /// A tensor of `shape` whose elements a function writes, in row-major order. For elements that
    /// are decoded, read or computed, of any size, without a vector of all of them.
    ///
    /// A slice is copied once, to where the device reads it or copies from, and the host needs no
    /// memory of the tensor's size. The first elements reach the device while the function still
    /// writes the rest. The function runs at once, on this thread, without any lock: it may use
    /// this [`Gpu`]. A panic in it reaches the caller, and there is no tensor.
    ///
    /// # Errors
    /// [`Error::Length`] when the function writes more or fewer elements than the shape has.
    /// [`Error::Overflow`] and [`Error::NeverFits`] for shapes beyond the device, before the
    /// function runs. [`Error::DeviceLost`]. Elements written after an error are dropped.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let t = gpu.upload_with(&[2, 3], |out| {
    ///     out.extend_from_slice(&[0.5_f32, 1.5]);
    ///     out.extend((2..6).map(|index| index as f32 + 0.5));
    /// })?;
    /// assert_eq!(t.to_vec::<f32>()?, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn upload_with<T: Element>(
        &self,
        shape: &[usize],
        write: impl FnOnce(&mut Upload<'_, T>),
    ) -> Result<Tensor> {
        let tensor = Tensor::output(self.engine(), shape, T::DTYPE).called(OPERATION)?;
        let mut upload = Upload {
            tensor: &tensor,
            block: Vec::new(),
            taken: 0,
            sent_bytes: 0,
            error: None,
        };
        write(&mut upload);
        upload.end().located()?;
        Ok(tensor)
    }
}

/// Receives the elements of a tensor during an upload, in row-major order: see
/// [`Gpu::upload_with`]. It is filled like a vector.
#[derive(Debug)]
pub struct Upload<'a, T> {
    tensor: &'a Tensor,
    /// Single elements that were not sent yet.
    block: Vec<T>,
    /// Elements received so far. It exceeds the tensor's length by at most one.
    taken: usize,
    /// Bytes sent: a multiple of 4 until all are sent.
    sent_bytes: u64,
    error: Option<Error>,
}

impl<T: Element> Upload<'_, T> {
    /// Elements in a word of 4 bytes.
    const IN_WORD: usize = 4 / size_of::<T>();

    /// Number of elements still missing.
    pub fn remaining(&self) -> usize {
        self.tensor.len().saturating_sub(self.taken)
    }

    /// Writes the next element.
    pub fn push(&mut self, element: T) {
        if !self.takes(1) {
            return;
        }
        self.block.push(element);
        self.send_if_full();
    }

    /// Writes the next elements.
    pub fn extend_from_slice(&mut self, elements: &[T]) {
        if !self.takes(elements.len()) {
            return;
        }
        if size_of_val(elements) < BLOCK_BYTES {
            self.block.extend_from_slice(elements);
            return self.send_if_full();
        }
        // The elements that complete the last word of the block.
        let in_word = Self::IN_WORD;
        let first = self.block.len().next_multiple_of(in_word) - self.block.len();
        let (first, rest) = elements.split_at(first);
        self.block.extend_from_slice(first);
        self.send_block();
        let (now, later) = rest.split_at(self.sendable(rest.len()));
        self.send(now);
        self.block.extend_from_slice(later);
    }

    /// Counts `count` more elements; `false` when they are dropped.
    fn takes(&mut self, count: usize) -> bool {
        let fits = self.error.is_none() && count <= self.remaining();
        self.taken = self.taken.saturating_add(count);
        if !fits && self.error.is_none() {
            self.error = Some(self.wrong_length());
        }
        fits
    }

    /// How many of `count` elements can be sent: a piece ends with a word, or with the tensor.
    fn sendable(&self, count: usize) -> usize {
        match self.remaining() {
            0 => count,
            _ => count / Self::IN_WORD * Self::IN_WORD,
        }
    }

    fn send_if_full(&mut self) {
        if size_of_val(self.block.as_slice()) >= BLOCK_BYTES {
            self.send_block();
        }
    }

    fn send_block(&mut self) {
        let mut block = mem::take(&mut self.block);
        let count = self.sendable(block.len());
        self.send(&block[..count]);
        block.drain(..count);
        self.block = block;
    }

    fn send(&mut self, elements: &[T]) {
        let bytes = T::bytes_of(elements);
        if bytes.is_empty() || self.error.is_some() {
            return;
        }
        let (engine, storage) = (self.tensor.engine.here(), self.tensor.storage.here());
        match engine.upload_more(&storage, self.sent_bytes, bytes) {
            Ok(()) => self.sent_bytes += bytes.len() as u64,
            Err(error) => self.error = Some(error),
        }
    }

    fn end(mut self) -> Result<()> {
        self.send_block();
        if self.error.is_none() && self.remaining() > 0 {
            self.error = Some(self.wrong_length());
        }
        self.error.map_or(Ok(()), Err)
    }

    fn wrong_length(&self) -> Error {
        Error::Length {
            operation: OPERATION,
            expected: self.tensor.len(),
            got: self.taken,
            shape: self.tensor.shape().to_vec(),
            at: String::new(),
        }
    }
}

/// Stops at the first element that would be dropped, so that an iterator may be endless.
impl<T: Element> Extend<T> for Upload<'_, T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        for element in elements {
            self.push(element);
            if self.error.is_some() {
                break;
            }
        }
    }
}
