//! candle's side, as its examples run a Llama.

use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use candle_core::quantized::gguf_file::Content;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};
use candle_transformers::models::quantized_llama::ModelWeights;

use crate::files::{self, Files};
use crate::{PROMPT, Result, TOKENS, prompt};

#[derive(Clone)]
enum Model {
    Floats(Rc<Llama>, Cache),
    Blocks(ModelWeights),
}

/// A model with its cache. A clone shares all but what is appended later.
#[derive(Clone)]
pub(crate) struct Candle {
    model: Model,
    /// The model behind a prompt.
    behind: Option<(usize, Model)>,
}

impl Candle {
    pub(crate) fn floats(files: &Files) -> Result<Candle> {
        let config = Config {
            hidden_size: files::HIDDEN,
            intermediate_size: files::FEED,
            vocab_size: files::VOCABULARY,
            num_hidden_layers: files::LAYERS,
            num_attention_heads: files::HEADS,
            num_key_value_heads: files::KV_HEADS,
            use_flash_attn: false,
            rms_norm_eps: files::EPS,
            rope_theta: files::THETA,
            bos_token_id: None,
            eos_token_id: None,
            rope_scaling: None,
            max_position_embeddings: files::CONTEXT,
            tie_word_embeddings: false,
        };
        let weights = std::fs::read(&files.floats)?;
        let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
        let cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
        let model = Model::Floats(Rc::new(Llama::load(weights, &config)?), cache);
        let behind = None;
        Ok(Candle { model, behind })
    }

    pub(crate) fn blocks(path: &Path) -> Result<Candle> {
        let mut file = File::open(path)?;
        let content = Content::read(&mut file)?;
        let model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
        let (model, behind) = (Model::Blocks(model), None);
        Ok(Candle { model, behind })
    }

    /// Tokens a second behind so many.
    pub(crate) fn decode(&mut self, context: usize) -> Result<f64> {
        let behind = self.behind.take().filter(|behind| behind.0 == context);
        let mut model = match behind {
            Some((_, model)) => model,
            None => {
                let mut model = self.model.clone();
                model.forward(&prompt()[..context], 0)?;
                model
            }
        };
        self.behind = Some((context, model.clone()));
        let start = Instant::now();
        let mut token = 1;
        for at in 0..TOKENS {
            let logits = model.forward(&[token], context + at)?;
            token = logits.argmax(0)?.to_scalar()?;
        }
        Ok(TOKENS as f64 / start.elapsed().as_secs_f64())
    }

    /// Tokens a second of a whole prompt, to its first token.
    pub(crate) fn prefill(&mut self) -> Result<f64> {
        let mut model = self.model.clone();
        let start = Instant::now();
        let logits = model.forward(&prompt(), 0)?;
        logits.argmax(0)?.to_scalar::<u32>()?;
        Ok(PROMPT as f64 / start.elapsed().as_secs_f64())
    }

    /// The logarithm of the probability of a token behind the prompt.
    pub(crate) fn log_probability(&mut self, token: u32) -> Result<f32> {
        let logits = self.model.clone().forward(&prompt(), 0)?;
        let all = candle_nn::ops::log_softmax(&logits, 0)?;
        Ok(all.get(token as usize)?.to_scalar()?)
    }
}

impl Model {
    /// The logits of the last token.
    fn forward(&mut self, tokens: &[u32], at: usize) -> Result<Tensor> {
        let tokens = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        let logits = match self {
            Model::Floats(model, cache) => model.forward(&tokens, at, cache)?,
            Model::Blocks(model) => model.forward(&tokens, at)?,
        };
        Ok(logits.squeeze(0)?)
    }
}
