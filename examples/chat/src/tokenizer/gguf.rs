//! The tokenizer in the metadata of a GGUF file, said in the way of `tokenizer.json`.

use std::collections::HashMap;

use lapidary::files::{MetaValue, ModelFile};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// How texts are split before bytes are merged, by the name that llama.cpp gives it. Each pattern
/// splits what the ones before have left.
#[rustfmt::skip]
const SPLITS: [(&[&str], &[&str]); 4] = [
    (&["default", "gpt-2"], &[GPT2]),
    (&["llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"], &[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]),
    (&["qwen2", "deepseek-r1-qwen"], &[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]),
    (&["smollm", "refact", "command-r"], &[r"\p{N}", GPT2]),
];
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// SentencePiece's own limit is 16 characters.
const LONGEST_PIECE: usize = 1 << 10;

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
            let Some((_, patterns)) = row else {
                let known: Vec<&str> = SPLITS
                    .iter()
                    .flat_map(|(names, _)| *names)
                    .copied()
                    .collect();
                let known = known.join(", ");
                return Err(format!("it splits texts as {split:?}; known are {known}"));
            };
            by_bytes(&vocabulary, &texts("merges")?, patterns)
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
fn by_bytes(vocabulary: &HashMap<&str, usize>, merges: &[&str], patterns: &[&str]) -> Value {
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let split = |pattern: &&str| {
        json!({
            "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated",
            "invert": false,
        })
    };
    let mut splits: Vec<Value> = patterns.iter().map(split).collect();
    splits.push(bytes.clone());
    json!({
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": splits },
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
    // Each cut of a piece is looked up, so a long one would take for ever.
    if let Some(long) = tokens.iter().find(|token| token.len() > LONGEST_PIECE) {
        let len = long.len();
        return Err(format!("a token has {len} bytes, at most {LONGEST_PIECE}"));
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

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    fn pieces(split: &str, text: &str) -> Vec<String> {
        let row = SPLITS.iter().find(|(names, _)| names.contains(&split));
        let vocabulary = HashMap::from([("a", 0)]);
        let mut described = by_bytes(&vocabulary, &[], row.expect("it is known").1);
        described["version"] = json!("1.0");
        let tokenizer: Tokenizer = described.to_string().parse().expect("a tokenizer");
        let mut text = PreTokenizedString::from(text);
        let split = tokenizer.get_pre_tokenizer().expect("it has one");
        split.pre_tokenize(&mut text).expect("any text");
        let pieces = text.get_splits(OffsetReferential::Original, OffsetType::Byte);
        pieces
            .into_iter()
            .map(|(piece, ..)| piece.to_owned())
            .collect()
    }

    #[test]
    fn digits_are_split_off_first() {
        assert_eq!(
            pieces("smollm", "List:\n\n1. a"),
            ["List", ":", "ĊĊ", "1", ".", "Ġa"]
        );
        assert_eq!(pieces("smollm", "a  55"), ["a", "ĠĠ", "5", "5"]);
        assert_eq!(pieces("gpt-2", "a  55"), ["a", "Ġ", "Ġ55"]);
    }

    #[test]
    fn a_piece_of_many_bytes_is_refused() {
        let long = "a".repeat(LONGEST_PIECE + 1);
        let vocabulary = HashMap::from([(long.as_str(), 0)]);
        assert!(by_pieces(&[&long], &vocabulary, &[0.0], true).is_err());
    }
}
