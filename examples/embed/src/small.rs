//! A small model with made-up weights, as files: for tests of programs that need some model.

use lapidary::{Gpu, files::ModelFile};
use serde_json::{Value, json};

use crate::{Files, Model, Result};

/// Numbers per token.
pub const WIDTH: usize = 8;
/// Numbers per token in the middle of the layer.
const WIDE: usize = 16;
/// Most tokens of a text.
pub const LONGEST: usize = 12;
/// The vocabulary.
pub const WORDS: [&str; 6] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "stone", "cutter"];

/// The model on a device.
///
/// # Errors
/// Those of [`Model::new`].
pub fn model(gpu: &Gpu) -> Result<Model> {
    let (config, tokenizer) = (config().to_string(), tokenizer(&WORDS).to_string());
    let files = Files {
        config: config.as_bytes(),
        sentences: None,
        tokenizer: tokenizer.as_bytes(),
    };
    Model::new(gpu, files, &ModelFile::from_bytes(weights(&shapes()))?)
}

/// `config.json`.
pub fn config() -> Value {
    json!({
        "model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": WIDE, "layer_norm_eps": 1e-12,
        "max_position_embeddings": LONGEST, "type_vocab_size": 2, "vocab_size": WORDS.len(),
    })
}

/// `tokenizer.json` with this vocabulary.
pub fn tokenizer(words: &[&str]) -> Value {
    let vocabulary: serde_json::Map<_, _> = words
        .iter()
        .enumerate()
        .map(|(id, word)| ((*word).to_owned(), json!(id)))
        .collect();
    let special = |id: usize| json!({"id": WORDS[id], "ids": [id], "tokens": [WORDS[id]]});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"[CLS]": special(2), "[SEP]": special(3)},
        },
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    })
}

/// Names and shapes of all tensors.
pub fn shapes() -> Vec<(String, Vec<usize>)> {
    let mut shapes = vec![
        (
            "embeddings.word_embeddings.weight".into(),
            vec![WORDS.len(), WIDTH],
        ),
        (
            "embeddings.position_embeddings.weight".into(),
            vec![LONGEST, WIDTH],
        ),
        (
            "embeddings.token_type_embeddings.weight".into(),
            vec![2, WIDTH],
        ),
    ];
    let at = "encoder.layer.0";
    for (name, to, from) in [
        ("attention.self.query", WIDTH, WIDTH),
        ("attention.self.key", WIDTH, WIDTH),
        ("attention.self.value", WIDTH, WIDTH),
        ("attention.output.dense", WIDTH, WIDTH),
        ("intermediate.dense", WIDE, WIDTH),
        ("output.dense", WIDTH, WIDE),
    ] {
        shapes.push((format!("{at}.{name}.weight"), vec![to, from]));
        shapes.push((format!("{at}.{name}.bias"), vec![to]));
    }
    let norms =
        ["attention.output.LayerNorm", "output.LayerNorm"].map(|name| format!("{at}.{name}"));
    for name in norms.into_iter().chain(["embeddings.LayerNorm".into()]) {
        shapes.push((format!("{name}.weight"), vec![WIDTH]));
        shapes.push((format!("{name}.bias"), vec![WIDTH]));
    }
    shapes
}

/// A file with these tensors, and some numbers in them.
pub fn weights(shapes: &[(String, Vec<usize>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in shapes {
        let start = data.len();
        for at in 0..shape.iter().product::<usize>() {
            let number = ((at * 37 + name.len() * 11) % 19) as f32 / 19.0 - 0.4;
            data.extend_from_slice(&number.to_le_bytes());
        }
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    let header = Value::from(header).to_string().into_bytes();
    [&(header.len() as u64).to_le_bytes(), &header[..], &data].concat()
}
