//! Commands as values, and the one walk that places and runs them.

pub(crate) mod kernel;
pub(crate) mod wgsl;

use std::sync::Arc;

use crate::driver::Caps;
use crate::error::Result;
use crate::memory::Storage;

pub(crate) use kernel::{Arg, Kernel, Launch, Operand, Variant};

/// The engine.
#[derive(Debug)]
pub(crate) struct Engine {}

impl Engine {
    /// What the device can do.
    pub(crate) fn caps(&self) -> &Caps {
        unimplemented!()
    }

    /// A storage of at least `bytes` (padded to 16), without a place yet, tagged with the caller.
    #[track_caller]
    pub(crate) fn storage(&self, _bytes: u64) -> Result<Arc<Storage>> {
        unimplemented!()
    }

    /// Appends a kernel.
    pub(crate) fn launch(&self, _launch: Launch) -> Result<()> {
        unimplemented!()
    }

    /// Appends a clear of the whole storage to zero.
    pub(crate) fn clear(&self, _storage: &Arc<Storage>) -> Result<()> {
        unimplemented!()
    }

    /// Appends a copy of bytes between two different storages; offsets and size multiples of 4.
    pub(crate) fn copy(
        &self,
        _src: &Arc<Storage>,
        _src_offset_bytes: u64,
        _dst: &Arc<Storage>,
        _dst_offset_bytes: u64,
        _size_bytes: u64,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Appends an upload: the bytes are copied before this returns. Offset a multiple of 4; a
    /// length that is not is padded with zeros to 4.
    pub(crate) fn upload(
        &self,
        _dst: &Arc<Storage>,
        _offset_bytes: u64,
        _bytes: &[u8],
    ) -> Result<()> {
        unimplemented!()
    }

    /// Runs all that was appended. Returns once it is submitted, not once it is done.
    pub(crate) async fn flush(&self) -> Result<()> {
        unimplemented!()
    }

    /// Runs what `storage` needs; the error is the storage's own.
    pub(crate) async fn force(&self, _storage: &Arc<Storage>) -> Result<()> {
        unimplemented!()
    }

    /// Reads bytes (any offset and length), once everything appended before has run. The read is
    /// appended at the call, not at the first poll.
    pub(crate) fn read(
        &self,
        _src: &Arc<Storage>,
        _offset_bytes: u64,
        _len_bytes: u64,
    ) -> Result<crate::driver::BoxFuture<'static, Result<Vec<u8>>>> {
        unimplemented!()
    }
}
