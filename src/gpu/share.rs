//! One device, two users: the app's buffers as tensors, our tensors in the app's commands.

use std::ops::Range;
use std::panic::Location;

use super::Gpu;
use crate::dtype::DType;
use crate::engine::{Pinned, block_on};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, checked};

/// What the app's commands do with a tensor that was bound for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// They only read it.
    Read,
    /// They write it.
    Write,
}

/// Where a bound tensor's elements are, in row-major order.
#[derive(Clone, Debug)]
pub struct BoundRange {
    /// The buffer; other tensors lie in it as well. Its usages are `STORAGE`, `COPY_SRC` and
    /// `COPY_DST`.
    pub buffer: wgpu::Buffer,
    /// First byte. A multiple of the device's storage offset alignment, unless the tensor is a
    /// view that starts inside its storage.
    pub offset_bytes: u64,
    /// How many bytes, rounded up to whole words.
    pub size_bytes: u64,
}

impl BoundRange {
    /// The range as a binding resource.
    pub fn binding(&self) -> wgpu::BindingResource<'_> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &self.buffer,
            offset: self.offset_bytes,
            size: wgpu::BufferSize::new(self.size_bytes),
        })
    }
}

/// The bound tensors, in the order in which they were named. Good for the call only: afterwards
/// tensors may move.
#[derive(Debug)]
pub struct Bound {
    ranges: Vec<BoundRange>,
}

impl std::ops::Index<usize> for Bound {
    type Output = BoundRange;

    /// Panics if fewer tensors were bound.
    fn index(&self, index: usize) -> &BoundRange {
        &self.ranges[index]
    }
}

impl Bound {
    /// All ranges.
    pub fn ranges(&self) -> &[BoundRange] {
        &self.ranges
    }
}

impl Gpu {
    /// Lets the app use tensors in commands of its own: runs what is queued, keeps the tensors in
    /// place, calls `encode` with where they are, submits the command buffers that it returns after our own
    /// work, and lets go.
    ///
    /// Our locks are not held during `encode`: it may use lapidary, and so may other threads. What they
    /// ask for meanwhile may run before the command buffers that `encode` returns, or after them.
    ///
    /// ```no_run
    /// # fn draw(device: &wgpu::Device, gpu: &lapidary::Gpu, t: &lapidary::Tensor) -> lapidary::Result<()> {
    /// use lapidary::Access;
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
    /// A tensor's own error ([`Error::OutOfMemory`], [`Error::Poisoned`]); [`Error::Shape`] for a
    /// view that is not contiguous or starts inside a word of 4 bytes, or a tensor without elements; [`Error::Foreign`]; [`Error::Driver`] when wgpu refuses the
    /// commands; [`Error::DeviceLost`].
    pub fn with_bound(
        &self,
        tensors: &[(&Tensor, Access)],
        encode: impl FnOnce(&Bound) -> Vec<wgpu::CommandBuffer>,
    ) -> Result<()> {
        block_on("Gpu::with_bound", self.with_bound_async(tensors, encode))
    }

    /// As [`with_bound`](Gpu::with_bound), as a future. Natively it blocks the thread that polls
    /// it, as [`open_async`](Gpu::open_async) says.
    ///
    /// # Errors
    /// As [`with_bound`](Gpu::with_bound).
    pub async fn with_bound_async(
        &self,
        tensors: &[(&Tensor, Access)],
        encode: impl FnOnce(&Bound) -> Vec<wgpu::CommandBuffer>,
    ) -> Result<()> {
        let driver = self.wgpu("with_bound")?;
        for (tensor, _) in tensors {
            self.check_bindable(tensor)?;
        }
        let storages: Vec<_> = tensors.iter().map(|(tensor, _)| &tensor.storage).collect();
        let pinned = self.engine.pin(&storages).await?;
        let bound = self.bound(tensors, &pinned)?;
        let buffers = encode(&bound);
        let written = tensors
            .iter()
            .filter(|(_, access)| *access == Access::Write);
        let written: Vec<_> = written.map(|(tensor, _)| &tensor.storage).collect();
        let submit = || {
            let submitted = driver.submit_app(buffers);
            submitted.map_err(|error| crate::engine::refusal("the app's commands", error))
        };
        self.engine.submit_foreign(&pinned, &written, submit).await
    }

    fn check_bindable(&self, tensor: &Tensor) -> Result<()> {
        if !self.engine.owns(&tensor.storage) {
            return Err(Error::Foreign {
                operation: "with_bound",
            });
        }
        if tensor.is_empty() {
            // A binding of no bytes would be one of the whole rest of the slab.
            return Err(Error::Shape {
                operation: "with_bound",
                reason: format!(
                    "a tensor of shape {:?} has no bytes to bind",
                    tensor.shape()
                ),
            });
        }
        if !tensor.layout.is_contiguous() {
            return Err(Error::Shape {
                operation: "with_bound",
                reason: format!(
                    "a view of shape {:?} and strides {:?} is not contiguous; bind contiguous()",
                    tensor.shape(),
                    tensor.strides()
                ),
            });
        }
        let start_bytes = tensor.layout.offset as u64 * tensor.dtype.size_bytes();
        if !start_bytes.is_multiple_of(4) {
            return Err(Error::Shape {
                operation: "with_bound",
                reason: format!(
                    "a view that starts at byte {start_bytes} starts inside a word; bind copy()"
                ),
            });
        }
        Ok(())
    }

    fn bound(&self, tensors: &[(&Tensor, Access)], pinned: &Pinned) -> Result<Bound> {
        let driver = self.wgpu("with_bound")?;
        let places = tensors.iter().zip(&pinned.places);
        let ranges = places.map(|((tensor, _), place)| {
            let size_bytes = tensor.dtype.size_bytes();
            let buffer = driver.buffer(place.buffer).ok_or(Error::Driver {
                what: "to bind a tensor",
                message: "its buffer is gone".into(),
            })?;
            Ok(BoundRange {
                buffer,
                offset_bytes: place.offset_bytes + tensor.layout.offset as u64 * size_bytes,
                size_bytes: (tensor.layout.len() as u64 * size_bytes).next_multiple_of(4),
            })
        });
        Ok(Bound {
            ranges: ranges.collect::<Result<_>>()?,
        })
    }

    /// Makes a tensor of a range of the app's own buffer; nothing is copied. The app must not
    /// destroy the buffer while the tensor lives, and orders its own accesses around ours by the order of
    /// submission (see [`flush`](Gpu::flush)).
    ///
    /// # Errors
    /// [`Error::Buffer`] when the buffer lacks one of the usages `STORAGE`, `COPY_SRC` and
    /// `COPY_DST`, when the range passes its end, starts at no multiple of the device's storage
    /// offset alignment, is not as long as `shape` takes, rounded up to a multiple of 16 bytes (kernels
    /// write whole quads), or overlaps another import.
    #[track_caller]
    pub fn import(
        &self,
        buffer: &wgpu::Buffer,
        bytes: Range<u64>,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Tensor> {
        let site = Location::caller();
        let driver = self.wgpu("import")?;
        self.engine.check_lost()?;
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
        self.check_importable(buffer, &bytes)?;
        let enter = || driver.import_buffer(buffer);
        let storage = self.engine.import(enter, bytes.start, needed_bytes, site)?;
        let layout = Layout::contiguous(shape);
        Ok(Tensor::from_parts(&self.engine, storage, layout, dtype))
    }

    fn check_importable(&self, buffer: &wgpu::Buffer, bytes: &Range<u64>) -> Result<()> {
        let refuse = |reason: String| {
            Err(Error::Buffer {
                operation: "import",
                reason,
            })
        };
        let usages = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        if !buffer.usage().contains(usages) {
            return refuse(format!(
                "its usages are {:?}, without {usages:?}",
                buffer.usage()
            ));
        }
        if bytes.end > buffer.size() {
            return refuse(format!("{bytes:?} passes its end at {}", buffer.size()));
        }
        let alignment = self.caps().offset_alignment_bytes;
        if !bytes.start.is_multiple_of(alignment) {
            return refuse(format!(
                "it starts at {}, not a multiple of {alignment}",
                bytes.start
            ));
        }
        Ok(())
    }
}
