//! Reads `config.json`: the model's sizes, and a check that the encoder can compute this model.

use serde::Deserialize;

use crate::error::{Error, Result};

const NAME: &str = "config.json";

/// The sizes of a BERT encoder, with the names of the file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Config {
    model_type: String,
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    /// Numbers per token.
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    /// Numbers per token in the middle of a layer.
    pub intermediate_size: usize,
    pub layer_norm_eps: f32,
    /// Positions that have vectors, so the most tokens of a text.
    pub max_position_embeddings: usize,
    pub type_vocab_size: usize,
    /// Rows of the word table.
    pub vocab_size: usize,
    /// Most tokens that are read of a text.
    #[serde(skip)]
    pub longest: usize,
}

/// The only field needed from `sentence_bert_config.json`.
#[derive(Deserialize)]
struct Sentences {
    max_seq_length: usize,
}

fn absolute() -> String {
    "absolute".into()
}

impl Config {
    /// Reads `config.json`, and `sentence_bert_config.json` if the model has one: it holds the
    /// length of the texts that the model was trained with.
    pub fn parse(config: &[u8], sentences: Option<&[u8]>) -> Result<Config> {
        let mut config: Config = serde_json::from_slice(config)
            .map_err(|error| Error::file(NAME, format!("no description of a BERT model ({error}). Is this the file of that name in a folder with all-MiniLM-L6-v2?")))?;
        config.longest = config.max_position_embeddings;
        if let Some(sentences) = sentences {
            let sentences: Sentences = serde_json::from_slice(sentences)
                .map_err(|error| Error::file("sentence_bert_config.json", format!("{error}. Take the model's own, or remove the file: then texts are read as far as the model has positions")))?;
            config.longest = config.longest.min(sentences.max_seq_length);
        }
        config.check()?;
        Ok(config)
    }

    /// Numbers per attention head.
    pub fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::file(NAME, reason));
        let kinds = [
            ("model_type", &self.model_type, "bert"),
            ("hidden_act", &self.hidden_act, "gelu"),
            (
                "position_embedding_type",
                &self.position_embedding_type,
                "absolute",
            ),
        ];
        for (key, value, expected) in kinds {
            if value != expected {
                return refuse(format!(
                    "its {key} is {value:?}, and this encoder computes {expected:?} only. \
                     `cargo xtask fetch-model` gets a model that fits, all-MiniLM-L6-v2"
                ));
            }
        }
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
            ("vocab_size", self.vocab_size),
        ];
        for (key, value) in sizes {
            if value == 0 || u32::try_from(value).is_err() {
                return refuse(format!(
                    "its {key} is {value}. The file is damaged: get the model again"
                ));
            }
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return refuse(format!(
                "{} numbers a token cannot be divided among {} heads. The file is damaged: get the model again",
                self.hidden_size, self.num_attention_heads
            ));
        }
        if !(self.layer_norm_eps >= 0.0 && self.layer_norm_eps.is_finite()) {
            return refuse(format!(
                "its layer_norm_eps is {}. The file is damaged: get the model again",
                self.layer_norm_eps
            ));
        }
        if self.longest < 3 {
            return refuse(format!(
                "texts of {} tokens at most have no room for a word. Get the model again",
                self.longest
            ));
        }
        Ok(())
    }
}
