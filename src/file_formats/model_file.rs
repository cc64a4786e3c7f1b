//! Model files: named arrays in the format safetensors.
//!
//! ```text
//!   │ 8 bytes: n │ n bytes of JSON: name → type, shape, from, to │ the arrays, without a gap │
//! ```
//!
//! A file may come from anybody. `header` checks every number against the file's length before it
//! uses it. `contents` reads at positions, from a file that must not change while it is open, or
//! from the app's bytes. `convert` turns stored elements into a device's types. `writer` writes
//! such files. This module knows no tensors and no devices.

mod contents;
mod convert;
mod fault;
mod header;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use contents::Contents;
use fault::{check_system, error};
use header::Header;
use lapidary_core::{DType, Error, Result};

pub(crate) use convert::{can_load, device_type};
pub(crate) use fault::ModelFault;
pub(crate) use header::{ModelEntry, ShownShape};
pub(crate) use writer::{ModelWriter, SavedArray};

/// The directory of a model file. It may outlive the open file.
#[derive(Debug)]
pub(crate) struct ModelDirectory {
    path: String,
    header: Header,
}

/// An open model file with a valid header.
pub(crate) struct ModelReader {
    directory: Arc<ModelDirectory>,
    contents: Contents,
}

impl ModelReader {
    /// Opens a file, and reads and checks its header.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) fn open(path: &Path) -> Result<ModelReader> {
        let contents = Contents::open(path);
        Self::over(path.display().to_string(), contents)
    }

    /// As [`open`](Self::open), for a file in memory.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) fn from_bytes(bytes: Arc<[u8]>) -> Result<ModelReader> {
        let name = format!("given as {} bytes", bytes.len());
        Self::over(name, Ok(Contents::Bytes(bytes)))
    }

    fn over(path: String, contents: Result<Contents, ModelFault>) -> Result<ModelReader> {
        let read = contents.and_then(|contents| {
            check_system()?;
            let header = Header::read(&contents)?;
            Ok((header, contents))
        });
        match read {
            Ok((header, contents)) => Ok(ModelReader {
                directory: Arc::new(ModelDirectory { path, header }),
                contents,
            }),
            Err(fault) => Err(error(&path, fault)),
        }
    }

    /// The directory of the file.
    pub(crate) fn directory(&self) -> &Arc<ModelDirectory> {
        &self.directory
    }

    /// Are the bytes on disk, so that they take no memory?
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.contents, Contents::File { .. })
    }

    /// Fills `bytes` with the array converted to `dtype`, from an offset in the converted array on.
    ///
    /// # Errors
    /// [`Error::Model`]; the contents of `bytes` are then unspecified.
    pub(crate) fn read(
        &self,
        index: usize,
        dtype: DType,
        offset_bytes: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        let entry = &self.directory.header.entries[index];
        let read = convert::read(&self.contents, entry, dtype, offset_bytes, bytes);
        read.map_err(|fault| self.directory.error(fault))
    }
}

impl ModelDirectory {
    /// The arrays, in the order of the file.
    pub(crate) fn entries(&self) -> &[ModelEntry] {
        &self.header.entries
    }

    /// The writer's metadata.
    pub(crate) fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The index of the array of this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.header.find(name)
    }

    /// Converts a fault into the crate's error.
    pub(crate) fn error(&self, fault: ModelFault) -> Error {
        error(&self.path, fault)
    }
}

impl fmt::Debug for ModelReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelReader")
            .field("path", &self.directory.path)
            .field("tensors", &self.directory.entries().len())
            .finish_non_exhaustive()
    }
}
