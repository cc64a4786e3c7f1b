//! Reads, writes in place, and waiting for a value.
//!
//! A read asks the engine for the bytes between the lowest and the highest element of the view, and
//! picks the elements on the host. So reading a view needs no operation.

use super::Tensor;
use super::layout::Layout;
use crate::tensor::called::Called;
#[cfg(not(target_arch = "wasm32"))]
use lapidary_core::internal::block_on;
use lapidary_core::{Buffer, Element, Error, Result};

impl Tensor {
    /// Reads the elements in row-major order, after all work before this call.
    ///
    /// The read is queued at the call, not at the first poll: it does not see later writes. Several
    /// reads may be under way. The read copies all bytes from the view's lowest to its highest
    /// element, and the host picks the elements. Where those are far apart (a column of a large
    /// matrix), call `contiguous` first to copy fewer bytes.
    ///
    /// Natively the future blocks the thread that polls it until the value is there, as
    /// [`Gpu::open_async`](crate::Gpu::open_async) says; in a browser it waits without blocking.
    ///
    /// # Errors
    ///
    /// [`DType`](Error::DType) if `T` is not the element type; else the errors of the work that
    /// computes the value.
    ///
    /// ```no_run
    /// # async fn show() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open_async(Default::default()).await?;
    /// let t = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// assert_eq!(t.to_vec_async::<f32>().await?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn to_vec_async<T: Element>(&self) -> impl Future<Output = Result<Vec<T>>> + use<T> {
        let (span, layout) = self.span();
        let read = match self.check_element::<T>("to_vec_async") {
            Ok(()) => span.start_read::<T>(Vec::new()),
            Err(error) => Err(error),
        };
        async move { picked(read?.elements().await?, &layout) }
    }

    /// As [`to_vec_async`](Self::to_vec_async), and waits for the result.
    ///
    /// # Errors
    ///
    /// Those of [`to_vec_async`](Self::to_vec_async).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[1, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(t.t()?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        const OPERATION: &str = "to_vec";
        self.read_now(OPERATION, Vec::new())
    }

    /// As [`to_vec`](Self::to_vec), into an existing vector. The elements replace its contents, and
    /// its memory is reused. For programs that read every frame or every step.
    ///
    /// # Errors
    ///
    /// As [`to_vec_async`](Self::to_vec_async). The vector is empty after an error.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// let mut seen: Vec<f32> = Vec::new();
    /// for _ in 0..3 {
    ///     t.read_into(&mut seen)?;
    /// }
    /// assert_eq!(seen, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn read_into<T: Element>(&self, elements: &mut Vec<T>) -> Result<()> {
        const OPERATION: &str = "read_into";
        *elements = self.read_now(OPERATION, std::mem::take(elements))?;
        Ok(())
    }

    /// Waits for the elements, in row-major order, and passes them to a function.
    ///
    /// The slice is the memory itself, without a copy, if the tensor is contiguous and its first
    /// byte is aligned for `T`. Where host and device share memory, that is the tensor's own
    /// memory. The exceptions are an evicted tensor, and a moment when another thread runs the
    /// device's work. On other devices it is the read-back buffer, up to 32 MiB, less under a small
    /// budget. In all other cases the slice is a copy. (So is a `bool` tensor where your own kernel
    /// wrote a byte other than 0 and 1.)
    ///
    /// The function runs on this thread. While it sees the tensor's own memory, no other thread's
    /// work reaches the device: do long work elsewhere. It may record work on this
    /// [`Gpu`](crate::Gpu). A call that waits for the device, such as another read, returns
    /// [`Reentered`](Error::Reentered). A panic in the function reaches the caller, and nothing
    /// else is lost.
    ///
    /// # Errors
    ///
    /// Those of [`to_vec_async`](Self::to_vec_async).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// let total: f32 = t.read_with(|elements: &[f32]| elements.iter().sum())?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn read_with<T: Element, R>(&self, look: impl FnOnce(&[T]) -> R) -> Result<R> {
        const OPERATION: &str = "read_with";
        self.check_element::<T>(OPERATION)?;
        if self.is_contiguous() {
            return self.bytes().read_with(look);
        }
        let elements = self.read_now(OPERATION, Vec::new())?;
        Ok(self.engine.here().call_theirs(|| look(&elements)))
    }

    /// The element of a tensor with exactly one element, of any rank. Waits for it.
    ///
    /// # Errors
    ///
    /// [`Shape`](Error::Shape) unless there is exactly one element, and those of
    /// [`to_vec_async`](Self::to_vec_async).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// assert_eq!(t.select(0, -1)?.item::<f32>()?, 2.0);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        const OPERATION: &str = "item";
        let refuse = || Error::Shape {
            operation: OPERATION,
            reason: format!("{:?} holds {} elements, not one", self.shape(), self.len()),
        };
        if self.len() != 1 {
            return Err(refuse()).located();
        }
        let elements = self.read_now::<T>(OPERATION, Vec::new())?;
        elements.first().copied().ok_or_else(refuse)
    }

    /// Writes all elements in place, in row-major order. The call copies the elements before it
    /// returns. The write runs after earlier work and before later work. All views of the same
    /// memory see it.
    ///
    /// # Errors
    ///
    /// [`DType`](Error::DType) if `T` is not the element type; [`Length`](Error::Length) for a
    /// wrong number of elements. [`Shape`](Error::Shape) for a view whose elements are not
    /// consecutive in memory. Also `Shape`, for elements narrower than 4 bytes, if the view starts
    /// or ends inside a word shared with other elements. In a browser also
    /// [`WouldBlock`](Error::WouldBlock) for more bytes than the staging memory has room for; then
    /// the tensor may have lost its value. There, use [`write_async`](Self::write_async), which
    /// waits.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let t = gpu.tensor(&[1, 2, 3, 4], &[2, 2])?;
    /// t.select(0, 1)?.write(&[7, 8])?;
    /// assert_eq!(t.to_vec::<i32>()?, [1, 2, 7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn write<T: Element>(&self, elements: &[T]) -> Result<()> {
        let Some(start) = self.start_of_write(elements)? else {
            return Ok(());
        };
        let bytes = T::bytes_of(elements);
        let storage = self.storage.here();
        self.engine.here().upload(&storage, start, bytes)
    }

    /// As [`write`](Self::write), as a future. In a browser it waits for staging memory without
    /// blocking. Operations called meanwhile see only some of the new elements. A future that is
    /// dropped before its end leaves the tensor without a value. If nothing was written yet, it
    /// leaves the old one.
    ///
    /// ```no_run
    /// # async fn show(frame: &[f32]) -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open_async(Default::default()).await?;
    /// let t = gpu.zeros(&[4096, 4096], lapidary::DType::F32)?;
    /// t.write_async(frame).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write), without [`WouldBlock`](Error::WouldBlock).
    pub async fn write_async<T: Element>(&self, elements: &[T]) -> Result<()> {
        let Some(start) = self.start_of_write(elements)? else {
            return Ok(());
        };
        let bytes = T::bytes_of(elements);
        let storage = self.storage.here();
        (self.engine.here())
            .upload_async(&storage, start, bytes)
            .await
    }

    /// Byte offset in the memory where the elements are written; `None` for no elements.
    #[track_caller]
    fn start_of_write<T: Element>(&self, elements: &[T]) -> Result<Option<u64>> {
        const OPERATION: &str = "write";
        self.check_untracked(OPERATION)?;
        self.check_element::<T>(OPERATION)?;
        if elements.len() != self.len() {
            return Err(Error::Length {
                operation: OPERATION,
                expected: self.len(),
                got: elements.len(),
                shape: self.shape().to_vec(),
                at: String::new(),
            })
            .located();
        }
        let refuse = |reason: String| {
            Err(Error::Shape {
                operation: OPERATION,
                reason,
            })
        };
        if !self.is_contiguous() {
            return refuse(format!(
                "the elements of {:?} with strides {:?} do not lie one after the other; write to \
                 a contiguous tensor and copy from that",
                self.shape(),
                self.strides()
            ))
            .located();
        }
        if elements.is_empty() {
            return Ok(None);
        }
        let bytes = self.bytes();
        let start = bytes.offset_bytes();
        if !bytes.is_whole_words() {
            let end = start + bytes.size_bytes();
            return refuse(format!(
                "bytes {start} to {end} of the memory start or end inside a word of 4 bytes \
                 which holds other elements too; write to more of the tensor"
            ))
            .located();
        }
        Ok(Some(start))
    }

    /// Runs the work that computes the tensor's value, and returns when that work is submitted.
    /// Natively it blocks the thread that polls it, as [`Gpu::open_async`](crate::Gpu::open_async)
    /// says.
    ///
    /// # Errors
    ///
    /// The errors of that work. After [`OutOfMemory`](Error::OutOfMemory) the work is still queued:
    /// drop some tensors and call again.
    ///
    /// ```no_run
    /// # async fn show() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open_async(Default::default()).await?;
    /// let t = gpu.zeros(&[1024, 1024], lapidary::DType::F32)?;
    /// t.force_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn force_async(&self) -> Result<()> {
        self.engine.here().force(&self.storage.here()).await
    }

    /// As [`force_async`](Self::force_async), and waits for the result.
    ///
    /// # Errors
    ///
    /// Those of [`force_async`](Self::force_async).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// gpu.zeros(&[1024, 1024], lapidary::DType::F32)?.force()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(target_arch = "wasm32"))]
    pub fn force(&self) -> Result<()> {
        block_on("force", self.force_async())
    }

    #[track_caller]
    fn check_element<T: Element>(&self, operation: &'static str) -> Result<()> {
        if T::DTYPE == self.dtype {
            return Ok(());
        }
        Err(Error::DType {
            operation,
            expected: self.dtype.name().to_owned(),
            got: T::DTYPE,
            hint: "Name the tensor's own element type, or convert the tensor first",
            at: String::new(),
        })
        .located()
    }

    /// The bytes from the lowest element of the view to the highest, and the view's layout in them.
    fn span(&self) -> (Buffer, Layout) {
        let mut layout = self.layout.clone();
        let Some((lowest, highest)) = layout.span() else {
            let none = Buffer::part(&self.engine, self.storage.clone(), 0, 0);
            return (none, layout);
        };
        layout.offset -= lowest;
        let width = self.dtype.size_bytes();
        let (start, size_bytes) = (lowest as u64 * width, (highest - lowest + 1) as u64 * width);
        let span = Buffer::part(&self.engine, self.storage.clone(), start, size_bytes);
        (span, layout)
    }

    /// The tensor's bytes as a buffer that shares them, for your own kernels and passes. `None` for
    /// a view whose elements are not consecutive in memory: [`contiguous`](Self::contiguous) makes
    /// a copy.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let rows = gpu.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let second = rows.select(0, 1)?.buffer().expect("a row is contiguous");
    /// assert_eq!(second.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn buffer(&self) -> Option<Buffer> {
        self.is_contiguous().then(|| self.bytes())
    }

    /// The bytes of a contiguous view.
    pub(crate) fn bytes(&self) -> Buffer {
        debug_assert!(self.is_contiguous(), "{self:?}");
        self.span().0
    }

    /// Reads into `spare`, replacing its contents, and waits. Reads in place where possible.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    fn read_now<T: Element>(&self, operation: &'static str, spare: Vec<T>) -> Result<Vec<T>> {
        self.check_element::<T>(operation)?;
        let (span, layout) = self.span();
        picked(span.read_now(operation, spare)?, &layout)
    }
}

/// Picks the elements of a layout from the range between its lowest and its highest.
#[track_caller]
fn picked<T: Element>(elements: Vec<T>, layout: &Layout) -> Result<Vec<T>> {
    if layout.is_contiguous() {
        return Ok(elements);
    }
    gather(&elements, layout).ok_or_else(|| Error::Shape {
        operation: "read",
        reason: format!(
            "the host has no room for the {} elements of {:?}",
            layout.len(),
            layout.shape
        ),
    })
}

/// The elements of a layout, in row-major order of the indices. `None` if the host has no room for
/// them: a broadcast view may have more elements than the device holds.
fn gather<T: Copy>(elements: &[T], layout: &Layout) -> Option<Vec<T>> {
    let mut picked = Vec::new();
    picked.try_reserve_exact(layout.len()).ok()?;
    let rows = layout.rows();
    let (len, stride) = (rows.len, rows.stride);
    for start in rows {
        if stride == 1 {
            picked.extend_from_slice(&elements[start..start + len]);
        } else {
            let step = |at: usize| (start as u32).wrapping_add((at as u32).wrapping_mul(stride));
            picked.extend((0..len).map(|at| elements[step(at) as usize]));
        }
    }
    Some(picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the bounds that users rely on; it only has to compile.
    #[allow(dead_code, reason = "checked by the compiler, not run")]
    #[track_caller]
    fn reads_travel_between_threads_and_bounds_are_written_plainly(t: &Tensor) -> Result<()> {
        fn travels<F: Send + 'static>(_: F) {}
        travels(t.to_vec_async::<f32>());
        t.slice(0, 1, -1, 1)?.slice(0, None, None, -2)?;
        t.slice(-1, None, 3, 1)?;
        Ok(())
    }

    #[test]
    fn views_are_picked_from_the_bytes_between_their_lowest_and_highest_element() {
        let base = Layout::contiguous(&[3, 4, 5]);
        for view in [
            base.clone(),
            base.permute(&[2, 0, 1]).unwrap(),
            base.flip(&[0, 2]).unwrap(),
            base.slice(2, Some(1), Some(4), 2).unwrap(),
            base.narrow(1, 1, 2).unwrap(),
            base.select(0, -1)
                .unwrap()
                .broadcast_to(&[2, 4, 5])
                .unwrap(),
            base.narrow(0, 1, 0).unwrap(),
        ] {
            let mut layout = view.clone();
            let held: Vec<u32> = match layout.span() {
                Some((lowest, highest)) => {
                    layout.offset -= lowest;
                    (lowest as u32..=highest as u32).collect()
                }
                None => vec![],
            };
            let expected: Vec<u32> = view.elements().map(|element| element as u32).collect();
            assert_eq!(gather(&held, &layout), Some(expected), "{view:?}");
        }
    }

    #[test]
    fn more_elements_than_the_host_can_hold_are_no_abort() {
        let layout = Layout {
            shape: [1 << 30, 1 << 28].into_iter().collect(),
            strides: [0, 0].into_iter().collect(),
            offset: 0,
        };
        assert_eq!(gather(&[7_u32], &layout), None);
    }
}
