//! The one door to the engine, for the layers above.
//!
//! ```text
//!   Gpu, Buffer, Kernel, Tensor hold ──► Handle ── here() ──► Here: the engine or the storage,
//!                                                             or its fake in a dry run
//! ```
//!
//! In a dry run another engine stands for that of a device, on one thread, and another storage for
//! each of the device's. A [`Handle`] leads to their operations by [`here`](Handle::here) alone, so
//! no call can forget that. What the layers above pass to an engine came through the same door, so
//! both are the device's or both the dry run's. Nothing inside of the engine asks for dry runs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::dry;
use super::handle::{Engine, WeakEngine};
use super::kernel::Launch;
use crate::driver::Caps;
use crate::error::Result;
use crate::memory::Storage;

/// An engine or a storage, as the layers above hold it.
///
/// What it does is behind [`here`](Self::here):
///
/// ```
/// # use lapidary_core::{Result, internal::{Engine, Handle, Storage}};
/// fn clear(engine: &Handle<Engine>, storage: &Handle<Storage>) -> Result<()> {
///     engine.here().clear(&storage.here())
/// }
/// ```
///
/// Without it there is no such operation, and no such operand:
///
/// ```compile_fail,E0599
/// # use lapidary_core::{Result, internal::{Engine, Handle, Storage}};
/// fn clear(engine: &Handle<Engine>, storage: &Handle<Storage>) -> Result<()> {
///     engine.clear(&storage.here())
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use lapidary_core::{Result, internal::{Engine, Handle, Storage}};
/// fn clear(engine: &Handle<Engine>, storage: &Handle<Storage>) -> Result<()> {
///     engine.here().clear(storage)
/// }
/// ```
pub struct Handle<T>(Arc<T>);

/// What may have a fake in a dry run of this thread.
pub trait Faked: Sized {
    /// The fake, if there is one. There is a dry run, on any thread.
    fn fake_here(own: &Arc<Self>) -> Here<'_, Self>;
}

/// The caller's engine or storage, or what stands for it in a dry run of this thread. A call uses
/// it, and nobody keeps it.
#[derive(Debug)]
pub enum Here<'a, T> {
    /// There is no dry run of it.
    Own(&'a Arc<T>),
    /// It has a fake.
    Fake(Arc<T>),
}

impl<T> Deref for Here<'_, T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        match self {
            Here::Own(own) => own,
            Here::Fake(fake) => fake,
        }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Faked> Handle<T> {
    pub(crate) fn new(own: Arc<T>) -> Self {
        Handle(own)
    }

    /// What this thread's calls mean by it: itself, or its fake. Without a dry run in the process,
    /// this is one atomic load.
    #[inline]
    pub fn here(&self) -> Here<'_, T> {
        match dry::is_any() {
            false => Here::Own(&self.0),
            true => T::fake_here(&self.0),
        }
    }

    /// The handle of what is [`here`](Self::here). An engine and a storage that are kept together
    /// are both the device's, or both the dry run's.
    #[inline]
    #[must_use]
    pub fn resolved(self) -> Self {
        match dry::is_any() {
            false => self,
            true => Handle(self.here().clone()),
        }
    }

    /// Is there a dry run of it, on this thread?
    pub fn is_faked(&self) -> bool {
        matches!(self.here(), Here::Fake(_))
    }

    /// Itself, also in a dry run. This is for what a dry run leaves to the device, as jobs and
    /// losses, and for comparing it with a note from before.
    pub fn own(&self) -> &Arc<T> {
        &self.0
    }
}

impl Handle<Engine> {
    /// What the device can do. A dry run can do the same.
    pub fn caps(&self) -> &Caps {
        self.0.caps()
    }

    /// A new storage of at least `bytes` (padded to 16), without a place. Its tag names the caller.
    ///
    /// # Errors
    /// Those of [`Gpu::buffer`](crate::Gpu::buffer).
    #[inline]
    #[track_caller]
    pub fn storage(&self, bytes: u64) -> Result<Handle<Storage>> {
        self.here().storage(bytes).map(Handle)
    }

    /// Appends the launch of a kernel on operands that are [`here`](Self::here).
    ///
    /// # Errors
    /// Those of [`Engine::launch`].
    #[track_caller]
    pub fn launch(&self, launch: Launch) -> Result<()> {
        self.here().launch(launch)
    }

    /// Whether operations of this engine may read the storage of a handle. The handle is of its own
    /// share, to which another share may have lent the storage.
    pub fn may_read(&self, handle: &Handle<Engine>, storage: &Handle<Storage>) -> bool {
        let here = self.here();
        here.is_same(&handle.here()) && storage.here().belongs_to(here.dead_list())
    }

    pub(crate) fn downgrade(&self) -> WeakEngine {
        self.0.downgrade()
    }
}

impl WeakEngine {
    /// The engine, unless all its holders are gone.
    pub(crate) fn upgrade(&self) -> Option<Handle<Engine>> {
        self.own().map(Handle)
    }
}

impl Handle<Storage> {
    /// Requested bytes. Those of a fake are as many.
    pub fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    /// Bytes with padding: a multiple of 16.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}
