//! A model in several files: an index says which file has which tensor. The index is the
//! `model.safetensors.index.json` of Hugging Face's models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::contents::Contents;
use super::fault::ModelFault;
use super::header::MOST_HEADER_BYTES;
use crate::file_formats::quoted;
use lapidary_core::failure::ModelFailure;

/// How the names of indices end.
const INDEX: &str = ".index.json";
/// The files to look for in a folder, the first ones first.
const IN_FOLDER: [&str; 2] = ["model.safetensors.index.json", "model.safetensors"];
const MOST_SHARDS: usize = 10_000;

/// Files of a model, and which tensors the index expects in each.
pub(super) type Shards = BTreeMap<String, Vec<String>>;

/// The file to open for a path: in a folder, that of the model.
pub(super) fn file_of(path: &Path) -> Result<PathBuf, ModelFault> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let inside = IN_FOLDER.iter().map(|name| path.join(name));
    inside
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| {
            let [index, file] = IN_FOLDER;
            let reason = format!(
                "it is a folder without `{index}` and `{file}`: name the file, such as one of GGUF"
            );
            ModelFault(ModelFailure::NotFound, reason)
        })
}

/// Is it an index?
pub(super) fn is_index(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(INDEX))
}

/// Reads an index.
pub(super) fn read(contents: &Contents) -> Result<Shards, ModelFault> {
    let wrong = |reason: String| ModelFault::damaged(reason);
    let len_bytes = contents.len_bytes();
    if len_bytes > MOST_HEADER_BYTES {
        return Err(wrong(format!(
            "it has {len_bytes} bytes, too many for an index"
        )));
    }
    let mut text = vec![0; len_bytes as usize];
    contents.read(0, &mut text)?;
    let index: Value = serde_json::from_slice(&text).map_err(|error| {
        let error = lapidary_core::internal::printable(&error.to_string(), 300);
        wrong(format!("it cannot be understood: {error}"))
    })?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(wrong(
            "it has no `weight_map` with the files of tensors".into(),
        ));
    };
    let mut shards = Shards::new();
    for (tensor, file) in map {
        let file = file.as_str().filter(|file| is_plain(file)).ok_or_else(|| {
            wrong(format!(
                "the file of {} is not the name of a file beside it",
                quoted(tensor)
            ))
        })?;
        shards
            .entry(file.to_owned())
            .or_default()
            .push(tensor.clone());
        if shards.len() > MOST_SHARDS {
            return Err(wrong(format!("it names more than {MOST_SHARDS} files")));
        }
    }
    match shards.is_empty() {
        true => Err(wrong("its `weight_map` is empty".into())),
        false => Ok(shards),
    }
}

/// Is it a name without a folder? An index may come from anybody, and reads only what is beside it.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let is_normal = matches!(parts.next(), Some(std::path::Component::Normal(_)));
    is_normal && parts.next().is_none() && !name.contains(['/', '\\', ':'])
}
