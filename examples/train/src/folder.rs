//! The folder of a model, as Hugging Face's programs read it: the weights, their description, and
//! a tokenizer for which each byte of ASCII is a token.

use std::error::Error;
use std::path::Path;

use lapidary::files::{ModelFile, by_name};
use lapidary::{DType, Gpu, Result, Tensor};
use serde_json::{Map, Value, json};

use crate::model::{BLOCKS, CONTEXT, EPS, HEAD, HEADS, HIDDEN, LETTERS, Model, THETA, WIDTH};

const WEIGHTS: &str = "model.safetensors";
/// Ends a text: a sentence is a line.
const END: u8 = b'\n';
/// Stands for what is not ASCII.
const UNKNOWN: &str = "?";
/// A message is a line, and the model writes the next one.
const CHAT_TEMPLATE: &str =
    "{% for message in messages %}{{ message['content'] + '\\n' }}{% endfor %}";

impl Model {
    /// This model with parameters that f16 has.
    pub(crate) fn rounded(&self) -> Result<Model> {
        Model::with(&self.gpu, |name, _, _| {
            let parameter = self.parameters.get(name).expect("both have the same");
            parameter.detach().cast(DType::F16)?.cast(DType::F32)
        })
    }

    /// Writes the files of the model into a folder, weights as f16.
    pub(crate) fn save(&self, folder: &Path) -> std::result::Result<(), Box<dyn Error>> {
        let cast = |(name, of): (String, Tensor)| Ok((name, of.cast(DType::F16)?));
        let named = self.parameters.state("").into_iter().map(cast);
        let named: Vec<_> = named.collect::<Result<_>>()?;
        let (files, weights) = (self.gpu.files(), folder.join(WEIGHTS));
        files.save_model(weights, &by_name(&named), &[("format", "pt")])?;
        for (name, content) in [
            ("config.json", config()),
            ("tokenizer.json", tokenizer()),
            ("tokenizer_config.json", tokenizer_config()),
        ] {
            std::fs::write(folder.join(name), format!("{content:#}\n"))?;
        }
        Ok(())
    }

    /// The model of a folder that [`save`](Self::save) wrote.
    pub(crate) fn load(gpu: &Gpu, folder: &Path) -> Result<Model> {
        let file = ModelFile::open(folder)?.floats_as(DType::F32)?;
        let saved = gpu.files().load_model(&file, |_| ())?;
        Self::with(gpu, |name, shape, _| saved.expect(name, shape))
    }
}

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "vocab_size": LETTERS,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": decimal(EPS),
        "rope_theta": decimal(THETA),
        "attention_bias": false,
        "mlp_bias": false,
        "tie_word_embeddings": false,
        "bos_token_id": null,
        "eos_token_id": END,
    })
}

/// Without the digits that a longer type would add.
fn decimal(number: f32) -> Value {
    let number = number.to_string().parse::<f64>();
    number.expect("a number as it is printed").into()
}

/// A byte-pair encoding without pairs.
fn tokenizer() -> Value {
    let letters = (0..LETTERS as u8).map(|byte| (char::from(byte).to_string(), byte.into()));
    let vocabulary: Map<String, Value> = letters.collect();
    json!({
        "version": "1.0",
        "added_tokens": [],
        "model": {
            "type": "BPE",
            "unk_token": UNKNOWN,
            "vocab": vocabulary,
            "merges": [],
        },
        // Joins letters without spaces.
        "decoder": { "type": "Fuse" },
    })
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": false,
        "chat_template": CHAT_TEMPLATE,
    })
}
