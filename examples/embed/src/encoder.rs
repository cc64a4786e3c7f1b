//! Computes vectors from tokens, as in J. Devlin et al., *BERT*, 2018, and N. Reimers and I.
//! Gurevych, *Sentence-BERT*, 2019. Every call only records work.

use lapidary::{
    Gpu, ModelFile, Tensor,
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
        let length = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
        if texts.iter().any(|text| text.ids.is_empty())
            || length > self.config.max_position_embeddings
        {
            return Err(Error::Input(format!(
                "texts of 1 to {} tokens can be encoded; `Words` makes such",
                self.config.max_position_embeddings
            )));
        }
        let (ids, padding) = padded(texts, length);
        let shape = [texts.len(), length];
        let [batch, width] = [texts.len(), self.config.hidden_size];
        let words = self
            .words
            .rows(&self.gpu, &ids)?
            .reshape(&[batch, length, width])?;
        let positions = self.positions.narrow(0, 0, length)?;
        let mut x = words.add(&positions)?.add(&self.kinds.select(0, 0)?)?;
        x = self.norm.apply(&x)?;
        let mask = match padding.contains(&false) {
            true => Some(self.gpu.tensor(&padding, &[batch, 1, 1, length])?),
            false => None,
        };
        for layer in &self.layers {
            x = layer.apply(&x, mask.as_ref(), &self.config)?;
        }
        let mean = self
            .gpu
            .tensor(&shares(texts, length), &[shape[0], 1, shape[1]])?;
        let mean = mean.matmul(&x)?.reshape(&[batch, width])?;
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

    fn apply(&self, x: &Tensor, mask: Option<&Tensor>, config: &Config) -> Result<Tensor> {
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
        let x = self
            .mixed_norm
            .apply(&self.mixed.end(&mixed, |end| end.residual(x))?)?;
        drop(mixed);
        let wide = self
            .widened
            .end(&x, |end| end.activation(Activation::Gelu))?;
        self.narrowed_norm
            .apply(&self.narrowed.end(&wide, |end| end.residual(&x))?)
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
