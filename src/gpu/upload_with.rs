//! Uploads of what is still to be computed or read: a function of the app's writes the elements,
//! and they go to staging memory as they come.

use std::mem;

use super::Gpu;
use crate::tensor::Tensor;
use lapidary_core::{Element, Error, Result};

/// Elements that come one by one, or few at a time, are gathered in blocks of so many bytes, which
/// stay in a CPU's caches.
const BLOCK_BYTES: usize = 64 << 10;

impl Gpu {
    /// A tensor of `shape` whose elements a function writes, in row-major order: for what is
    /// decoded, read or computed on the way, of any size, without a vector of all of it.
    ///
    /// Slices are copied once, to where the device reads them, and no memory of the tensor's size
    /// is taken on the host. What was written reaches the device while the rest is still to come.
    /// The function is called at once, on this thread, with nothing locked: it may use this
    /// [`Gpu`]. If it panics, the panic goes on to the caller, and there is no tensor.
    ///
    /// # Errors
    /// [`Error::Length`] when more or fewer elements than the shape has were written;
    /// [`Error::Overflow`] and [`Error::NeverFits`] for shapes beyond the device, before the
    /// function is called; [`Error::DeviceLost`]. What is written after an error goes nowhere.
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
        let tensor = Tensor::output(self.engine(), shape, T::DTYPE)?;
        let mut upload = Upload {
            tensor: &tensor,
            block: Vec::new(),
            taken: 0,
            sent_bytes: 0,
            error: None,
        };
        write(&mut upload);
        upload.end()?;
        Ok(tensor)
    }
}

/// Takes the elements of a tensor that is being uploaded, in row-major order: see
/// [`Gpu::upload_with`]. It is filled as a vector is.
#[derive(Debug)]
pub struct Upload<'a, T> {
    tensor: &'a Tensor,
    /// Elements that came one by one and were not sent yet.
    block: Vec<T>,
    /// Elements that came, one more than there is room for at most.
    taken: usize,
    /// A multiple of 4, until all are sent.
    sent_bytes: u64,
    error: Option<Error>,
}

impl<T: Element> Upload<'_, T> {
    /// Elements in a word of 4 bytes.
    const IN_WORD: usize = 4 / size_of::<T>();

    /// How many elements are still to come.
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
        // As many as end the word that the last of the block begins.
        let in_word = Self::IN_WORD;
        let first = self.block.len().next_multiple_of(in_word) - self.block.len();
        let (first, rest) = elements.split_at(first);
        self.block.extend_from_slice(first);
        self.send_block();
        let (now, later) = rest.split_at(self.sendable(rest.len()));
        self.send(now);
        self.block.extend_from_slice(later);
    }

    /// Takes note of so many more elements; `false` when they go nowhere.
    fn takes(&mut self, count: usize) -> bool {
        let fits = self.error.is_none() && count <= self.remaining();
        self.taken = self.taken.saturating_add(count);
        if !fits && self.error.is_none() {
            self.error = Some(self.wrong_length());
        }
        fits
    }

    /// Of so many elements, those that can be sent: what is sent ends with a word, or with the
    /// tensor.
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
        let (engine, storage) = (&self.tensor.engine, &self.tensor.storage);
        match engine.upload_more(storage, self.sent_bytes, bytes) {
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
            expected: self.tensor.len(),
            got: self.taken,
            shape: self.tensor.shape().to_vec(),
        }
    }
}

/// Stops at the first element that goes nowhere, so that an iterator may be endless.
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
