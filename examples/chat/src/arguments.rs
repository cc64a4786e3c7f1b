//! The arguments of the program.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use lapidary::DType;
use lapidary::files::WeightForm;
use lapidary::operations::BlockFormat;
use lapidary_lm::Sampling;

use crate::error::Error;

/// Talks with a language model, in as much of the GPU's memory as you give it.
#[derive(Clone, Debug, Parser)]
#[command(name = "chat", version)]
pub struct Arguments {
    /// A folder with `config.json` and safetensors, or a file of GGUF [default: a model of 1 MB
    /// that learned to write from documentation, not to talk]
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// The most memory of the device: 512MiB, 1.5GB, or a number of bytes
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub budget: Option<u64>,
    /// The form of the weights on the device
    #[arg(long, value_enum, default_value = "stored")]
    pub weights: Weights,
    /// The type of cached keys and values
    #[arg(long, value_enum, default_value = "f16")]
    pub cache: Cache,
    /// The most tokens of the conversation [default: the model's own]
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<usize>,
    /// The most tokens of an answer
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub tokens: usize,
    /// 0 says the likeliest token; more is freer
    #[arg(long, default_value_t = 0.7)]
    pub temperature: f32,
    /// Say one of so many of the likeliest tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 40)]
    pub top_k: usize,
    /// Say one of the likeliest tokens that have this probability together
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub top_p: f32,
    /// Make tokens that were said less likely; 1 does not
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub repetition_penalty: f32,
    /// The same seed gives the same answers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Ask this, print the answer, and end
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Answer OpenAI's clients at this address instead, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["prompt", "history", "system"])]
    pub serve: Option<String>,
    /// Go on with the conversation of this file, and save it there at the end
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}

/// The form of a model's matrices.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Weights {
    /// As the file has them
    Stored,
    /// Floats of 32 bits
    F32,
    /// Floats of 16 bits
    F16,
    /// Eight bits, a scale for each 32 elements
    Q8,
    /// Four bits, a scale for each 32 elements
    Q4,
}

/// The type of cached keys and values.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Cache {
    /// Floats of 32 bits
    F32,
    /// Floats of 16 bits
    F16,
    /// Eight bits
    I8,
}

impl Arguments {
    /// The model to talk with.
    pub fn model(&self) -> PathBuf {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/model");
        self.model.clone().unwrap_or(shipped)
    }

    pub fn weights(&self) -> WeightForm {
        match self.weights {
            Weights::Stored => WeightForm::Stored,
            Weights::F32 => WeightForm::Float(DType::F32),
            Weights::F16 => WeightForm::Float(DType::F16),
            Weights::Q8 => WeightForm::Blocks(BlockFormat::Q8_0),
            Weights::Q4 => WeightForm::Blocks(BlockFormat::Q4_0),
        }
    }

    pub fn cache(&self) -> DType {
        match self.cache {
            Cache::F32 => DType::F32,
            Cache::F16 => DType::F16,
            Cache::I8 => DType::I8,
        }
    }

    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: Some(self.top_k),
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
            ..Sampling::default()
        }
    }
}

/// A size as people write it.
pub(crate) fn bytes(text: &str) -> Result<u64, Error> {
    let bytes = lapidary::units::parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| Error::Size(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("4096", 4096),
            ("512MiB", 512 << 20),
            ("1.5gib", 3 << 29),
            ("2 k", 2000),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(bytes(text).expect(text), wanted);
        }
        for text in ["", "GiB", "1XB", "-1", "0", "NaN", "1e30"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
