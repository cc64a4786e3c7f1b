//! Model files: named arrays in the formats safetensors, in one or several files, and GGUF.
//!
//! ```text
//!   │ 8 bytes: n │ n bytes of JSON: name → type, shape, from, to │ the arrays, without a gap │
//! ```
//!
//! A file may come from anybody. `header` and `gguf` check every number against the file's length
//! before they use it. `shards` reads the index of several files. `contents` reads at positions,
//! from a file that must not change while it is open, from the app's bytes, or from what a source
//! of the app gives. `convert` turns stored elements into a device's types, those of `blocks` too.
//! `writer` writes safetensors. This module knows no tensors and no devices.

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
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use contents::{Contents, Part};
use fault::{check_system, error};
use header::Header;
use lapidary_core::{DType, Error, Result, Source, failure::ModelFailure};

use super::quoted;

pub(crate) use convert::{can_load, device_type};
pub(crate) use fault::ModelFault;
pub(crate) use header::{ModelEntry, ShownShape};
pub use meta::MetaValue;
pub(crate) use stored::Stored;
pub(crate) use writer::{ModelWriter, SavedArray};

/// Bytes of a file that are asked of a source first. Few headers are longer.
const FIRST_BYTES: u64 = 64 << 10;

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

/// A part of an array that was awaited, if the file's bytes come from a source.
pub(crate) struct Fetched(Option<Contents>);

/// An array of a file, and what its bytes are read from.
pub(crate) struct StoredArray<'a> {
    entry: &'a ModelEntry,
    contents: &'a Contents,
    path: &'a str,
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

    /// As [`open`](Self::open), for a file of so many bytes that a source gives.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) async fn from_source(
        name: String,
        source: Source,
        len_bytes: u64,
    ) -> Result<ModelReader> {
        let contents = Contents::Source { source, len_bytes };
        let header = awaited_header(&contents).await;
        let header = header.map_err(|fault| error(&name, fault))?;
        Ok(Self::new(name, header, contents))
    }

    fn over(path: String, contents: Contents) -> Result<ModelReader> {
        let header = header_of(&contents).map_err(|fault| error(&path, fault))?;
        Ok(Self::new(path, header, contents))
    }

    /// A model of one file.
    fn new(path: String, header: Header, contents: Contents) -> ModelReader {
        let parts = vec![path.clone()];
        ModelReader {
            directory: Arc::new(ModelDirectory {
                path,
                parts,
                header,
            }),
            parts: vec![contents],
        }
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

    /// Are the bytes on disk or at a source, so that they take no memory?
    pub(crate) fn is_elsewhere(&self) -> bool {
        !matches!(self.parts[0], Contents::Bytes(_))
    }

    /// Do the bytes come from a source, so that they have to be [fetched](Self::fetch)?
    pub(crate) fn comes_later(&self) -> bool {
        matches!(self.parts[0], Contents::Source { .. })
    }

    /// Awaits these bytes of an array as they are stored, if they come from a source.
    ///
    /// # Errors
    /// [`Error::Model`].
    pub(crate) async fn fetch(&self, index: usize, range: Range<u64>) -> Result<Fetched> {
        let array = self.array(index, &Fetched(None));
        let (start, end) = (array.entry.offset_bytes, array.entry.len_bytes);
        let range = start + range.start.min(end)..start + range.end.min(end);
        let mut part = Part::default();
        let fetched = array.contents.fetch(range, &mut part).await;
        let is_fetched = fetched.map_err(|fault| error(array.path, fault))?;
        Ok(Fetched(is_fetched.then_some(Contents::Part(part))))
    }

    /// An array, to be read from what was fetched of it, or from its file.
    pub(crate) fn array<'a>(&'a self, index: usize, fetched: &'a Fetched) -> StoredArray<'a> {
        let entry = &self.directory.header.entries[index];
        StoredArray {
            entry,
            contents: fetched.0.as_ref().unwrap_or(&self.parts[entry.part]),
            path: &self.directory.parts[entry.part],
        }
    }

    /// So many bytes of an array as it is stored become so many bytes of this type.
    pub(crate) fn unit_bytes(&self, index: usize, dtype: DType) -> [u64; 2] {
        convert::unit_bytes(&self.directory.header.entries[index], dtype)
    }
}

impl StoredArray<'_> {
    /// Fills `bytes` with the array converted to `dtype`, from an offset in the converted array on.
    ///
    /// # Errors
    /// [`Error::Model`]; the contents of `bytes` are then unspecified.
    pub(crate) fn read(&self, dtype: DType, offset_bytes: u64, bytes: &mut [u8]) -> Result<()> {
        let read = convert::read(self.contents, self.entry, dtype, offset_bytes, bytes);
        read.map_err(|fault| error(self.path, fault))
    }

    /// Fills `bytes` with those of the array as they are stored, from an offset on.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_stored(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<()> {
        let read = convert::read_stored(self.contents, self.entry, offset_bytes, bytes);
        read.map_err(|fault| error(self.path, fault))
    }
}

/// The header of a file whose bytes are awaited. If a read of it finds too little, more of the file
/// is fetched, and reading begins again.
async fn awaited_header(contents: &Contents) -> Result<Header, ModelFault> {
    let (mut part, mut wanted_bytes) = (Part::default(), FIRST_BYTES);
    loop {
        contents.fetch(0..wanted_bytes, &mut part).await?;
        let fetched = Contents::Part(part);
        let header = header_of(&fetched);
        match fetched {
            Contents::Part(read) if read.missed_bytes().is_some() => part = read,
            _ => return header,
        }
        let had_bytes = part.bytes.len() as u64;
        wanted_bytes = (2 * had_bytes).max(part.missed_bytes().unwrap_or(0));
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
