//! Writes a model file: the largest elements first, then by name, as other writers do.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::contents::{check_files, kind_of};
use super::fault::{ModelFault, check_system, error};
use super::header::{LENGTH_BYTES, METADATA, MOST_HEADER_BYTES};
use crate::file_formats::quoted;
use crate::file_formats::replace::{Failure, FileOptions, Readers, Replacement};
use lapidary_core::{DType, Result, failure::ModelFailure};

/// One array to save.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedArray<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [usize],
}

/// A model file under construction. If it is dropped before `finish`, no file remains.
#[derive(Debug)]
pub(crate) struct ModelWriter {
    path: PathBuf,
    file: Replacement,
    at_bytes: u64,
    end_bytes: u64,
}

impl ModelWriter {
    /// Starts a file of these arrays. Returns the order (indices of the arrays) in which to
    /// [append](Self::append) their bytes.
    ///
    /// # Errors
    /// [`Error::Model`](crate::Error::Model).
    pub(crate) fn create(
        path: &Path,
        arrays: &[SavedArray<'_>],
        metadata: &[(&str, &str)],
        options: &FileOptions,
    ) -> Result<(ModelWriter, Vec<usize>)> {
        let begin = || {
            check_files()?;
            check_system()?;
            let (header, order, data_bytes) = encode(arrays, metadata)?;
            let file = Replacement::create(path, Readers::Usual, options).map_err(fault)?;
            let length = (header.len() as u64).to_le_bytes();
            file.write(&length, 0).map_err(fault)?;
            file.write(&header, LENGTH_BYTES).map_err(fault)?;
            let at_bytes = LENGTH_BYTES + header.len() as u64;
            Ok((file, order, at_bytes, data_bytes))
        };
        let begun = begin().map_err(|fault| error(&path.display().to_string(), fault));
        let (file, order, at_bytes, data_bytes) = begun?;
        let writer = ModelWriter {
            path: path.to_owned(),
            file,
            at_bytes,
            end_bytes: at_bytes + data_bytes,
        };
        Ok((writer, order))
    }

    /// Appends the next bytes of the arrays.
    ///
    /// # Errors
    /// [`Error::Model`](crate::Error::Model).
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write(bytes, self.at_bytes);
        self.at_bytes += bytes.len() as u64;
        written.map_err(|failure| error(&self.path.display().to_string(), fault(failure)))
    }

    /// Makes the file durable and replaces the old one.
    ///
    /// # Errors
    /// [`Error::Model`](crate::Error::Model).
    pub(crate) fn finish(self) -> Result<()> {
        let ended = match self.at_bytes == self.end_bytes {
            true => self.file.finish().map_err(fault),
            false => {
                let reason = "its tensors were not given as many bytes as their shapes hold";
                Err(ModelFault(ModelFailure::Io, reason.into()))
            }
        };
        ended.map_err(|fault| error(&self.path.display().to_string(), fault))
    }
}

fn fault(failure: Failure) -> ModelFault {
    ModelFault(kind_of(failure.kind), failure.reason)
}

/// The header, padded so that the data begins at a multiple of 8; the order of the arrays; the size
/// of all arrays in bytes.
fn encode(
    arrays: &[SavedArray<'_>],
    metadata: &[(&str, &str)],
) -> Result<(Vec<u8>, Vec<usize>, u64), ModelFault> {
    let unsavable = |reason: String| ModelFault(ModelFailure::Name, reason);
    let mut seen = HashSet::new();
    for SavedArray { name, .. } in arrays {
        if *name == METADATA {
            let reason = format!("no tensor can be called {METADATA}");
            return Err(unsavable(reason));
        }
        if !seen.insert(name) {
            return Err(unsavable(format!(
                "two tensors are called {}",
                quoted(name)
            )));
        }
    }
    let texts: BTreeMap<&str, &str> = metadata.iter().copied().collect();
    if texts.len() < metadata.len() {
        return Err(unsavable("two of its notes have one name".into()));
    }
    let mut order: Vec<usize> = (0..arrays.len()).collect();
    let stored = |at: usize| stored_type(arrays[at].dtype);
    order.sort_by(|&a, &b| {
        let by_size = stored(b).cmp(&stored(a));
        by_size.then_with(|| arrays[a].name.cmp(arrays[b].name))
    });
    let (mut entries, mut end) = (Vec::with_capacity(order.len()), 0);
    for &at in &order {
        let SavedArray { name, dtype, shape } = arrays[at];
        let from = end;
        end += shape.iter().product::<usize>() * dtype.size_bytes() as usize;
        let info = TensorInfo {
            dtype: stored_type(dtype),
            shape: shape.to_vec(),
            data_offsets: (from, end),
        };
        entries.push((name, info));
    }
    let header = serde_json::to_vec(&Head { texts, entries });
    let mut header = header.map_err(|error| unsavable(error.to_string()))?;
    header.resize(header.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
    if header.len() as u64 > MOST_HEADER_BYTES {
        return Err(unsavable(format!(
            "its names and notes take {} bytes, and {MOST_HEADER_BYTES} are the most",
            header.len()
        )));
    }
    Ok((header, order, end as u64))
}

struct Head<'a> {
    texts: BTreeMap<&'a str, &'a str>,
    entries: Vec<(&'a str, TensorInfo)>,
}

impl Serialize for Head<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.texts.is_empty() {
            map.serialize_entry(METADATA, &self.texts)?;
        }
        for (name, info) in &self.entries {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

fn stored_type(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}
