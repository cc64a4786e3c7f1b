//! Model files: named arrays in the format safetensors, as others have written them.
//!
//! ```text
//!   │ 8 bytes: n │ n bytes of JSON: name → type, shape, from, to │ the arrays, without a gap │
//! ```
//!
//! A file may come from anybody. `header` holds every number of it against the file's length before
//! anything is made of it; `contents` reads at positions, from a file that must stay as it was when
//! it was opened or from bytes of the app's; `convert` makes what is stored into what a device
//! holds; `writer` writes such files. Nothing here knows of tensors or devices.

mod contents;
mod convert;
mod header;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use safetensors::Dtype;

use contents::Contents;
use header::Header;
use lapidary_core::{DType, Error, ModelFailure, Result};

pub(crate) use convert::can_load;
pub(crate) use header::{Entry, ShownShape};
pub(crate) use writer::{ModelWriter, Saved};

/// What is wrong with a file, or with what is wanted of it.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) ModelFailure, pub(crate) String);

impl Fault {
    fn damaged(reason: impl Into<String>) -> Fault {
        Fault(ModelFailure::Damaged, reason.into())
    }
}

/// What a model file says of itself. It outlives the file where nobody needs its contents any more.
#[derive(Debug)]
pub(crate) struct ModelDirectory {
    path: String,
    header: Header,
}

/// An open model file whose header is sound.
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

    /// The same for what is in memory.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) fn from_bytes(bytes: Arc<[u8]>) -> Result<ModelReader> {
        let name = format!("given as {} bytes", bytes.len());
        Self::over(name, Ok(Contents::Bytes(bytes)))
    }

    fn over(path: String, contents: Result<Contents, Fault>) -> Result<ModelReader> {
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

    /// What it says of itself.
    pub(crate) fn directory(&self) -> &Arc<ModelDirectory> {
        &self.directory
    }

    /// Do the bytes stay where they are whoever lets go of them, so that nobody's memory holds
    /// them?
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.contents, Contents::File { .. })
    }

    /// Fills `bytes` from an offset of an array on, which is one of the array as `dtype`.
    ///
    /// # Errors
    /// [`Error::Model`]: then what is in `bytes` is not to be used.
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
    /// The arrays, in the order in which they lie in the file.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.header.entries
    }

    /// What the writer said of the file.
    pub(crate) fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The number of the array of this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.header.find(name)
    }

    /// A fault as the crate's error.
    pub(crate) fn error(&self, fault: Fault) -> Error {
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

/// The type that elements of a stored type have on a device, without a wish: their own, or the one
/// of four bytes that holds what they usually hold.
pub(crate) fn device_type(stored: Dtype) -> Option<DType> {
    Some(match stored {
        Dtype::F32 | Dtype::F64 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I32 | Dtype::I64 | Dtype::I16 => DType::I32,
        Dtype::U32 | Dtype::U64 | Dtype::U16 => DType::U32,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

fn error(path: &str, Fault(failure, reason): Fault) -> Error {
    Error::Model {
        path: path.to_owned(),
        failure,
        reason,
    }
}

/// Refuses where numbers would have to be turned around.
fn check_system() -> Result<(), Fault> {
    if cfg!(target_endian = "big") {
        let reason = "this machine keeps the high byte first, the file the low one";
        return Err(Fault(ModelFailure::Unavailable, reason.into()));
    }
    Ok(())
}
