//! Model files: named arrays in the formats safetensors, in one or several files, and GGUF.
//!
//! ```text
//!   │ 8 bytes: n │ n bytes of JSON: name → type, shape, from, to │ the arrays, without a gap │
//! ```
//!
//! A file may come from anybody. `header` and `gguf` check every number against the file's length
//! before they use it. `shards` reads the index of several files. `contents` reads at positions,
//! from a file that must not change while it is open, or from the app's bytes. `convert` turns
//! stored elements into a device's types, those of `blocks` too. `writer` writes safetensors. This
//! module knows no tensors and no devices.

mod block_type;
mod contents;
mod convert;
mod fault;
mod gguf;
mod header;
mod meta;
mod shards;
mod stored;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use contents::Contents;
use fault::{check_system, error};
use header::Header;
use lapidary_core::{DType, Error, Result, failure::ModelFailure};

use super::quoted;

pub(crate) use convert::{can_load, device_type};
pub(crate) use fault::ModelFault;
pub(crate) use header::{ModelEntry, ShownShape};
pub use meta::MetaValue;
pub(crate) use stored::Stored;
pub(crate) use writer::{ModelWriter, SavedArray};

/// The directory of a model file. It may outlive the open file.
#[derive(Debug)]
pub(crate) struct ModelDirectory {
    path: String,
    /// The paths of the files that have the arrays.
    parts: Vec<String>,
    header: Header,
}

/// An open model, whose headers are valid.
pub(crate) struct ModelReader {
    directory: Arc<ModelDirectory>,
    /// The files that have the arrays.
    parts: Vec<Contents>,
}

impl ModelReader {
    /// Opens a model, and reads and checks its headers. A folder or an index leads to the files.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) fn open(path: &Path) -> Result<ModelReader> {
        let shown = path.display().to_string();
        let file = shards::file_of(path).map_err(|fault| error(&shown, fault))?;
        let shown = file.display().to_string();
        let contents = Contents::open(&file).map_err(|fault| error(&shown, fault))?;
        match shards::is_index(&file) {
            true => Self::of_shards(shown, &file, &contents),
            false => Self::over(shown, contents),
        }
    }

    /// As [`open`](Self::open), for a file in memory.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) fn from_bytes(bytes: Arc<[u8]>) -> Result<ModelReader> {
        let name = format!("given as {} bytes", bytes.len());
        Self::over(name, Contents::Bytes(bytes))
    }

    fn over(path: String, contents: Contents) -> Result<ModelReader> {
        let header = header_of(&contents).map_err(|fault| error(&path, fault))?;
        let parts = vec![path.clone()];
        Ok(ModelReader {
            directory: Arc::new(ModelDirectory {
                path,
                parts,
                header,
            }),
            parts: vec![contents],
        })
    }

    /// Opens the files that an index names.
    fn of_shards(path: String, index: &Path, contents: &Contents) -> Result<ModelReader> {
        let shards = shards::read(contents).map_err(|fault| error(&path, fault))?;
        let (mut paths, mut parts) = (Vec::new(), Vec::new());
        let (mut entries, mut metadata) = (Vec::new(), BTreeMap::new());
        for (part, (name, tensors)) in shards.into_iter().enumerate() {
            let file = index.with_file_name(name);
            let shown = file.display().to_string();
            let opened = Contents::open(&file).map_err(|mut fault| {
                fault.1 += match fault.0 {
                    ModelFailure::NotFound => ". The index names it: get it, too",
                    _ => ". The index names it",
                };
                error(&shown, fault)
            })?;
            let header = header_of(&opened).map_err(|fault| error(&shown, fault))?;
            if let Some(missing) = tensors.iter().find(|name| header.find(name).is_none()) {
                let reason = format!("it lacks {}, which the index expects", quoted(missing));
                return Err(error(&shown, ModelFault::damaged(reason)));
            }
            let own = header.entries.into_iter();
            entries.extend(own.map(|entry| ModelEntry { part, ..entry }));
            metadata.extend(header.metadata);
            paths.push(shown);
            parts.push(opened);
        }
        let header = Header::over(entries, metadata).map_err(|fault| error(&path, fault))?;
        let directory = ModelDirectory {
            path,
            parts: paths,
            header,
        };
        Ok(ModelReader {
            directory: Arc::new(directory),
            parts,
        })
    }

    /// The directory of the file.
    pub(crate) fn directory(&self) -> &Arc<ModelDirectory> {
        &self.directory
    }

    /// Are the bytes on disk, so that they take no memory?
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.parts[0], Contents::File { .. })
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
        let read = convert::read(&self.parts[entry.part], entry, dtype, offset_bytes, bytes);
        read.map_err(|fault| error(&self.directory.parts[entry.part], fault))
    }

    /// Fills `bytes` with those of an array as they are stored, from an offset on.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_stored(
        &self,
        index: usize,
        offset_bytes: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        let entry = &self.directory.header.entries[index];
        let read = convert::read_stored(&self.parts[entry.part], entry, offset_bytes, bytes);
        read.map_err(|fault| error(&self.directory.parts[entry.part], fault))
    }
}

/// The header of a file, in the format that its first bytes say.
fn header_of(contents: &Contents) -> Result<Header, ModelFault> {
    check_system()?;
    let mut start = [0; gguf::MAGIC.len()];
    let is_gguf = contents.len_bytes() >= start.len() as u64 && {
        contents.read(0, &mut start)?;
        start == *gguf::MAGIC
    };
    match is_gguf {
        true => gguf::read(contents),
        false => Header::read(contents),
    }
}

impl ModelDirectory {
    /// The arrays, in the order of the file.
    pub(crate) fn entries(&self) -> &[ModelEntry] {
        &self.header.entries
    }

    /// The writer's metadata.
    pub(crate) fn metadata(&self) -> &BTreeMap<String, MetaValue> {
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
