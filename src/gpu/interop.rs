//! Sharing a device with the app: the app's buffers as tensors, our tensors in the app's commands.

use std::ops::Range;

use lapidary_core::internal::block_on;
use lapidary_core::interop::{Access, Bound};
use lapidary_core::{Buffer, DType, Error, Result, wgpu};

use super::Gpu;
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, checked};

impl Gpu {
    /// Lets the app use tensors in its own commands. The call runs the queue and keeps the tensors
    /// in place. It passes their places to `encode`, submits the returned command buffers after
    /// lapidary's own work, and releases the tensors. [`lapidary_core::Gpu::with_bound`] does the
    /// same with buffers.
    ///
    /// What is read and what is written lie in different buffers. So one pass may use both, and a
    /// copy may go from one to the other. The call moves tensors for that, within the budget.
    ///
    /// No lock of lapidary is held during `encode`: it may use lapidary, and so may other threads.
    /// Work recorded meanwhile may run before or after the returned command buffers.
    ///
    /// ```no_run
    /// # fn draw(device: &wgpu::Device, gpu: &lapidary::Gpu, t: &lapidary::Tensor) -> lapidary::Result<()> {
    /// use lapidary::interop::Access;
    ///
    /// gpu.with_bound(&[(t, Access::Read)], |bound| {
    ///     let mut encoder = device.create_command_encoder(&Default::default());
    ///     // … a pass that binds `bound[0].binding()` …
    ///     vec![encoder.finish()]
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// A tensor's own error ([`Error::OutOfMemory`], [`Error::Poisoned`]). [`Error::Shape`] for a
    /// view that is not contiguous or starts inside a word of 4 bytes, or for an empty tensor. The
    /// others are those of [`lapidary_core::Gpu::with_bound`].
    pub fn with_bound(
        &self,
        tensors: &[(&Tensor, Access)],
        encode: impl FnOnce(&Bound) -> Vec<wgpu::CommandBuffer>,
    ) -> Result<()> {
        block_on("Gpu::with_bound", self.with_bound_async(tensors, encode))
    }

    /// As [`with_bound`](Gpu::with_bound), as a future. Natively it blocks the thread that polls
    /// it, as [`open_async`](Gpu::open_async) says.
    pub async fn with_bound_async(
        &self,
        tensors: &[(&Tensor, Access)],
        encode: impl FnOnce(&Bound) -> Vec<wgpu::CommandBuffer>,
    ) -> Result<()> {
        let buffers = tensors.iter().map(|(tensor, access)| {
            if *access != Access::Read {
                tensor.check_untracked("with_bound")?;
            }
            Ok((self.bindable(tensor)?, *access))
        });
        let buffers: Vec<(Buffer, Access)> = buffers.collect::<Result<_>>()?;
        let buffers: Vec<_> = (buffers.iter().map(|(buffer, access)| (buffer, *access))).collect();
        self.0.with_bound_async(&buffers, encode).await
    }

    /// The bytes of a tensor, if the app can bind them.
    fn bindable(&self, tensor: &Tensor) -> Result<Buffer> {
        let operation = "with_bound";
        if !self.engine().may_read(&tensor.engine, &tensor.storage) {
            return Err(Error::Foreign { operation });
        }
        let start_bytes = tensor.layout.offset as u64 * tensor.dtype.size_bytes();
        let reason = if tensor.is_empty() {
            // wgpu would bind the whole rest of the slab.
            format!(
                "a tensor of shape {:?} has no bytes to bind",
                tensor.shape()
            )
        } else if !tensor.layout.is_contiguous() {
            format!(
                "a view of shape {:?} and strides {:?} is not contiguous; bind contiguous()",
                tensor.shape(),
                tensor.strides()
            )
        } else if !start_bytes.is_multiple_of(4) {
            format!("a view that starts at byte {start_bytes} starts inside a word; bind copy()")
        } else {
            return Ok(tensor.bytes());
        };
        Err(Error::Shape { operation, reason })
    }

    /// Makes a tensor of a range of the app's own buffer; nothing is copied. The app must not
    /// destroy the buffer while the tensor lives. It orders its own accesses by the order of
    /// submission (see [`flush`](lapidary_core::Gpu::flush)).
    ///
    /// # Errors
    /// [`Error::Buffer`] if the buffer lacks one of the usages `STORAGE`, `COPY_SRC` and
    /// `COPY_DST`, or if the range exceeds it or overlaps another import. The same if the offset is
    /// not a multiple of the device's storage offset alignment. The same if the size is not that of
    /// `shape`, rounded up to a multiple of 16 bytes (kernels write whole vec4s).
    #[track_caller]
    pub fn import(
        &self,
        buffer: &wgpu::Buffer,
        bytes: Range<u64>,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Tensor> {
        let (_, needed_bytes) = checked(shape, dtype)?;
        let size_bytes = bytes.end.saturating_sub(bytes.start);
        let wanted_bytes = needed_bytes.max(1).next_multiple_of(16);
        if wanted_bytes != size_bytes {
            let reason = format!(
                "{bytes:?} is {size_bytes} bytes long; shape {shape:?} of {dtype} takes \
                 {wanted_bytes}, a multiple of 16"
            );
            let operation = "import";
            return Err(Error::Buffer { operation, reason });
        }
        let imported = self.0.import_sized(buffer, bytes, needed_bytes)?;
        Ok(Tensor::of_buffer(
            &imported,
            Layout::contiguous(shape),
            dtype,
        ))
    }
}
