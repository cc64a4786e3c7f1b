//! candle's BERT on the CPU, with the files and sentences of `examples/embed`.
//!
//! `embed FOLDER < SENTENCES` prints a line of JSON: the number of sentences, and sentences per
//! second.

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use tokenizers::{PaddingParams, Tokenizer, TruncationParams};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// As in `examples/embed`.
const BATCH_TOKENS: usize = 2048;
const LONGEST: usize = 256;

fn main() -> Result {
    let folder = std::env::args_os()
        .nth(1)
        .ok_or("embed FOLDER < SENTENCES")?;
    let folder = PathBuf::from(folder);
    let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
    let weights = std::fs::read(folder.join("model.safetensors"))?;
    let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
    let model = BertModel::load(weights, &config)?;
    let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))?;
    tokenizer.with_padding(Some(PaddingParams::default()));
    tokenizer.with_truncation(Some(TruncationParams {
        max_length: LONGEST,
        ..TruncationParams::default()
    }))?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let sentences: Vec<&str> = text.lines().collect();

    let start = Instant::now();
    let vectors = embed(&model, &tokenizer, &sentences)?;
    let seconds = start.elapsed().as_secs_f64();
    let count = sentences.len();
    let first = vectors.first().ok_or("there are no sentences")?;
    let found = serde_json::json!({
        "by": "candle", "adapter": "CPU", "sentences": count, "seconds": seconds,
        "per_second": count as f64 / seconds, "likeness": likeness(first, &vectors),
    });
    println!("{found}");
    Ok(())
}

/// Batches of similar lengths, longest first.
fn embed(model: &BertModel, tokenizer: &Tokenizer, sentences: &[&str]) -> Result<Vec<Vec<f32>>> {
    let mut lengths = Vec::new();
    let mut bare = tokenizer.clone();
    bare.with_padding(None);
    for (at, sentence) in sentences.iter().enumerate() {
        lengths.push((bare.encode_fast(*sentence, true)?.len(), at));
    }
    lengths.sort_by_key(|&(length, _)| std::cmp::Reverse(length));
    let mut vectors = vec![Vec::new(); sentences.len()];
    let mut rest = &lengths[..];
    while let Some(&(longest, _)) = rest.first() {
        let (batch, others) = rest.split_at((BATCH_TOKENS / longest).clamp(1, rest.len()));
        rest = others;
        let texts: Vec<&str> = batch.iter().map(|&(_, at)| sentences[at]).collect();
        let found = encode(model, tokenizer, texts)?;
        for (&(_, at), vector) in batch.iter().zip(found) {
            vectors[at] = vector;
        }
    }
    Ok(vectors)
}

fn encode(model: &BertModel, tokenizer: &Tokenizer, texts: Vec<&str>) -> Result<Vec<Vec<f32>>> {
    let encodings = tokenizer.encode_batch(texts, true)?;
    let rows = |of: fn(&tokenizers::Encoding) -> &[u32]| {
        let rows: Vec<Vec<u32>> = encodings
            .iter()
            .map(|encoding| of(encoding).to_vec())
            .collect();
        Tensor::new(rows, &Device::Cpu)
    };
    let ids = rows(tokenizers::Encoding::get_ids)?;
    let mask = rows(tokenizers::Encoding::get_attention_mask)?;
    let hidden = model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
    let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
    let mean = hidden
        .broadcast_mul(&mask)?
        .sum(1)?
        .broadcast_div(&mask.sum(1)?)?;
    let vectors = mean.broadcast_div(&mean.sqr()?.sum_keepdim(1)?.sqrt()?)?;
    Ok(vectors.to_vec2::<f32>()?)
}

/// The mean cosine of all vectors with the first. Equal results have equal values.
fn likeness(first: &[f32], vectors: &[Vec<f32>]) -> f64 {
    let cosine = |other: &Vec<f32>| -> f64 {
        first
            .iter()
            .zip(other)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum()
    };
    vectors.iter().map(cosine).sum::<f64>() / vectors.len() as f64
}
