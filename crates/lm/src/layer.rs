//! One layer of a decoder: attention over the cache, and the gated feed-forward part.

use lapidary::kv::{Attend, KvStep};
use lapidary::operations::Epilogue;
use lapidary::{Gpu, Tensor};

use crate::config::Config;
use crate::error::Result;
use crate::names::Part;
use crate::rope::Angles;
use crate::weights::{Linear, Loader, Norm};

#[derive(Debug)]
pub(crate) struct Layer {
    /// The scope of what it makes.
    name: String,
    attention_norm: Norm,
    queries: Queries,
    norms_of_heads: Option<[Norm; 2]>,
    attention_output: Linear,
    feed_norm: Norm,
    gate: Gate,
    down: Linear,
    /// Norms behind the two parts, in front of the sums.
    after: Option<[Norm; 2]>,
}

/// What makes queries, keys and values.
#[derive(Debug)]
enum Queries {
    Apart(Box<[Linear; 3]>),
    Joined(Box<Linear>),
}

/// What makes the gate and what it gates.
#[derive(Debug)]
enum Gate {
    Apart(Box<[Linear; 2]>),
    Joined(Box<Linear>),
}

impl Layer {
    pub(crate) fn load(loader: &Loader<'_>, config: &Config, layer: usize) -> Result<Layer> {
        let (hidden, feed) = (config.hidden, config.feed_forward);
        let [query, key] = [config.heads, config.kv_heads].map(|heads| heads * config.head_size);
        let linear = |part: Part, shape: [usize; 2]| loader.linear(layer, part, shape);
        let norm = |part: Part, len: usize| loader.layer_norm(layer, part, len);
        let both = |[one, other]: [Part; 2], len: usize| -> Result<_> {
            Ok([norm(one, len)?, norm(other, len)?])
        };
        let parts = [(Part::Query, query), (Part::Key, key), (Part::Value, key)];
        let queries = match loader.joined(layer, Part::QueryKeyValue, &parts)? {
            Some(all) => Queries::Joined(Box::new(all)),
            None => Queries::Apart(Box::new([
                linear(Part::Query, [query, hidden])?,
                linear(Part::Key, [key, hidden])?,
                linear(Part::Value, [key, hidden])?,
            ])),
        };
        let parts = [(Part::Gate, feed), (Part::Up, feed)];
        let gate = match loader.joined(layer, Part::GateUp, &parts)? {
            Some(both) => Gate::Joined(Box::new(both)),
            None => Gate::Apart(Box::new([
                linear(Part::Gate, [feed, hidden])?,
                linear(Part::Up, [feed, hidden])?,
            ])),
        };
        let has_norms_of_heads = config.family.norms_heads();
        let has_norms_after = config.family.is_gemma();
        Ok(Layer {
            name: format!("layer {layer}"),
            attention_norm: norm(Part::AttentionNorm, hidden)?,
            queries,
            norms_of_heads: has_norms_of_heads
                .then(|| both([Part::QueryNorm, Part::KeyNorm], config.head_size))
                .transpose()?,
            attention_output: linear(Part::AttentionOutput, [hidden, query])?,
            feed_norm: norm(Part::FeedNorm, hidden)?,
            gate,
            down: linear(Part::Down, [hidden, feed])?,
            after: has_norms_after
                .then(|| both([Part::AfterAttentionNorm, Part::AfterFeedNorm], hidden))
                .transpose()?,
        })
    }

    /// The hidden states behind the layer, `[tokens, hidden]`.
    pub(crate) fn forward(
        &self,
        gpu: &Gpu,
        config: &Config,
        number: usize,
        step: &KvStep<'_>,
        x: &Tensor,
        angles: &Angles<'_>,
    ) -> Result<Tensor> {
        let _layer = gpu.scope(&self.name);
        let attention = gpu.scope("attention");
        let tokens = step.tokens();
        let size = config.head_size;
        let normal = self.attention_norm.of(x)?;
        let [query, key, value] = self.queries(config, tokens, &normal, angles)?;
        let of_keys = [tokens, config.kv_heads, size];
        let how = Attend {
            scale: Some(config.score_scale),
            window: config.windows[number],
            softcap: config.score_cap,
        };
        let query = query.reshape(&[tokens, config.heads, size])?;
        let (key, value) = (key.reshape(&of_keys)?, value.reshape(&of_keys)?);
        let seen = step.attend(number, &query, &key, &value, how)?;
        let seen = seen.reshape(&[tokens, config.heads * size])?;
        let x = self.added(&self.attention_output, &seen, x, 0)?;
        drop(attention);
        let _feed_forward = gpu.scope("feed forward");
        let normal = self.feed_norm.of(&x)?;
        let gated = self.gated(config, &normal)?;
        self.added(&self.down, &gated, &x, 1)
    }

    /// Queries and keys, turned by their positions, and values.
    fn queries(
        &self,
        config: &Config,
        tokens: usize,
        x: &Tensor,
        angles: &Angles<'_>,
    ) -> Result<[Tensor; 3]> {
        let (heads, kv_heads, size) = (config.heads, config.kv_heads, config.head_size);
        let (queries, keys) = (heads * size, kv_heads * size);
        let turned = |x: &Tensor, heads: usize| {
            let x = x.reshape(&[tokens * heads, size])?;
            angles.turn(&x, heads, config.neighbour_pairs)
        };
        let [query, key, value] = match &self.queries {
            Queries::Apart(parts) => {
                let [query, key, value] = &**parts;
                [query.of(x)?, key.of(x)?, value.of(x)?]
            }
            Queries::Joined(all) => {
                let all = all.of(x)?;
                let value = all.narrow(-1, queries + keys, keys)?;
                if self.norms_of_heads.is_none() {
                    let both = all.narrow(-1, 0, queries + keys)?;
                    let both = turned(&both, heads + kv_heads)?;
                    let both = both.reshape(&[tokens, queries + keys])?;
                    let query = both.narrow(-1, 0, queries)?;
                    return Ok([query, both.narrow(-1, queries, keys)?, value]);
                }
                [
                    all.narrow(-1, 0, queries)?,
                    all.narrow(-1, queries, keys)?,
                    value,
                ]
            }
        };
        let (mut query, mut key) = (query, key);
        if let Some([of_query, of_key]) = &self.norms_of_heads {
            query = of_query.of(&query.reshape(&[tokens * heads, size])?)?;
            key = of_key.of(&key.reshape(&[tokens * kv_heads, size])?)?;
        }
        Ok([turned(&query, heads)?, turned(&key, kv_heads)?, value])
    }

    /// The hidden state of the feed-forward part, gated.
    fn gated(&self, config: &Config, x: &Tensor) -> Result<Tensor> {
        let (gate, up) = match &self.gate {
            Gate::Apart(parts) => (parts[0].of(x)?, parts[1].of(x)?),
            Gate::Joined(both) => {
                let (both, half) = (both.of(x)?, config.feed_forward);
                (both.narrow(-1, 0, half)?, both.narrow(-1, half, half)?)
            }
        };
        let gate = match config.family.is_gemma() {
            true => gate.gelu_tanh()?,
            false => gate.silu()?,
        };
        Ok(gate.mul(&up)?)
    }

    /// `x` plus a part's result, which a norm may follow.
    fn added(&self, last: &Linear, result: &Tensor, x: &Tensor, which: usize) -> Result<Tensor> {
        match &self.after {
            None => last.with(result, Epilogue::new().residual(x)),
            Some(norms) => {
                let result = last.of(result)?;
                Ok(x.add(&norms[which].of(&result)?)?)
            }
        }
    }
}
