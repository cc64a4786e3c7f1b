//! A decoder: its weights, and its forward over a step of the cache.

#[cfg(not(target_arch = "wasm32"))]
use std::path::Path;
use std::sync::Arc;

use lapidary::files::{ModelFile, WeightForm};
use lapidary::kv::{KvCache, KvOptions, KvStep};
use lapidary::operations::Weight;
use lapidary::{DType, Gpu, Tensor};

use crate::config::{Config, Scaling};
use crate::error::{Error, Result};
use crate::layer::Layer;
use crate::rope::Frequencies;
use crate::weights::{Loader, Norm};

/// How a model is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelOptions {
    /// The form of its matrices on the device.
    pub weights: WeightForm,
    /// The most tokens of a sequence; the model's own context unless given. That of a model with
    /// LongRoPE is its original one. For a longer one it has other factors, which are worse within
    /// the original one.
    pub context: Option<usize>,
}

/// A decoder whose weights are backed by its file. lapidary reads each at its first use, drops it
/// when memory is short, and reads it again. So a model larger than the budget opens at once.
///
/// It is a handle: a clone is the same model.
#[derive(Clone, Debug)]
pub struct LanguageModel(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    gpu: Gpu,
    config: Config,
    embedding: Weight,
    layers: Vec<Layer>,
    last_norm: Norm,
    /// What makes logits, unless the embedding does.
    output: Option<Weight>,
    frequencies: Frequencies,
    local_frequencies: Option<Frequencies>,
}

impl LanguageModel {
    /// Opens a model: a folder with `config.json` and safetensors, such a file, or a file of GGUF.
    ///
    /// # Errors
    ///
    /// [`Error::Description`] and [`Error::Architecture`] as [`Config::read`]. [`Error::Lapidary`]
    /// for a file that is missing, contradicts itself, lacks a tensor, or has one of another shape.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(gpu: &Gpu, path: impl AsRef<Path>, options: ModelOptions) -> Result<LanguageModel> {
        let path = path.as_ref();
        LanguageModel::of_file(gpu, path, &ModelFile::open(path)?, options)
    }

    /// As [`open`](Self::open), of a file that is open already. Its description is found by the
    /// path.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn of_file(
        gpu: &Gpu,
        path: &Path,
        file: &ModelFile,
        options: ModelOptions,
    ) -> Result<LanguageModel> {
        let mut config = Config::read(path, file)?;
        config.context = options.context.unwrap_or(config.context);
        LanguageModel::new(gpu, &file.weights_as(options.weights)?, config)
    }

    /// A model of an open file and its description. Its matrices have the form of
    /// [`ModelFile::weights_as`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a description that no model can have. [`Error::Lapidary`] for a file
    /// that lacks a tensor, or has one of another shape.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn new(gpu: &Gpu, file: &ModelFile, config: Config) -> Result<Self> {
        pollster::block_on(LanguageModel::new_async(gpu, file, config))
    }

    /// As [`new`](Self::new), as a future: the only form in a browser. There
    /// [`ModelFile::from_source_async`] opens a file, and [`Config::from_json`] reads its
    /// description.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub async fn new_async(gpu: &Gpu, file: &ModelFile, mut config: Config) -> Result<Self> {
        let refused = |reason| Error::Argument(format!("the description of the model: {reason}"));
        config.check().map_err(refused)?;
        let from_file = Loader::new(gpu, file, &config).factors().await?;
        if let (Some(found), Scaling::Each { factors, .. }) = (from_file, &mut config.rope.scaling)
        {
            *factors = found;
            config.check().map_err(refused)?;
        }
        let loader = Loader::new(gpu, file, &config);
        let embedding = loader.embedding()?;
        let layers = (0..config.layers).map(|layer| Layer::load(&loader, &config, layer));
        Ok(LanguageModel(Arc::new(Parts {
            layers: layers.collect::<Result<_>>()?,
            last_norm: loader.last_norm()?,
            output: loader.output(embedding.shape()[0])?,
            frequencies: Frequencies::new(&config.rope, config.context),
            local_frequencies: (config.local_rope.as_ref())
                .map(|rope| Frequencies::new(rope, config.context)),
            gpu: gpu.clone(),
            embedding,
            config,
        })))
    }

    /// Its description.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The handle on which it was opened.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// Number of tokens in its vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.0.embedding.shape()[0]
    }

    /// A cache for the keys and values of its layers, with elements of this type: `f32`, `f16` or
    /// `i8`.
    ///
    /// # Errors
    ///
    /// Those of [`KvCache::new`].
    pub fn cache(&self, dtype: DType) -> Result<KvCache> {
        let options = KvOptions {
            layers: self.0.config.layers,
            kv_heads: self.0.config.kv_heads,
            head_size: self.0.config.head_size,
            dtype,
            page_tokens: 16,
        };
        Ok(KvCache::new(&self.0.gpu, options)?)
    }

    /// The hidden states of the rows of a step, `[tokens, hidden]` of f32. `tokens` are their ids,
    /// `[tokens]` of u32, and `positions` are their places in their sequences. Work is recorded,
    /// not waited for. Reports and kernel times have the scopes `layer 3/attention` and `layer
    /// 3/feed forward`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the numbers of rows differ. Those of lapidary's operations.
    pub fn hidden(&self, step: &KvStep<'_>, tokens: &Tensor, positions: &[u32]) -> Result<Tensor> {
        let parts = &*self.0;
        let (gpu, config) = (&parts.gpu, &parts.config);
        if tokens.shape() != [step.tokens()] || positions.len() != step.tokens() {
            return Err(Error::Argument(format!(
                "a step of {} rows has tokens of {:?} and {} positions",
                step.tokens(),
                tokens.shape(),
                positions.len()
            )));
        }
        let angles = parts.frequencies.angles(gpu, positions);
        let local = parts.local_frequencies.as_ref();
        let local = local.map(|local| local.angles(gpu, positions));
        let mut x = parts.embedding.embedding(tokens)?.cast(DType::F32)?;
        if config.family.is_gemma() {
            x = x.mul((config.hidden as f32).sqrt())?;
        }
        for (number, layer) in parts.layers.iter().enumerate() {
            let angles = match (&local, config.windows[number]) {
                (Some(local), Some(_)) => local,
                _ => &angles,
            };
            x = layer.forward(gpu, config, number, step, &x, angles)?;
        }
        Ok(x)
    }

    /// The logits of some rows of hidden states: `[rows, vocabulary]` of f32.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for hidden states that are no matrix. Those of lapidary's operations.
    pub fn logits(&self, hidden: &Tensor, rows: &[u32]) -> Result<Tensor> {
        let parts = &*self.0;
        let [count, _] = *hidden.shape() else {
            return Err(Error::Argument(format!(
                "hidden states of {:?}: they are [rows, hidden]",
                hidden.shape()
            )));
        };
        let is_whole = rows.iter().copied().eq(0..count as u32);
        let x = match is_whole {
            true => hidden.clone(),
            false => hidden.index_select(0, &parts.gpu.tensor(rows, &[rows.len()])?)?,
        };
        let _logits = parts.gpu.scope("logits");
        let x = parts.last_norm.of(&x)?;
        let logits = parts
            .output
            .as_ref()
            .unwrap_or(&parts.embedding)
            .linear(&x, None)?;
        Ok(match parts.config.logit_cap {
            Some(cap) => logits.div(cap)?.tanh()?.mul(cap)?,
            None => logits,
        })
    }
}
