//! Splits text into tokens, with the tokenizer that the model was trained with.

use tokenizers::Tokenizer;

use crate::config::Config;
use crate::error::{Error, Result};

const NAME: &str = "tokenizer.json";

/// A tokenizer that fits a model.
#[derive(Debug)]
pub struct Words {
    tokenizer: Tokenizer,
    longest: usize,
}

/// A text for the encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokens {
    /// Rows of the word table, with the special tokens before and after the text.
    pub ids: Vec<u32>,
    /// The number of tokens, if the text was longer than the model reads and its end was cut off.
    pub cut_from: Option<usize>,
}

impl Words {
    /// Reads `tokenizer.json`, and checks that every token has a row in the model's word table.
    pub fn parse(tokenizer: &[u8], config: &Config) -> Result<Words> {
        let mut tokenizer = Tokenizer::from_bytes(tokenizer).map_err(|error| {
            let reason = format!(
                "no tokenizer ({error}). Is this the file of that name in the model's folder?"
            );
            Error::file(NAME, reason)
        })?;
        // The padding and truncation settings of the file are for training in batches of one
        // length.
        tokenizer.with_padding(None);
        let cut = tokenizer.with_truncation(None);
        cut.map_err(|error| Error::file(NAME, error.to_string()))?;
        let vocabulary = tokenizer.get_vocab(true);
        if let Some((token, id)) = vocabulary.into_iter().max_by_key(|(_, id)| *id)
            && id as usize >= config.vocab_size
        {
            return Err(Error::file(
                NAME,
                format!(
                    "it does not fit the model: {token:?} is token {id}, and the model's table of words has {} rows. \
                     Take the tokenizer.json that came with this model",
                    config.vocab_size
                ),
            ));
        }
        let words = Words {
            tokenizer,
            longest: config.longest,
        };
        let around = words.tokens("")?.ids;
        // The special tokens may be missing from the vocabulary, so check them separately.
        if let Some(id) = around.iter().find(|id| **id as usize >= config.vocab_size) {
            return Err(Error::file(
                NAME,
                format!(
                    "it does not fit the model: it puts token {id} beside a text, and the model's table of words has \
                     {} rows. Take the tokenizer.json that came with this model",
                    config.vocab_size
                ),
            ));
        }
        let frame = around.len();
        if frame == 0 || frame >= config.longest {
            return Err(Error::file(
                NAME,
                format!(
                    "it puts {frame} tokens around a text, where the model wants some, and reads {} in all. \
                     Take the tokenizer.json that came with this model",
                    config.longest
                ),
            ));
        }
        Ok(words)
    }

    /// The tokens of a text. A text that is longer than the model reads is cut off.
    pub fn tokens(&self, text: &str) -> Result<Tokens> {
        let refuse = |error: tokenizers::Error| {
            Error::Input(format!(
                "a text cannot be divided into words: {error}. Is tokenizer.json the model's own?"
            ))
        };
        let mut encoding = self.tokenizer.encode_fast(text, false).map_err(refuse)?;
        let frame = self.tokenizer.get_post_processor();
        let frame = frame.map_or(0, |frame| {
            tokenizers::PostProcessor::added_tokens(frame, false)
        });
        let count = encoding.len() + frame;
        if count > self.longest {
            let rest = self.longest.saturating_sub(frame);
            encoding.truncate(rest, 0, tokenizers::TruncationDirection::Right);
        }
        let encoding = self
            .tokenizer
            .post_process(encoding, None, true)
            .map_err(refuse)?;
        Ok(Tokens {
            ids: encoding.get_ids().to_vec(),
            cut_from: (count > self.longest).then_some(count),
        })
    }
}
