//! A model in several files: an index says which file has which tensor. The index is the
//! `model.safetensors.index.json` of Hugging Face's models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::contents::Contents;
use super::fault::ModelFault;
use super::header::Texts;
use crate::file_formats::quoted;
use lapidary_core::failure::ModelFailure;

/// What the names of indices have: `model.safetensors.index.json`, and `….index.fp16.json`.
const INDEX: &str = ".index.";
/// The files to look for in a folder, the first ones first.
const IN_FOLDER: [&str; 2] = ["model.safetensors.index.json", "model.safetensors"];
/// Each of them stays open.
const MOST_SHARDS: usize = 500;
const MOST_INDEX_BYTES: u64 = 32 << 20;

/// What is read of an index.
#[derive(Deserialize)]
struct Index {
    /// The file of each tensor.
    weight_map: Option<Texts>,
}

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
    name.is_some_and(|name| name.contains(INDEX) && name.ends_with(".json"))
}

/// Reads an index.
pub(super) fn read(contents: &Contents) -> Result<Shards, ModelFault> {
    let wrong = |reason: String| ModelFault::damaged(reason);
    let len_bytes = contents.len_bytes();
    if len_bytes > MOST_INDEX_BYTES {
        let reason = format!("it has {len_bytes} bytes; an index has at most {MOST_INDEX_BYTES}");
        return Err(wrong(reason));
    }
    let mut text = vec![0; len_bytes as usize];
    contents.read(0, &mut text)?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| {
        let error = lapidary_core::internal::printable(&error.to_string(), 300);
        wrong(format!("it cannot be understood: {error}"))
    })?;
    let Some(Texts(map)) = index.weight_map else {
        return Err(wrong(
            "it has no `weight_map` with the files of tensors".into(),
        ));
    };
    let mut shards = Shards::new();
    for (tensor, file) in map {
        if !is_plain(&file) {
            let tensor = quoted(&tensor);
            let reason = format!("the file of {tensor} is not the name of a file beside it");
            return Err(wrong(reason));
        }
        shards.entry(file).or_default().push(tensor);
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
