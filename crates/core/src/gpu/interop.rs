//! Sharing a device with the app: imports of its buffers, and our buffers in its commands.

use std::ops::Range;
use std::panic::Location;

use super::Gpu;
use crate::buffer::Buffer;
use crate::driver::Device;
use crate::engine::{Handle, Pinned, block_on};
use crate::error::{Error, Result};

/// How the app's commands use a bound buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// They only read it.
    Read,
    /// They write it.
    Write,
}

/// The place of a bound buffer's bytes.
#[derive(Clone, Debug)]
pub struct BoundRange {
    /// The wgpu buffer, which holds other buffers too. Its usages are `STORAGE`, `COPY_SRC` and
    /// `COPY_DST`.
    pub buffer: wgpu::Buffer,
    /// Offset of the first byte. A multiple of the device's storage offset alignment, except for a
    /// slice or a view that starts elsewhere.
    pub offset_bytes: u64,
    /// Size in bytes, rounded up to whole words.
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

/// The bound buffers, in the order of the call. Valid only during the call: afterwards they may
/// move.
#[derive(Debug)]
pub struct Bound {
    ranges: Vec<BoundRange>,
}

impl std::ops::Index<usize> for Bound {
    type Output = BoundRange;

    /// Panics if fewer buffers were bound.
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

/// The features with which an app should open a device that lapidary [adopts](Gpu::adopt): those of
/// this adapter that make lapidary faster, or time its kernels. All are safe to request.
///
/// ```no_run
/// # async fn open(adapter: lapidary_core::wgpu::Adapter) -> Result<(), Box<dyn std::error::Error>> {
/// use lapidary_core::{interop::wanted_features, wgpu};
///
/// let opened = adapter.request_device(&wgpu::DeviceDescriptor {
///     required_features: wanted_features(&adapter), // and those of the app
///     required_limits: adapter.limits(),
///     ..Default::default()
/// });
/// let (device, queue) = opened.await?;
/// # Ok(()) }
/// ```
pub fn wanted_features(adapter: &wgpu::Adapter) -> wgpu::Features {
    crate::driver::wgpu::wanted_features(adapter)
}

impl Gpu {
    /// Lets the app use buffers in its own commands. The call runs the queue and keeps the buffers
    /// in place. It passes their places to `encode`, submits the returned command buffers after
    /// lapidary's own work, and releases the buffers.
    ///
    /// What is read and what is written lie in different buffers. So one pass may use both, and a
    /// copy may go from one to the other. The call moves buffers for that, within the budget.
    ///
    /// No lock of lapidary is held during `encode`: it may use lapidary, and so may other threads.
    /// Work recorded meanwhile may run before or after the returned command buffers.
    ///
    /// ```no_run
    /// # fn draw(device: &wgpu::Device, gpu: &lapidary_core::Gpu, points: &lapidary_core::Buffer) -> lapidary_core::Result<()> {
    /// use lapidary_core::interop::Access;
    ///
    /// gpu.with_bound(&[(points, Access::Read)], |bound| {
    ///     let mut encoder = device.create_command_encoder(&Default::default());
    ///     // … a pass that binds `bound[0].binding()` …
    ///     vec![encoder.finish()]
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// A buffer's own error ([`Error::OutOfMemory`], [`Error::Poisoned`]). [`Error::Buffer`] for a
    /// slice that starts inside a word of 4 bytes, or for an empty one. The same, or
    /// [`Error::OutOfMemory`], if a buffer to read cannot be set apart from one to write: the error
    /// names both. [`Error::Foreign`]; [`Error::Driver`] when wgpu refuses what `encode` does on
    /// this thread, or the commands; [`Error::DeviceLost`]. After all but the last two, `encode`
    /// was not called. If it records something wrong, nothing of it is submitted.
    pub fn with_bound(
        &self,
        buffers: &[(&Buffer, Access)],
        encode: impl FnOnce(&Bound) -> Vec<wgpu::CommandBuffer>,
    ) -> Result<()> {
        block_on("Gpu::with_bound", self.with_bound_async(buffers, encode))
    }

    /// As [`with_bound`](Gpu::with_bound), as a future. Natively it blocks the thread that polls
    /// it, as [`open_async`](Gpu::open_async) says.
    pub async fn with_bound_async(
        &self,
        buffers: &[(&Buffer, Access)],
        encode: impl FnOnce(&Bound) -> Vec<wgpu::CommandBuffer>,
    ) -> Result<()> {
        let driver = self.shared_driver("with_bound")?;
        for (buffer, access) in buffers {
            self.check_bindable(buffer, *access)?;
        }
        self.check_accesses(buffers)?;
        let storage = |(buffer, _): &(&Buffer, Access)| buffer.storage().here().clone();
        let storages: Vec<_> = buffers.iter().map(storage).collect();
        let is_written = |(_, access): &&(&Buffer, Access)| *access == Access::Write;
        let written: Vec<_> = buffers.iter().filter(is_written).map(storage).collect();
        let engine = self.engine.here();
        let pinned = engine.pin(&storages, &written).await?;
        let bound = bound(driver, buffers, &pinned)?;
        let refused = |error| crate::transfer::refusal("the app's commands", error);
        let record = Box::new(|| encode(&bound));
        let commands = driver.record_app(record).map_err(refused)?;
        let submit = || driver.submit_app(commands).map_err(refused);
        engine.submit_foreign(&pinned, &written, submit).await
    }

    /// Refuses bytes that are both read and written: no move takes them apart.
    fn check_accesses(&self, buffers: &[(&Buffer, Access)]) -> Result<()> {
        for (index, (one, access)) in buffers.iter().enumerate() {
            let shares =
                |(other, its): &&(&Buffer, Access)| its != access && one.shares_memory_with(other);
            if let Some(before) = buffers[..index].iter().position(|one| shares(&one)) {
                return Err(Error::buffer(
                    "with_bound",
                    format!(
                        "{before} and {index} of the list are bound with different accesses, and \
                         share the bytes made at {}, which wgpu refuses in one pass: bind both with \
                         `Access::Write`, and declare both `read_write` in the shader, or bind a copy",
                        one.tag()
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_bindable(&self, buffer: &Buffer, access: Access) -> Result<()> {
        let operation = "with_bound";
        if !self.engine.may_read(buffer.engine(), buffer.storage()) {
            return Err(Error::Foreign { operation });
        }
        if access == Access::Write {
            let storage = buffer.storage().here();
            self.engine.here().check_may_write(&storage)?;
        }
        let start_bytes = buffer.offset_bytes();
        let reason = if buffer.is_empty() {
            // wgpu would bind the whole rest of the slab.
            "an empty buffer has no bytes to bind".into()
        } else if !start_bytes.is_multiple_of(4) {
            format!("a slice that starts at byte {start_bytes} starts inside a word; bind copy()")
        } else {
            return Ok(());
        };
        Err(Error::buffer(operation, reason))
    }

    /// Makes a buffer of a range of the app's own buffer; nothing is copied. That buffer must
    /// belong to this device: wgpu cannot tell a buffer of another instance from one of its own.
    /// The app must not destroy it while this one lives. It orders its own accesses by the order of
    /// submission (see [`flush`](Gpu::flush)).
    ///
    /// # Errors
    /// [`Error::Buffer`] if the app's buffer lacks one of the usages `STORAGE`, `COPY_SRC` and
    /// `COPY_DST`. The same if the range exceeds it, is empty, or overlaps another import. The same
    /// if the offset is not a multiple of the device's storage offset alignment. The same if the
    /// size is not a multiple of 16 bytes (kernels write four words at once).
    #[track_caller]
    pub fn import(&self, buffer: &wgpu::Buffer, bytes: Range<u64>) -> Result<Buffer> {
        let size_bytes = bytes.end.saturating_sub(bytes.start);
        if size_bytes == 0 || !size_bytes.is_multiple_of(16) {
            let must = "it must be a multiple of 16, and not 0";
            let reason = format!("{bytes:?} is {size_bytes} bytes long; {must}");
            return Err(Error::buffer("import", reason));
        }
        self.import_sized(buffer, bytes, size_bytes)
    }

    /// As [`import`](Self::import); only the first `len_bytes` are a value.
    #[doc(hidden)]
    #[track_caller]
    pub fn import_sized(
        &self,
        buffer: &wgpu::Buffer,
        bytes: Range<u64>,
        len_bytes: u64,
    ) -> Result<Buffer> {
        let site = Location::caller();
        let driver = self.shared_driver("import")?;
        let engine = self.engine.here();
        engine.check_lost()?;
        self.check_importable(buffer, &bytes)?;
        let enter = || driver.import_buffer(buffer);
        let storage = engine.import(enter, bytes.start, len_bytes, site)?;
        Ok(Buffer::whole(&self.engine, Handle::new(storage)))
    }

    fn check_importable(&self, buffer: &wgpu::Buffer, bytes: &Range<u64>) -> Result<()> {
        let refuse = |reason: String| Err(Error::buffer("import", reason));
        let usages = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        let its = buffer.usage();
        if !its.contains(usages) {
            return refuse(format!("its usages are {its:?}, without {usages:?}"));
        }
        if bytes.end > buffer.size() {
            return refuse(format!("{bytes:?} passes its end at {}", buffer.size()));
        }
        let alignment = self.caps().offset_alignment_bytes;
        let start = bytes.start;
        if !start.is_multiple_of(alignment) {
            return refuse(format!(
                "it starts at {start}, not a multiple of {alignment}"
            ));
        }
        Ok(())
    }
}

/// The ranges of the buffers, where they are pinned.
fn bound(driver: &Device, buffers: &[(&Buffer, Access)], pinned: &Pinned) -> Result<Bound> {
    let refused = |error| crate::transfer::refusal("to bind a buffer", error);
    let places = buffers.iter().zip(&pinned.places);
    let ranges = places.map(|((buffer, _), place)| {
        let in_slab = driver.lend_buffer(place.buffer);
        Ok(BoundRange {
            buffer: in_slab.map_err(refused)?,
            offset_bytes: place.offset_bytes + buffer.offset_bytes(),
            size_bytes: buffer.size_bytes().next_multiple_of(4),
        })
    });
    Ok(Bound {
        ranges: ranges.collect::<Result<_>>()?,
    })
}
