//! Tensors: an element type, a layout, a storage.
//!
//! `layout` is the arithmetic of shapes and strides, `views` has the methods that make views, `io`
//! reads and writes. Operations are in `ops`, which this module does not know.

mod axes;
pub(crate) mod called;
pub(crate) mod history;
mod io;
pub(crate) mod layout;
mod placement;
#[cfg(test)]
mod tests;
mod views;

use std::fmt;
use std::sync::Arc;

use history::Link;
use lapidary_core::internal::{Engine, Handle, Storage};
use lapidary_core::{Buffer, DType, Error, Residency, Result, stats::Tag};
use layout::{Layout, checked};

/// An n-dimensional array in device memory.
///
/// Cheap to clone: clones and views share their elements, so a write through one shows in all. The
/// memory is freed when the last of them is dropped, on any thread. The drop waits neither for the
/// device nor for work under way.
///
/// A tensor has at most 8 dimensions and 2³² − 4 elements, which must fit into one buffer of the
/// device ([`Caps::max_buffer_bytes`](crate::adapter::Caps::max_buffer_bytes)). `clone` makes
/// another handle to the same elements; [`copy`](Tensor::copy) makes new elements.
///
/// One binding of the device covers a *window* of at most
/// [`Caps::max_binding_bytes`](crate::adapter::Caps::max_binding_bytes) of a buffer. A kernel has
/// one binding fewer than
/// [`Caps::max_storage_bindings`](crate::adapter::Caps::max_storage_bindings): on many devices 7
/// windows of 128 MiB.
///
/// - Elementwise operations (operators, comparisons, `where_`, `clamp`, in-place forms, …), `cast`,
///   `copy`, `contiguous`, `copy_`, `fill_`, [`Gpu::full`](crate::Gpu::full) and
///   [`concat`](Tensor::concat) take operands of any number of windows. They run as several
///   launches where necessary. Then the result cannot reuse the memory of a dropped operand.
/// - Reductions, softmax, layer norm, `matmul`, `index_select`, `arange`, `eye` and random numbers
///   are one launch. If operands and result have more windows together, the call returns
///   [`Error::NeverFits`]. (For `concat`, each operand together with the result must fit.)
/// - A [`Kernel`](crate::Kernel) gets one window of each of its tensors.
///
/// Operations check shapes and element types at the call. The work itself runs later, at the latest
/// when a call needs a value. Methods of this page that return no `Result` answer at once and never
/// touch the device.
///
/// ```no_run
/// use lapidary::{DType, Gpu};
/// # fn main() -> lapidary::Result<()> {
/// let gpu = Gpu::open(Default::default())?;
/// let t = gpu.zeros(&[2, 3], DType::F32)?.named("scores");
/// assert_eq!((t.shape(), t.len(), t.size_bytes()), (&[2, 3][..], 6, 24));
/// assert_eq!(t.t()?.strides(), [1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tensor {
    pub(crate) engine: Handle<Engine>,
    pub(crate) storage: Handle<Storage>,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) link: Link,
}

impl Tensor {
    /// The sizes of the dimensions, outermost first. Empty for a 0-d tensor.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The stride of each axis, in elements: 0 where the axis was broadcast, negative where it was
    /// flipped.
    pub fn strides(&self) -> &[isize] {
        &self.layout.strides
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Number of elements: the product of the dimensions.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.layout.shape.contains(&0)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Size of all [`len`](Self::len) elements, in bytes. A broadcast view takes less memory, and a
    /// view of a large tensor keeps all of it alive.
    pub fn size_bytes(&self) -> u64 {
        self.layout.len() as u64 * self.dtype.size_bytes()
    }

    /// The call site and the name of its memory. A view has the tag of the tensor that it belongs
    /// to.
    pub fn tag(&self) -> Tag {
        self.storage.here().tag()
    }

    /// Names the tensor. Reports and errors use the name for all tensors that share its memory.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.engine.here().name(&self.storage.here(), name);
        self
    }

    /// Where its bytes are at the moment.
    pub fn residency(&self) -> Residency {
        self.storage.here().residency()
    }

    /// The number of writes to its memory so far, through any view.
    pub fn version(&self) -> u64 {
        self.storage.here().version()
    }

    /// Whether its elements are consecutive in memory, in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Whether both tensors share one memory. Their elements need not overlap.
    pub fn shares_storage_with(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.storage.here(), &other.storage.here())
    }

    /// A new tensor that a command is going to write: row-major, without a place yet. It has its
    /// own storage even if it has no elements.
    #[inline]
    #[track_caller]
    pub(crate) fn output(engine: &Handle<Engine>, shape: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::recorded(engine, shape, dtype, |_| Ok(()))
    }

    /// As [`output`](Self::output), full of zeros.
    #[track_caller]
    pub(crate) fn zeroed(engine: &Handle<Engine>, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let clear = |storage: &Handle<_>| engine.here().clear(&storage.here());
        Tensor::recorded(engine, shape, dtype, clear)
    }

    /// As [`output`](Self::output), with the command that writes it.
    #[inline]
    #[track_caller]
    fn recorded(
        engine: &Handle<Engine>,
        shape: &[usize],
        dtype: DType,
        record: impl FnOnce(&Handle<Storage>) -> Result<()>,
    ) -> Result<Tensor> {
        let (_, bytes) = checked(shape, dtype)?;
        let storage = engine.storage(bytes)?;
        record(&storage)?;
        let layout = Layout::contiguous(shape);
        Ok(Tensor::from_parts(engine, storage, layout, dtype))
    }

    /// Appends a clear of all its memory.
    pub(crate) fn clear_storage(&self) -> Result<()> {
        self.engine.here().clear(&self.storage.here())
    }

    /// A tensor of an existing storage.
    pub(crate) fn from_parts(
        engine: &Handle<Engine>,
        storage: Handle<Storage>,
        layout: Layout,
        dtype: DType,
    ) -> Tensor {
        let (engine, storage) = (engine.clone().resolved(), storage.resolved());
        storage.own().note_dtype(dtype);
        Tensor {
            engine,
            storage,
            layout,
            dtype,
            link: Link::default(),
        }
    }

    /// A tensor of a buffer's memory. The layout counts from the start of that.
    pub(crate) fn of_buffer(buffer: &Buffer, layout: Layout, dtype: DType) -> Tensor {
        Tensor::from_parts(buffer.engine(), buffer.storage().clone(), layout, dtype)
    }

    /// A tensor with another layout for the same elements.
    pub(crate) fn view(&self, layout: Layout) -> Tensor {
        debug_assert!(
            layout.span().is_none_or(|(_, highest)| {
                (highest as u64 + 1) * self.dtype.size_bytes() <= self.storage.size_bytes()
            }),
            "{layout:?} leaves {self:?}"
        );
        Tensor {
            layout,
            ..self.clone()
        }
    }

    /// Refuses an operand of another `Gpu`, or of another share.
    pub(crate) fn same_engine(&self, operation: &'static str, other: &Tensor) -> Result<()> {
        match self.engine.here().is_same(&other.engine.here()) {
            true => Ok(()),
            false => Err(Error::Foreign { operation }),
        }
    }
}

/// Does not print the elements: reading them would wait for the device.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("offset", &self.layout.offset)
            .field("residency", &self.residency())
            .field("made_at", &format_args!("{}", self.tag()))
            .finish()
    }
}

/// Its type, shape and tag: ``f32[2, 3] `scores` (src/main.rs:7)``. Never waits.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} {}", self.dtype, self.shape(), self.tag())
    }
}
