//! What kind of decoder a model is: its sizes, and what its family does differently.

mod family;
mod gguf;
mod json;

use std::path::{Path, PathBuf};

use lapidary::files::ModelFile;

use crate::error::{Error, Result};
pub use family::Family;
pub(crate) use gguf::{FACTORS, LONG_FACTORS};

/// The description of a decoder, from `config.json` or from the metadata of GGUF.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family, which decides what follows no number.
    pub family: Family,
    /// Number of layers.
    pub layers: usize,
    /// Elements of a token's hidden state.
    pub hidden: usize,
    /// Elements between the two products of the feed-forward part.
    pub feed_forward: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values; each serves a group of heads of queries.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Added to the mean square in norms.
    pub norm_eps: f32,
    /// Rotary position embedding of layers that see all tokens.
    pub rope: Rope,
    /// That of layers with a window, if it is another one.
    pub local_rope: Option<Rope>,
    /// For each layer the number of tokens that a token sees, itself included; `None` for all.
    pub windows: Vec<Option<usize>>,
    /// The factor of the scores.
    pub score_scale: f32,
    /// Scores become `c · tanh(score / c)`.
    pub score_cap: Option<f32>,
    /// So do logits.
    pub logit_cap: Option<f32>,
    /// The most tokens of a sequence.
    pub context: usize,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
    /// The logits have a matrix of their own, and not the embedding. Without this, they have it if
    /// the file does.
    pub has_output: bool,
    /// Whether the file stores queries and keys for pairs of neighbouring elements, as GGUF does
    /// for Llama.
    pub neighbour_pairs: bool,
}

/// Rotary position embedding: angles for each position.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f32,
    /// Elements of a head that are rotated.
    pub rotated: usize,
    /// How the frequencies differ from the base's.
    pub scaling: Scaling,
}

/// How the frequencies of a rotary position embedding were changed for a longer context.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scaling {
    /// Not at all.
    None,
    /// All are divided by a factor.
    Linear(f32),
    /// Low ones are divided by a factor, as Llama 3.1 does.
    Llama3 {
        /// The factor.
        factor: f32,
        /// Wavelengths beyond the original context ÷ this are divided.
        low: f32,
        /// Wavelengths below the original context ÷ this stay.
        high: f32,
        /// The context before the change.
        original: f32,
    },
    /// As *YaRN* (B. Peng et al., 2023) does.
    Yarn {
        /// The factor.
        factor: f32,
        /// The factor of cosines and sines.
        attention: f32,
        /// Rotations within the original context from which on a frequency stays.
        fast: f32,
        /// Rotations within the original context up to which a frequency is divided.
        slow: f32,
        /// The context before the change.
        original: f32,
    },
    /// Each is divided by its own factor, as *LongRoPE* (Y. Ding et al., 2024) does.
    Each {
        /// The factors; empty if they are a tensor of the file.
        factors: Vec<f32>,
        /// Those of a model that is opened for a longer context than `original`; empty if they are
        /// the same, or a tensor.
        long_factors: Vec<f32>,
        /// The context before the change.
        original: usize,
        /// The factor of cosines and sines.
        attention: f32,
    },
}

impl Config {
    /// Reads the description of a model: of a folder with `config.json`, or of a file of GGUF.
    ///
    /// # Errors
    ///
    /// [`Error::Description`] if there is none, or one that no model can have.
    /// [`Error::Architecture`] for a family that is not known.
    pub fn read(path: &Path, file: &ModelFile) -> Result<Config> {
        match gguf::is_described(file) {
            true => gguf::read(path, file)?.checked(path),
            false => {
                let from = description(path);
                json::read(&from)?.checked(&from)
            }
        }
    }

    /// Reads the description of a model from the text of its `config.json`, and of its
    /// `generation_config.json`, if there is one. For a browser, which has no files. Errors show
    /// the path.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub fn from_json(path: &Path, config: &[u8], generation: Option<&[u8]>) -> Result<Config> {
        json::parse(path, config, generation)?.checked(path)
    }

    fn checked(self, path: &Path) -> Result<Config> {
        let path = path.to_owned();
        match self.check() {
            Ok(()) => Ok(self),
            Err(reason) => Err(Error::Description { path, reason }),
        }
    }

    /// Refuses numbers that no decoder can have.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        const MOST: usize = 1 << 24;
        let sizes = [
            ("layers", self.layers),
            ("elements of the hidden state", self.hidden),
            ("elements of the feed-forward part", self.feed_forward),
            ("heads", self.heads),
            ("heads of keys", self.kv_heads),
            ("elements of a head", self.head_size),
            ("tokens of context", self.context),
        ];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| !(1..=MOST).contains(size)) {
            return Err(format!("it has {size} {name}: there are 1 to {MOST}"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv_heads) = (self.heads, self.kv_heads);
            return Err(format!(
                "{heads} heads share {kv_heads} heads of keys unevenly"
            ));
        }
        let ropes = [Some(&self.rope), self.local_rope.as_ref()];
        for rope in ropes.into_iter().flatten() {
            if rope.rotated > self.head_size || rope.rotated % 2 == 1 {
                let (rotated, size) = (rope.rotated, self.head_size);
                return Err(format!(
                    "{rotated} of {size} elements of a head are rotated"
                ));
            }
            if !is_factor(rope.theta) {
                return Err(format!("the base of its positions is {}", rope.theta));
            }
            rope.check_scaling()?;
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return Err(format!("its norms add {}", self.norm_eps));
        }
        if self.windows.len() != self.layers {
            let (windows, layers) = (self.windows.len(), self.layers);
            return Err(format!("it has windows for {windows} of {layers} layers"));
        }
        let factors = [Some(self.score_scale), self.score_cap, self.logit_cap];
        if let Some(wrong) = factors
            .into_iter()
            .flatten()
            .find(|&factor| !is_factor(factor))
        {
            return Err(format!("a factor of its scores or logits is {wrong}"));
        }
        if self.windows.contains(&Some(0)) {
            return Err("a layer has a window of 0 tokens".into());
        }
        Ok(())
    }
}

impl Rope {
    /// Refuses factors that make no angle.
    fn check_scaling(&self) -> std::result::Result<(), String> {
        let (factors, is_ordered) = match &self.scaling {
            Scaling::None => (Vec::new(), true),
            Scaling::Linear(factor) => (vec![*factor], true),
            Scaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => (vec![*factor, *low, *original], high > low),
            Scaling::Yarn {
                factor,
                attention,
                fast,
                slow,
                original,
            } => (vec![*factor, *attention, *slow, *original], fast > slow),
            Scaling::Each {
                factors,
                long_factors,
                attention,
                ..
            } => {
                let pairs = self.rotated / 2;
                let mut counts = [factors.len(), long_factors.len()].into_iter();
                if let Some(count) = counts.find(|&count| count != 0 && count != pairs) {
                    return Err(format!(
                        "{count} factors of its positions are for {pairs} pairs"
                    ));
                }
                ([&factors[..], long_factors, &[*attention]].concat(), true)
            }
        };
        match factors.iter().all(|&factor| is_factor(factor)) && is_ordered {
            true => Ok(()),
            false => Err(format!("its positions are scaled by {:?}", self.scaling)),
        }
    }
}

/// Whether something can be multiplied or divided by it.
fn is_factor(number: f32) -> bool {
    number.is_finite() && number > 0.0
}

/// Where the description of a model of safetensors is: in its folder.
fn description(path: &Path) -> PathBuf {
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(Path::new(".")),
    };
    folder.join("config.json")
}
