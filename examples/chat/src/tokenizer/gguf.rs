//! The tokenizer in the metadata of a GGUF file, said in the way of `tokenizer.json`.

use std::collections::HashMap;

use lapidary::files::{MetaValue, ModelFile};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// How texts are split before bytes are merged, by the name that llama.cpp gives it.
#[rustfmt::skip]
const SPLITS: [(&[&str], &str); 4] = [
    (&["default", "gpt-2"], GPT2),
    (&["llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"],
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    (&["qwen2", "deepseek-r1-qwen"],
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    (&["smollm", "refact", "command-r"],
        r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
];
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Types of tokens, as llama.cpp numbers them.
const CONTROL: i64 = 3;
const OF_USER: i64 = 4;

pub(super) fn is_there(file: &ModelFile) -> bool {
    file.metadata().contains_key("tokenizer.ggml.tokens")
}

pub(super) fn tokenizer(file: &ModelFile) -> Result<Tokenizer, String> {
    let get = |name: &str| file.metadata().get(&format!("tokenizer.ggml.{name}"));
    let texts = |name: &str| -> Result<Vec<&str>, String> {
        let list = get(name).and_then(MetaValue::as_list).unwrap_or_default();
        let texts = list.iter().map(MetaValue::as_str).collect::<Option<_>>();
        texts.ok_or_else(|| format!("tokenizer.ggml.{name} is no list of texts"))
    };
    let tokens = texts("tokens")?;
    let vocabulary: HashMap<&str, usize> = tokens.iter().copied().zip(0..).collect();
    let kind = get("model").and_then(MetaValue::as_str).unwrap_or("gpt2");
    let mut described = match kind {
        "gpt2" => {
            let split = get("pre").and_then(MetaValue::as_str).unwrap_or("default");
            let row = SPLITS.iter().find(|(names, _)| names.contains(&split));
            let Some((_, regex)) = row else {
                let known: Vec<&str> = SPLITS
                    .iter()
                    .flat_map(|(names, _)| *names)
                    .copied()
                    .collect();
                let known = known.join(", ");
                return Err(format!("it splits texts as {split:?}; known are {known}"));
            };
            by_bytes(&vocabulary, &texts("merges")?, regex)
        }
        "llama" => {
            let scores = get("scores")
                .and_then(MetaValue::as_list)
                .unwrap_or_default();
            let scores: Vec<f64> = scores.iter().filter_map(MetaValue::as_f64).collect();
            let adds_space = get("add_space_prefix")
                .and_then(MetaValue::as_bool)
                .unwrap_or(true);
            by_pieces(&tokens, &vocabulary, &scores, adds_space)?
        }
        other => {
            return Err(format!(
                "its vocabulary is {other:?}; known are gpt2, llama"
            ));
        }
    };
    let types = get("token_type")
        .and_then(MetaValue::as_list)
        .unwrap_or_default();
    let added = types
        .iter()
        .zip(&tokens)
        .enumerate()
        .filter_map(|(id, (kind, token))| {
            let kind = kind
                .as_i64()
                .filter(|kind| [CONTROL, OF_USER].contains(kind))?;
            Some(json!({
                "id": id, "content": token, "special": kind == CONTROL,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }))
        });
    described["added_tokens"] = added.collect();
    described["version"] = json!("1.0");
    described
        .to_string()
        .parse::<Tokenizer>()
        .map_err(|error| error.to_string())
}

/// Pairs of bytes are merged, as GPT-2 does.
fn by_bytes(vocabulary: &HashMap<&str, usize>, merges: &[&str], split: &str) -> Value {
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let split = json!({
        "type": "Split", "pattern": { "Regex": split }, "behavior": "Isolated", "invert": false,
    });
    json!({
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [split, bytes] },
        "decoder": bytes,
        "model": { "type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": true },
    })
}

/// Pieces are merged where the longer one has the highest score, as SentencePiece does.
fn by_pieces(
    tokens: &[&str],
    vocabulary: &HashMap<&str, usize>,
    scores: &[f64],
    adds_space: bool,
) -> Result<Value, String> {
    if scores.len() != tokens.len() {
        return Err(format!(
            "{} tokens have {} scores",
            tokens.len(),
            scores.len()
        ));
    }
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut merges = Vec::new();
    for piece in order.into_iter().map(|at| tokens[at]) {
        let cuts = piece
            .char_indices()
            .skip(1)
            .map(|(at, _)| piece.split_at(at));
        let known = cuts.filter_map(|(left, right)| {
            Some((
                (vocabulary.get(left)?, vocabulary.get(right)?),
                (left, right),
            ))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        merges.extend(known.into_iter().map(|(_, (left, right))| [left, right]));
    }
    let prepend = adds_space.then(|| json!({ "type": "Prepend", "prepend": "▁" }));
    let replace = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let normalizers: Vec<Value> = prepend.into_iter().chain([replace]).collect();
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if adds_space {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    Ok(json!({
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "vocab": vocabulary, "merges": merges, "byte_fallback": true,
            "fuse_unk": true, "unk_token": "<unk>",
        },
    }))
}
