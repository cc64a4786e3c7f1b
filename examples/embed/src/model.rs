//! A whole model: tokenizer, encoder, and the way from texts to vectors.

#[cfg(not(target_arch = "wasm32"))]
use std::path::Path;

use lapidary::{Gpu, Tensor, files::ModelFile};

use crate::batch::{Batch, batches};
use crate::config::Config;
use crate::encoder::Encoder;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::precision::Precision;
use crate::words::{Tokens, Words};

/// Most times that a lost device is reopened while texts are encoded.
const MOST_LOSSES: usize = 3;

/// The description files of a model, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// `config.json`.
    pub config: &'a [u8],
    /// `sentence_bert_config.json`, which not every model has.
    pub sentences: Option<&'a [u8]>,
    /// `tokenizer.json`.
    pub tokenizer: &'a [u8],
}

/// A model ready to encode.
#[derive(Debug)]
pub struct Model {
    pub config: Config,
    pub words: Words,
    pub encoder: Encoder,
    /// Most tokens that go through the encoder at once, padding included. The memory beside the
    /// weights is proportional to it.
    pub batch_tokens: usize,
    described: Identity,
    gpu: Gpu,
}

/// Vectors of texts, in the order of the texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    /// All vectors in a row, each of unit length.
    pub vectors: Vec<f32>,
    /// Numbers per vector.
    pub width: usize,
    /// [`Model::id`] of the model that made them.
    pub model_id: u64,
    /// Number of texts that were longer than the model reads: only their beginning counts.
    pub cut: usize,
}

impl Model {
    /// The model in a folder, as `cargo xtask fetch-model` or your own download leaves it.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(gpu: &Gpu, folder: &Path) -> Result<Model> {
        Model::open_as(gpu, folder, Precision::F32)
    }

    /// As [`open`](Self::open), with weights in this precision.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open_as(gpu: &Gpu, folder: &Path, precision: Precision) -> Result<Model> {
        let read = |name: &str| match std::fs::read(folder.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(
                &folder.join(name).display().to_string(),
                error.to_string(),
            )),
        };
        let wanted = |name: &str| {
            read(name)?.ok_or_else(|| {
                Error::file(
                    &folder.display().to_string(),
                    format!(
                        "there is no {name}. `cargo xtask fetch-model` gets a model; or name a folder that has \
                         config.json, tokenizer.json and model.safetensors of one"
                    ),
                )
            })
        };
        let (config, tokenizer) = (wanted("config.json")?, wanted("tokenizer.json")?);
        let sentences = read("sentence_bert_config.json")?;
        let files = Files {
            config: &config,
            sentences: sentences.as_deref(),
            tokenizer: &tokenizer,
        };
        let weights = ModelFile::open(folder.join("model.safetensors"))?;
        Model::new_as(gpu, files, &weights, precision)
    }

    /// Combines the parts of a model. It reads no weight before the first text is encoded.
    pub fn new(gpu: &Gpu, files: Files<'_>, weights: &ModelFile) -> Result<Model> {
        Model::new_as(gpu, files, weights, Precision::F32)
    }

    /// As [`new`](Self::new), with weights in this precision.
    pub fn new_as(
        gpu: &Gpu,
        files: Files<'_>,
        weights: &ModelFile,
        precision: Precision,
    ) -> Result<Model> {
        let config = Config::parse(files.config, files.sentences)?;
        Ok(Model {
            words: Words::parse(files.tokenizer, &config)?,
            encoder: Encoder::new(gpu, &config, weights, precision)?,
            batch_tokens: batch_tokens(gpu, &config),
            described: Identity::described(files, weights),
            gpu: gpu.clone(),
            config,
        })
    }

    /// The vectors of texts. After every batch `done` gets the number of finished texts.
    ///
    /// A device that is lost meanwhile is reopened, up to three times. Finished vectors stay, and
    /// the weights are read from their file again.
    pub async fn embed(
        &self,
        texts: &[impl AsRef<str>],
        mut done: impl FnMut(usize),
    ) -> Result<Embedded> {
        let tokens = texts.iter().map(|text| self.words.tokens(text.as_ref()));
        let tokens: Vec<Tokens> = tokens.collect::<Result<_>>()?;
        let width = self.config.hidden_size;
        let mut embedded = Embedded {
            vectors: vec![0.0; texts.len() * width],
            width,
            model_id: self.id().await?,
            cut: tokens.iter().filter(|text| text.cut_from.is_some()).count(),
        };
        let batches = batches(&tokens, self.batch_tokens);
        let (mut done_batches, mut done_texts, mut losses) = (0, 0, 0);
        while done_batches < batches.len() {
            let rest = batches.get(done_batches..).unwrap_or_default();
            let arrived = |batch: &Batch, vectors: &[f32]| {
                for (&text, vector) in batch.texts.iter().zip(vectors.chunks_exact(width)) {
                    embedded.vectors[text * width..][..width].copy_from_slice(vector);
                }
                done_batches += 1;
                done_texts += batch.texts.len();
                done(done_texts);
            };
            match self.encode(rest, &tokens, arrived).await {
                Err(Error::Gpu(lapidary::Error::DeviceLost { .. })) if losses < MOST_LOSSES => {
                    losses += 1;
                    self.gpu.reopen_async().await?;
                }
                ended => ended?,
            }
        }
        Ok(embedded)
    }

    /// Encodes batches one after the other, and passes on each result.
    async fn encode(
        &self,
        batches: &[Batch],
        tokens: &[Tokens],
        mut arrived: impl FnMut(&Batch, &[f32]),
    ) -> Result<()> {
        let mut under_way = None;
        for batch in batches.iter().map(Some).chain([None]) {
            // Record the next batch before waiting for this one, so that the device stays busy.
            let next = match batch {
                Some(batch) => {
                    let texts: Vec<&Tokens> =
                        batch.texts.iter().map(|&text| &tokens[text]).collect();
                    Some((batch, self.encoder.encode(&texts)?.to_vec_async::<f32>()))
                }
                None => None,
            };
            if let Some((batch, read)) = std::mem::replace(&mut under_way, next) {
                arrived(batch, &read.await?);
            }
        }
        Ok(())
    }

    /// The vector of a query, and its number of tokens if its end was cut off.
    pub fn query(&self, text: &str) -> Result<(Tensor, Option<usize>)> {
        if text.trim().is_empty() {
            return Err(Error::Input(
                "there is nothing to search for: type some words".into(),
            ));
        }
        let tokens = self.words.tokens(text)?;
        let vector = self.encoder.encode(&[&tokens])?;
        Ok((vector.reshape(&[self.config.hidden_size])?, tokens.cut_from))
    }

    /// The least memory on the device at which no weight is ever dropped. It holds all weights, and
    /// the operands and results of a layer's widest operation for a whole batch.
    pub fn least_bytes(&self) -> u64 {
        let token = self.config.intermediate_size + 2 * self.config.hidden_size;
        self.encoder.weights_bytes() + (self.batch_tokens * token) as u64 * 4
    }

    /// Identifies this model, also among models of the same sizes: a checksum of its description
    /// and of one small tensor. It does not depend on the precision of the weights.
    pub async fn id(&self) -> Result<u64> {
        Ok(self
            .described
            .with(&self.encoder.sample().to_vec_async().await?))
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

/// The tokens that fit into a quarter of the budget, in the widest part of a layer.
fn batch_tokens(gpu: &Gpu, config: &Config) -> usize {
    const MOST: u64 = 2048;
    let token_bytes = 4 * (config.intermediate_size as u64 + 3 * config.hidden_size as u64);
    let room = gpu
        .memory()
        .budget()
        .device_bytes
        .map_or(MOST, |bytes| bytes / 4 / token_bytes);
    room.clamp(config.longest as u64, MOST.max(config.longest as u64)) as usize
}
