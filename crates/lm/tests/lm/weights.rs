//! Small models whose weights follow from their names, as in `tests/data/models.py`.

use std::path::{Path, PathBuf};

use half::f16;
use lapidary::files::{ModelFile, WeightForm};
use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu};
use lapidary_lm::{Config, LanguageModel, ModelOptions};
use lapidary_testing::model_file::file_with;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What `transformers` made of a model.
#[derive(Deserialize)]
pub(crate) struct Expected {
    salt: u64,
    tensors: BTreeMap<String, Vec<usize>>,
    pub(crate) prompt: Vec<u32>,
    /// The logits behind the prompt.
    pub(crate) logits: Vec<f32>,
    /// The tokens that follow.
    pub(crate) tokens: Vec<u32>,
}

/// More than the original context of some, which have other positions then.
const CONTEXT: usize = 128;

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

pub(crate) fn expected(name: &str) -> Expected {
    let text = std::fs::read_to_string(folder(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The simulated device.
pub(crate) fn gpu() -> Gpu {
    Gpu::simulated(SimOptions::default()).unwrap().0
}

/// The model of this name, with its weights in this form.
pub(crate) fn model(gpu: &Gpu, name: &str, form: WeightForm) -> LanguageModel {
    let whole = folder(name).join("model.gguf");
    if whole.exists() {
        let options = ModelOptions {
            weights: form,
            context: Some(CONTEXT),
        };
        return LanguageModel::open(gpu, whole, options).unwrap();
    }
    let file = ModelFile::from_bytes(safetensors(&expected(name))).unwrap();
    let mut config = Config::read(&folder(name).join("model.safetensors"), &file).unwrap();
    config.context = CONTEXT;
    LanguageModel::new(gpu, &file.weights_as(form).unwrap(), config).unwrap()
}

/// A Llama of so many layers, which nobody else computed, and its file.
pub(crate) fn deep(gpu: &Gpu, layers: usize) -> (LanguageModel, u64) {
    let mut of = expected("llama3");
    let shallow = std::mem::take(&mut of.tensors);
    for (name, shape) in shallow {
        match name.strip_prefix("model.layers.0.") {
            Some(part) => of.tensors.extend(
                (0..layers).map(|layer| (format!("model.layers.{layer}.{part}"), shape.clone())),
            ),
            None if name.contains(".layers.") => {}
            None => drop(of.tensors.insert(name, shape)),
        }
    }
    let bytes = safetensors(&of);
    let len = bytes.len() as u64;
    let file = ModelFile::from_bytes(bytes).unwrap();
    let mut config = Config::read(&folder("llama3").join("model.safetensors"), &file).unwrap();
    config.layers = layers;
    config.windows = vec![None; layers];
    (LanguageModel::new(gpu, &file, config).unwrap(), len)
}

/// The file of a model.
pub(crate) fn safetensors(expected: &Expected) -> Vec<u8> {
    let tensors: Vec<(&str, &[usize], Vec<u8>)> = (expected.tensors.iter())
        .map(|(name, shape)| {
            (
                name.as_str(),
                &shape[..],
                weight(expected.salt, name, shape),
            )
        })
        .collect();
    let arrays: Vec<(&str, &str, &[usize], &[u8])> = (tensors.iter())
        .map(|(name, shape, bytes)| (*name, "F16", *shape, &bytes[..]))
        .collect();
    file_with(&arrays)
}

/// Numbers from -1 to 1 that follow from a name: SplitMix64 from its FNV-1a hash on.
fn numbers(name: &str) -> impl Iterator<Item = f32> + use<> {
    let hash = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (1..).map(move |at: u64| {
        let mut z = seed.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

fn weight(salt: u64, name: &str, shape: &[usize]) -> Vec<u8> {
    let len = shape.iter().product();
    let numbers = numbers(&format!("{salt} {name}")).take(len);
    let value = |number: f32| match shape {
        [_] if name.ends_with("bias") => number * 0.25,
        [_] => number * 0.25 + 0.75,
        _ => number * (2.0 / (shape[shape.len() - 1] as f64).sqrt()) as f32,
    };
    numbers
        .flat_map(|number| f16::from_f32(value(number)).to_le_bytes())
        .collect()
}

/// The logits behind the prompt, and the tokens that follow greedily. The prompt goes in pieces of
/// so many tokens.
pub(crate) fn greedy(
    model: &LanguageModel,
    prompt: &[u32],
    piece: usize,
    new: usize,
) -> (Vec<f32>, Vec<u32>) {
    let cache = model.cache(DType::F32).unwrap();
    let mut sequence = cache.sequence("test");
    let (mut first, mut tokens) = (Vec::new(), Vec::new());
    let mut next = |ids: &[u32]| -> Vec<f32> {
        let from = sequence.len() as u32;
        let positions: Vec<u32> = (from..).take(ids.len()).collect();
        let step = cache.step(vec![(&mut sequence, ids.len())]).unwrap();
        let tokens = model.gpu().tensor(ids, &[ids.len()]).unwrap();
        let last = [ids.len() as u32 - 1];
        let hidden = model.hidden(&step, &tokens, &positions).unwrap();
        let logits = model.logits(&hidden, &last).unwrap();
        step.finish();
        logits.to_vec().unwrap()
    };
    let mut logits = Vec::new();
    for piece in prompt.chunks(piece) {
        logits = next(piece);
    }
    for _ in 0..new {
        if first.is_empty() {
            first = logits.clone();
        }
        let largest = |best: usize, at: usize| if logits[at] > logits[best] { at } else { best };
        let token = (0..logits.len()).reduce(largest).unwrap() as u32;
        tokens.push(token);
        logits = next(&[token]);
    }
    (first, tokens)
}
