//! The model and the golden values.

use embed::{Embedded, Model, places};
use lapidary::{Budget, Gpu, Options};
use serde::Deserialize;

/// A text, and its tokens from Python.
#[derive(Debug, Deserialize)]
pub(crate) struct Golden {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
}

/// The texts, by index.
pub(crate) fn texts() -> Vec<Golden> {
    serde_json::from_slice(include_bytes!("../../golden/texts.json")).unwrap()
}

/// PyTorch's vectors of the texts, one after the other.
pub(crate) fn vectors() -> Vec<f32> {
    let bytes = include_bytes!("../../golden/embeddings.f32").chunks_exact(4);
    bytes
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// Is the model there? If `EMBED_MODEL` names it, its absence is an error.
pub(crate) fn is_there() -> bool {
    let folder = places::model_folder();
    if folder.join("model.safetensors").is_file() {
        return true;
    }
    assert!(
        std::env::var_os("EMBED_MODEL").is_none(),
        "EMBED_MODEL names {}, which has no model",
        folder.display()
    );
    println!("not run: there is no model in {}", folder.display());
    false
}

pub(crate) fn open(budget: Option<Budget>) -> (Gpu, Model) {
    let options = Options {
        budget,
        ..Options::from_env().unwrap()
    };
    let gpu = Gpu::open(options).unwrap();
    let model = Model::open(&gpu, &places::model_folder()).unwrap();
    (gpu, model)
}

/// The vectors of the first texts.
pub(crate) fn embed(model: &Model, count: usize) -> Embedded {
    let texts: Vec<String> = texts()
        .into_iter()
        .take(count)
        .map(|golden| golden.text)
        .collect();
    pollster::block_on(model.embed(&texts, |_| {})).unwrap()
}
