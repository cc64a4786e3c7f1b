//! Computes vectors from tokens, as in J. Devlin et al., *BERT*, 2018, and N. Reimers and I.
//! Gurevych, *Sentence-BERT*, 2019. Every call only records work.

use lapidary::{
    Gpu, Tensor,
    files::ModelFile,
    operations::{Activation, Epilogue},
};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::precision::Precision;
use crate::weights::{Matrix, Table, Weights};
use crate::words::Tokens;

/// A BERT encoder with mean pooling.
#[derive(Debug)]
pub struct Encoder {
    gpu: Gpu,
    config: Config,
    words: Table,
    /// `[positions, width]`.
    positions: Tensor,
    /// `[kinds, width]`: the first row is for a single text.
    kinds: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
}

/// Texts on their way through the layers.
#[derive(Debug)]
pub struct Encoding {
    /// `[texts, tokens, width]`.
    x: Tensor,
    mask: Option<Tensor>,
    /// The weight of each token in the mean of its text.
    shares: Vec<f32>,
    /// Whole layers that are recorded.
    layers: usize,
    at: At,
}

/// What is recorded of a layer.
#[derive(Debug)]
enum At {
    Layer,
    Attended,
    Widened(Tensor),
}

#[derive(Debug)]
struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    mixed: Linear,
    mixed_norm: Norm,
    widened: Linear,
    narrowed: Linear,
    narrowed_norm: Norm,
}

impl Encoder {
    /// Finds the weights by their usual names in such models. It does not read their contents.
    pub fn new(
        gpu: &Gpu,
        config: &Config,
        file: &ModelFile,
        precision: Precision,
    ) -> Result<Encoder> {
        let weights = &Weights::new(gpu, file, precision)?;
        let width = config.hidden_size;
        let embeddings = |name: &str| format!("embeddings.{name}_embeddings.weight");
        let words = weights.table(&embeddings("word"), [config.vocab_size, width])?;
        Ok(Encoder {
            gpu: gpu.clone(),
            words,
            positions: weights.get(
                &embeddings("position"),
                &[config.max_position_embeddings, width],
            )?,
            kinds: weights.get(&embeddings("token_type"), &[config.type_vocab_size, width])?,
            norm: Norm::new(weights, "embeddings.LayerNorm", config)?,
            layers: (0..config.num_hidden_layers)
                .map(|layer| Layer::new(weights, &format!("encoder.layer.{layer}"), config))
                .collect::<Result<_>>()?,
            config: config.clone(),
        })
    }

    /// Bytes of all weights in use.
    pub fn weights_bytes(&self) -> u64 {
        let layers = self.layers.iter().flat_map(Layer::weights);
        let tables = [&self.positions, &self.kinds].into_iter();
        let weights = layers.chain(tables).chain(self.norm.weights());
        weights.map(Tensor::size_bytes).sum::<u64>() + self.words.size_bytes()
    }

    /// A small tensor that differs between models with different training: `[width]`, always in
    /// single precision.
    pub(crate) fn sample(&self) -> &Tensor {
        &self.norm.weight
    }

    /// The vectors of texts, each of unit length: `[texts, width]`.
    pub fn encode(&self, texts: &[&Tokens]) -> Result<Tensor> {
        self.end(self.begin(texts)?)
    }

    /// Begins to encode texts, for a program that does something else between the layers.
    pub fn begin(&self, texts: &[&Tokens]) -> Result<Encoding> {
        let length = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
        if texts.is_empty()
            || texts.iter().any(|text| text.ids.is_empty())
            || length > self.config.max_position_embeddings
        {
            return Err(Error::Input(format!(
                "texts of 1 to {} tokens can be encoded; `Words` makes such",
                self.config.max_position_embeddings
            )));
        }
        let (ids, padding) = padded(texts, length);
        let [batch, width] = [texts.len(), self.config.hidden_size];
        let words = self
            .words
            .rows(&self.gpu, &ids)?
            .reshape(&[batch, length, width])?;
        let positions = self.positions.narrow(0, 0, length)?;
        let x = words.add(&positions)?.add(&self.kinds.select(0, 0)?)?;
        Ok(Encoding {
            x: self.norm.apply(&x)?,
            mask: match padding.contains(&false) {
                true => Some(self.gpu.tensor(&padding, &[batch, 1, 1, length])?),
                false => None,
            },
            shares: shares(texts, length),
            layers: 0,
            at: At::Layer,
        })
    }

    /// Records the next step of a layer, a third of its work. `false` if there is none: then
    /// [`end`](Self::end) is next.
    pub fn advance(&self, encoding: &mut Encoding) -> Result<bool> {
        let Some(layer) = self.layers.get(encoding.layers) else {
            return Ok(false);
        };
        encoding.at = match &encoding.at {
            At::Layer => {
                encoding.x = layer.attend(&encoding.x, encoding.mask.as_ref(), &self.config)?;
                At::Attended
            }
            At::Attended => At::Widened(layer.widen(&encoding.x)?),
            At::Widened(wide) => {
                encoding.x = layer.narrow(wide, &encoding.x)?;
                encoding.layers += 1;
                At::Layer
            }
        };
        Ok(true)
    }

    /// The vectors of the texts, as [`encode`](Self::encode) gives them.
    pub fn end(&self, mut encoding: Encoding) -> Result<Tensor> {
        while self.advance(&mut encoding)? {}
        let &[batch, length, width] = encoding.x.shape() else {
            return Err(Error::Input("an encoding is [texts, tokens, width]".into()));
        };
        let mean = self.gpu.tensor(&encoding.shares, &[batch, 1, length])?;
        let mean = mean.matmul(&encoding.x)?.reshape(&[batch, width])?;
        let norm = mean.square()?.sum_keepdim(&[-1])?.sqrt()?;
        Ok(mean.div(&norm)?)
    }
}

/// The tokens of all texts, each text padded to the length of the longest, and a mask of the real
/// tokens.
fn padded(texts: &[&Tokens], length: usize) -> (Vec<u32>, Vec<bool>) {
    let (mut ids, mut is_token) = (Vec::new(), Vec::new());
    for text in texts {
        let padding = length - text.ids.len();
        ids.extend(
            text.ids
                .iter()
                .copied()
                .chain(std::iter::repeat_n(0, padding)),
        );
        is_token.extend(std::iter::repeat_n(true, text.ids.len()));
        is_token.extend(std::iter::repeat_n(false, padding));
    }
    (ids, is_token)
}

/// The weight of each token in the mean of its text.
fn shares(texts: &[&Tokens], length: usize) -> Vec<f32> {
    let mut shares = Vec::with_capacity(texts.len() * length);
    for text in texts {
        let count = text.ids.len();
        shares.extend(std::iter::repeat_n(1.0 / count as f32, count));
        shares.extend(std::iter::repeat_n(0.0, length - count));
    }
    shares
}

impl Layer {
    fn new(weights: &Weights<'_>, at: &str, config: &Config) -> Result<Layer> {
        let [width, wide] = [config.hidden_size, config.intermediate_size];
        let linear = |name: &str, from, to| Linear::new(weights, &format!("{at}.{name}"), from, to);
        Ok(Layer {
            query: linear("attention.self.query", width, width)?,
            key: linear("attention.self.key", width, width)?,
            value: linear("attention.self.value", width, width)?,
            mixed: linear("attention.output.dense", width, width)?,
            widened: linear("intermediate.dense", width, wide)?,
            narrowed: linear("output.dense", wide, width)?,
            mixed_norm: Norm::new(weights, &format!("{at}.attention.output.LayerNorm"), config)?,
            narrowed_norm: Norm::new(weights, &format!("{at}.output.LayerNorm"), config)?,
        })
    }

    fn weights(&self) -> impl Iterator<Item = &Tensor> {
        let linears = [
            &self.query,
            &self.key,
            &self.value,
            &self.mixed,
            &self.widened,
            &self.narrowed,
        ];
        let norms = [&self.mixed_norm, &self.narrowed_norm]
            .into_iter()
            .flat_map(Norm::weights);
        linears
            .into_iter()
            .flat_map(|linear| linear.weight.tensors().chain([&linear.bias]))
            .chain(norms)
    }

    fn attend(&self, x: &Tensor, mask: Option<&Tensor>, config: &Config) -> Result<Tensor> {
        let &[batch, length, width] = x.shape() else {
            return Err(Error::Input("a layer takes [texts, tokens, width]".into()));
        };
        let heads = |y: Tensor| -> Result<Tensor> {
            let y = y.view_as(&[
                batch,
                length,
                config.num_attention_heads,
                config.head_size(),
            ])?;
            Ok(y.transpose(1, 2)?)
        };
        let query = heads(self.query.apply(x)?)?;
        let key = heads(self.key.apply(x)?)?;
        let value = heads(self.value.apply(x)?)?;
        let mixed = query.scaled_dot_product_attention(&key, &value, mask, false, None)?;
        drop((query, key, value));
        let mixed = mixed.transpose(1, 2)?.reshape(&[batch, length, width])?;
        self.mixed_norm
            .apply(&self.mixed.end(&mixed, |end| end.residual(x))?)
    }

    fn widen(&self, x: &Tensor) -> Result<Tensor> {
        self.widened.end(x, |end| end.activation(Activation::Gelu))
    }

    fn narrow(&self, wide: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.narrowed_norm
            .apply(&self.narrowed.end(wide, |end| end.residual(x))?)
    }
}

#[derive(Debug)]
struct Linear {
    weight: Matrix,
    bias: Tensor,
}

impl Linear {
    fn new(weights: &Weights<'_>, name: &str, from: usize, to: usize) -> Result<Linear> {
        Ok(Linear {
            weight: weights.matrix(&format!("{name}.weight"), &[to, from])?,
            bias: weights.get(&format!("{name}.bias"), &[to])?,
        })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        self.end(x, |end| end)
    }

    /// The kernel of the product also computes what follows it.
    fn end(&self, x: &Tensor, then: impl FnOnce(Epilogue) -> Epilogue) -> Result<Tensor> {
        let end = then(Epilogue::new().bias(&self.bias));
        self.weight.layer(x, &end)
    }
}

#[derive(Debug)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
    eps: f32,
}

impl Norm {
    fn weights(&self) -> [&Tensor; 2] {
        [&self.weight, &self.bias]
    }

    fn new(weights: &Weights<'_>, name: &str, config: &Config) -> Result<Norm> {
        Ok(Norm {
            weight: weights.get(&format!("{name}.weight"), &[config.hidden_size])?,
            bias: weights.get(&format!("{name}.bias"), &[config.hidden_size])?,
            eps: config.layer_norm_eps,
        })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.layer_norm(
            self.weight.shape(),
            Some(&self.weight),
            Some(&self.bias),
            self.eps,
        )?)
    }
}
