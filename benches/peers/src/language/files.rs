//! The model's files: floats with their description, and two of blocks.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use crate::Result;

pub(crate) const HIDDEN: usize = 512;
pub(crate) const FEED: usize = 1408;
pub(crate) const VOCABULARY: usize = 8192;
pub(crate) const LAYERS: usize = 8;
pub(crate) const HEADS: usize = 8;
pub(crate) const KV_HEADS: usize = 4;
pub(crate) const CONTEXT: usize = 1024;
pub(crate) const EPS: f64 = 1e-5;
pub(crate) const THETA: f32 = 1e4;

const HEAD: usize = HIDDEN / HEADS;

/// The matrices of a layer, as either format names them, with their rows and columns.
const MATRICES: [(&str, &str, [usize; 2]); 7] = [
    ("self_attn.q_proj", "attn_q", [HIDDEN, HIDDEN]),
    ("self_attn.k_proj", "attn_k", [KV_HEADS * HEAD, HIDDEN]),
    ("self_attn.v_proj", "attn_v", [KV_HEADS * HEAD, HIDDEN]),
    ("self_attn.o_proj", "attn_output", [HIDDEN, HIDDEN]),
    ("mlp.gate_proj", "ffn_gate", [FEED, HIDDEN]),
    ("mlp.up_proj", "ffn_up", [FEED, HIDDEN]),
    ("mlp.down_proj", "ffn_down", [HIDDEN, FEED]),
];

pub(crate) struct Files {
    pub(crate) floats: PathBuf,
    pub(crate) q4_k: PathBuf,
    pub(crate) q8_0: PathBuf,
    /// Bytes of f32 that a token reads: all matrices but the embedding.
    pub(crate) matrix_bytes: usize,
}

impl Files {
    pub(crate) fn write(folder: &Path) -> Result<Files> {
        fs::create_dir_all(folder)?;
        let config = format!(
            r#"{{"model_type": "llama", "hidden_size": {HIDDEN}, "intermediate_size": {FEED},
            "vocab_size": {VOCABULARY}, "num_hidden_layers": {LAYERS},
            "num_attention_heads": {HEADS}, "num_key_value_heads": {KV_HEADS},
            "max_position_embeddings": {CONTEXT}, "rms_norm_eps": {EPS}, "rope_theta": {THETA},
            "tie_word_embeddings": false}}"#
        );
        fs::write(folder.join("config.json"), config)?;
        let mut tensors = vec![
            (
                "model.embed_tokens".to_owned(),
                "token_embd".to_owned(),
                random(VOCABULARY, HIDDEN)?,
            ),
            (
                "lm_head".into(),
                "output".into(),
                random(VOCABULARY, HIDDEN)?,
            ),
            ("model.norm".into(), "output_norm".into(), ones()?),
        ];
        for layer in 0..LAYERS {
            let names = |name: &str, short: &str| {
                (
                    format!("model.layers.{layer}.{name}"),
                    format!("blk.{layer}.{short}"),
                )
            };
            for (name, short, [rows, columns]) in MATRICES {
                let (name, short) = names(name, short);
                tensors.push((name, short, random(rows, columns)?));
            }
            for (name, short) in [
                ("input_layernorm", "attn_norm"),
                ("post_attention_layernorm", "ffn_norm"),
            ] {
                let (name, short) = names(name, short);
                tensors.push((name, short, ones()?));
            }
        }
        let floats = folder.join("model.safetensors");
        let named = tensors.iter();
        let named = named.map(|(name, _, tensor)| (format!("{name}.weight"), tensor.clone()));
        candle_core::safetensors::save(&named.collect::<HashMap<_, _>>(), &floats)?;
        let blocks = |name: &str, format| -> Result<PathBuf> {
            let path = folder.join(name);
            write_blocks(&path, &tensors, format)?;
            Ok(path)
        };
        let elements = tensors[1..].iter().map(|(_, _, tensor)| tensor);
        let elements = elements
            .filter(|tensor| tensor.rank() == 2)
            .map(Tensor::elem_count);
        Ok(Files {
            q4_k: blocks("q4_k.gguf", GgmlDType::Q4K)?,
            q8_0: blocks("q8_0.gguf", GgmlDType::Q8_0)?,
            matrix_bytes: 4 * elements.sum::<usize>(),
            floats,
        })
    }
}

/// Numbers of which a product has the size of its input.
fn random(rows: usize, columns: usize) -> Result<Tensor> {
    let size = 1.0 / (columns as f32).sqrt();
    Ok(Tensor::randn(0.0, size, (rows, columns), &Device::Cpu)?)
}

fn ones() -> Result<Tensor> {
    Ok(Tensor::ones(HIDDEN, candle_core::DType::F32, &Device::Cpu)?)
}

/// A file of GGUF. Rows that are no whole blocks of 256 are in Q8_0.
fn write_blocks(path: &Path, tensors: &[(String, String, Tensor)], format: GgmlDType) -> Result {
    let number = |number: usize| Value::U32(number as u32);
    let metadata = [
        ("general.architecture", Value::String("llama".into())),
        ("llama.context_length", number(CONTEXT)),
        ("llama.embedding_length", number(HIDDEN)),
        ("llama.feed_forward_length", number(FEED)),
        ("llama.block_count", number(LAYERS)),
        ("llama.attention.head_count", number(HEADS)),
        ("llama.attention.head_count_kv", number(KV_HEADS)),
        ("llama.rope.dimension_count", number(HEAD)),
        ("llama.rope.freq_base", Value::F32(THETA)),
        (
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(EPS as f32),
        ),
    ];
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let stored = |(_, name, tensor): &(String, String, Tensor)| {
        let columns = tensor.dims()[tensor.rank() - 1];
        let format = match (tensor.rank(), columns.is_multiple_of(format.block_size())) {
            (1, _) => GgmlDType::F32,
            (_, false) => GgmlDType::Q8_0,
            _ => format,
        };
        Ok((format!("{name}.weight"), QTensor::quantize(tensor, format)?))
    };
    let stored: Vec<(String, QTensor)> = tensors.iter().map(stored).collect::<Result<_>>()?;
    let stored: Vec<_> = stored
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    gguf_file::write(&mut File::create(path)?, &metadata, &stored)?;
    Ok(())
}
