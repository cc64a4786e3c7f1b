//! What to expect of language models in several budgets, by dry runs: nothing is fetched, computed
//! or allocated. The guide "run a language model" has them.
//!
//! ```text
//! cargo run --release --package lapidary-lm --example expect
//! ```

use std::cell::Cell;
use std::path::Path;

use lapidary::files::{ModelFile, WeightForm};
use lapidary::kv::{KvCache, Sequence};
use lapidary::operations::BlockFormat;
use lapidary::sim::{SimMode, SimOptions};
use lapidary::{Budget, DType, Error, Gpu, Source};
use lapidary_lm::{Config, LanguageModel};
use serde_json::{Map, Value, json};

const MIB: u64 = 1 << 20;
const BUDGETS: [u64; 5] = [256 * MIB, 512 * MIB, 1024 * MIB, 2048 * MIB, 4096 * MIB];
const FORMS: [(&str, WeightForm); 3] = [
    ("f16", WeightForm::Float(DType::F16)),
    ("8 bits", WeightForm::Blocks(BlockFormat::Q8_0)),
    ("4 bits", WeightForm::Blocks(BlockFormat::Q4_0)),
];
/// The tokens of the prompt, and those of it that one step reads.
const PROMPT: usize = 1000;
const PIECE: usize = 250;
/// The tokens that follow. The first ones may read what the prompt has pushed out.
const TOKENS: usize = 18;
const FIRST: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 64 << 30,
        max_buffer_bytes: 1 << 30,
        max_binding_bytes: 1 << 30,
        ..SimOptions::default()
    };
    let (gpu, _) = Gpu::simulated(device)?;
    let budgets = BUDGETS.map(|bytes| format!(" {} |", size(bytes)));
    println!("| model | weights | in all |{}", budgets.concat());
    println!("| --- | --- | ---: |{}", " ---: |".repeat(BUDGETS.len()));
    for (name, description) in models() {
        let file = file(&description)?;
        let text = serde_json::to_vec(&description)?;
        let config = Config::from_json(Path::new(name), &text, None)?;
        for (form, weights) in FORMS {
            let file = file.weights_as(weights)?;
            let (whole, _) = run(&gpu, &file, &config, None)?;
            let read = BUDGETS.map(|bytes| match run(&gpu, &file, &config, Some(bytes)) {
                Ok((_, 0)) => " 0 |".to_owned(),
                Ok((_, read)) => format!(" {} |", size(read)),
                Err(Error::NeverFits { .. }) => " – |".to_owned(),
                Err(error) => format!(" {error} |"),
            });
            println!("| {name} | {form} | {} |{}", size(whole), read.concat());
        }
    }
    Ok(())
}

/// The models as their `config.json` describes them.
fn models() -> Vec<(&'static str, Value)> {
    let llama = |hidden: u64, layers: u64, heads: u64, inner: u64, head: u64, is_tied: bool| {
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": 8, "head_dim": head, "intermediate_size": inner,
            "vocab_size": 128_256, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0, "tie_word_embeddings": is_tied,
        })
    };
    let qwen = json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
        "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "intermediate_size": 4864,
        "vocab_size": 151_936, "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "tie_word_embeddings": true,
    });
    vec![
        ("Qwen 2.5, 0.5 billion parameters", qwen),
        (
            "Llama 3.2, 1.2 billion",
            llama(2048, 16, 32, 8192, 64, true),
        ),
        (
            "Llama 3.2, 3.2 billion",
            llama(3072, 28, 24, 8192, 128, true),
        ),
        (
            "Llama 3.1, 8 billion",
            llama(4096, 32, 32, 14336, 128, false),
        ),
    ]
}

/// A file with the tensors of a model. Nobody reads their bytes.
fn file(description: &Value) -> Result<ModelFile, Box<dyn std::error::Error>> {
    let number = |name: &str| description[name].as_u64().unwrap_or_default();
    let (hidden, inner) = (number("hidden_size"), number("intermediate_size"));
    let heads = number("num_attention_heads");
    let head = description["head_dim"].as_u64().unwrap_or(hidden / heads);
    let (q, kv) = (heads * head, number("num_key_value_heads") * head);
    let mut shapes = vec![
        (
            "model.embed_tokens.weight".to_owned(),
            vec![number("vocab_size"), hidden],
        ),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if description["tie_word_embeddings"] == json!(false) {
        shapes.push((
            "lm_head.weight".to_owned(),
            vec![number("vocab_size"), hidden],
        ));
    }
    for layer in 0..number("num_hidden_layers") {
        let mut add = |part: &str, shape: &[u64]| {
            shapes.push((format!("model.layers.{layer}.{part}"), shape.to_vec()));
        };
        for (part, rows) in [("q", q), ("k", kv), ("v", kv)] {
            add(&format!("self_attn.{part}_proj.weight"), &[rows, hidden]);
            if description["model_type"] == "qwen2" {
                add(&format!("self_attn.{part}_proj.bias"), &[rows]);
            }
        }
        add("self_attn.o_proj.weight", &[hidden, q]);
        add("mlp.gate_proj.weight", &[inner, hidden]);
        add("mlp.up_proj.weight", &[inner, hidden]);
        add("mlp.down_proj.weight", &[hidden, inner]);
        add("input_layernorm.weight", &[hidden]);
        add("post_attention_layernorm.weight", &[hidden]);
    }
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in shapes {
        let from = end;
        end += 2 * shape.iter().product::<u64>();
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [from, end] });
        header.insert(name, entry);
    }
    let header = serde_json::to_vec(&header)?;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    let len_bytes = bytes.len() as u64 + end;
    let source = Source::reader(move |from, into| {
        for (at, byte) in (from as usize..).zip(into) {
            *byte = bytes.get(at).copied().unwrap_or(0);
        }
        Ok(())
    });
    Ok(ModelFile::from_source(
        "model.safetensors",
        source,
        len_bytes,
    )?)
}

/// Reads a prompt, and says some tokens. Returns the most bytes of tensors, and the bytes that
/// each token reads from the file.
fn run(
    gpu: &Gpu,
    file: &ModelFile,
    config: &Config,
    budget_bytes: Option<u64>,
) -> lapidary::Result<(u64, u64)> {
    let read_bytes = Cell::new(0);
    let found = gpu.dry_run(|gpu| {
        if let Some(bytes) = budget_bytes {
            gpu.memory().set_budget(Budget::device(bytes))?;
        }
        let model = LanguageModel::new(gpu, file, config.clone()).map_err(of_lapidary)?;
        let cache = model.cache(DType::F16).map_err(of_lapidary)?;
        let mut sequence = cache.sequence("talk");
        for _ in 0..PROMPT / PIECE {
            say(&model, &cache, &mut sequence, PIECE)?;
        }
        let restored_bytes = || gpu.memory().stats().restored_bytes;
        let mut before = 0;
        for token in 0..TOKENS {
            if token == FIRST {
                before = restored_bytes();
            }
            say(&model, &cache, &mut sequence, 1)?;
        }
        read_bytes.set((restored_bytes() - before) / (TOKENS - FIRST) as u64);
        Ok((model, sequence))
    })?;
    Ok((found.peak_live_bytes, read_bytes.get()))
}

/// One step of so many rows, and the logits behind the last one.
fn say(
    model: &LanguageModel,
    cache: &KvCache,
    sequence: &mut Sequence,
    rows: usize,
) -> lapidary::Result<()> {
    let gpu = model.gpu();
    let positions: Vec<u32> = (sequence.len() as u32..).take(rows).collect();
    let tokens = gpu.zeros(&[rows], DType::U32)?;
    let step = cache.step(vec![(sequence, rows)])?;
    let hidden = model
        .hidden(&step, &tokens, &positions)
        .map_err(of_lapidary)?;
    step.finish();
    model
        .logits(&hidden, &[rows as u32 - 1])
        .map_err(of_lapidary)?
        .force()
}

fn of_lapidary(error: lapidary_lm::Error) -> Error {
    match error {
        lapidary_lm::Error::Lapidary(error) => error,
        other => Error::Option {
            option: "model",
            reason: other.to_string(),
        },
    }
}

fn size(bytes: u64) -> String {
    match bytes < 1000 * MIB {
        true => format!("{} MiB", bytes.div_ceil(MIB)),
        false => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}
