//! A step of lapidary's `benches/training` in candle on the CPU.
//!
//! candle's fused norm and softmax have no gradient, so the composed ones of `candle_nn::ops` take
//! their place.

#[path = "mod.rs"]
mod training;

use candle_core::{DType, Device, Tensor};
use candle_nn::{
    AdamW, Embedding, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding,
    linear, linear_no_bias, loss, ops,
};
use lapidary_harness::Result;
use training::{Sizes, measure};

struct Norm {
    weight: Tensor,
    bias: Tensor,
}

struct Block {
    norms: [Norm; 2],
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
}

struct Model {
    sizes: Sizes,
    words: Embedding,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
    /// −∞ where a key comes after a query.
    mask: Tensor,
}

impl Norm {
    fn new(width: usize, vb: VarBuilder<'_>) -> candle_core::Result<Self> {
        Ok(Norm {
            weight: vb.get_with_hints(width, "weight", candle_nn::Init::Const(1.0))?,
            bias: vb.get_with_hints(width, "bias", candle_nn::Init::Const(0.0))?,
        })
    }

    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        ops::layer_norm_slow(x, &self.weight, &self.bias, 1e-5)
    }
}

impl Model {
    fn new(sizes: Sizes, vb: VarBuilder<'_>) -> candle_core::Result<Self> {
        let width = sizes.width;
        let block = |at: usize| -> candle_core::Result<Block> {
            let vb = vb.pp(format!("block {at}"));
            Ok(Block {
                norms: [
                    Norm::new(width, vb.pp("norm"))?,
                    Norm::new(width, vb.pp("norm_2"))?,
                ],
                qkv: linear(width, 3 * width, vb.pp("qkv"))?,
                out: linear(width, width, vb.pp("out"))?,
                up: linear(width, 4 * width, vb.pp("up"))?,
                down: linear(4 * width, width, vb.pp("down"))?,
            })
        };
        let length = sizes.length;
        let hidden = |at: usize| {
            if at % length > at / length {
                f32::NEG_INFINITY
            } else {
                0.0
            }
        };
        let mask: Vec<f32> = (0..length * length).map(hidden).collect();
        let init = candle_nn::Init::Randn {
            mean: 0.0,
            stdev: 0.1,
        };
        Ok(Model {
            sizes,
            words: embedding(sizes.words, width, vb.pp("words"))?,
            positions: vb.get_with_hints((length, width), "positions", init)?,
            blocks: (0..sizes.layers)
                .map(block)
                .collect::<candle_core::Result<_>>()?,
            norm: Norm::new(width, vb.pp("norm"))?,
            head: linear_no_bias(width, sizes.words, vb.pp("head"))?,
            mask: Tensor::from_vec(mask, (length, length), &Device::Cpu)?,
        })
    }

    fn loss(&self, words: &Tensor, following: &Tensor) -> candle_core::Result<Tensor> {
        let Sizes {
            width,
            length,
            batch,
            ..
        } = self.sizes;
        let x = self.words.forward(words)?.reshape((batch, length, width))?;
        let x = x.broadcast_add(&self.positions)?;
        let mut x = x.reshape((batch * length, width))?;
        for block in &self.blocks {
            x = block.forward(&x, self)?;
        }
        let logits = self.head.forward(&self.norm.forward(&x)?)?;
        loss::cross_entropy(&logits, following)
    }
}

impl Block {
    fn forward(&self, x: &Tensor, model: &Model) -> candle_core::Result<Tensor> {
        let Sizes {
            width,
            heads,
            length,
            batch,
            ..
        } = model.sizes;
        let qkv = self.qkv.forward(&self.norms[0].forward(x)?)?;
        let qkv = qkv.reshape((batch, length, 3, heads, width / heads))?;
        let one = |at: usize| {
            qkv.narrow(2, at, 1)?
                .squeeze(2)?
                .transpose(1, 2)?
                .contiguous()
        };
        let (q, k, v) = (one(0)?, one(1)?, one(2)?);
        let scale = ((width / heads) as f64).powf(-0.5);
        let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * scale)?;
        let weights = ops::softmax(&scores.broadcast_add(&model.mask)?, 3)?;
        let seen = weights
            .matmul(&v)?
            .transpose(1, 2)?
            .reshape((batch * length, width))?;
        let x = (x + self.out.forward(&seen)?)?;
        let hidden = self.up.forward(&self.norms[1].forward(&x)?)?.gelu_erf()?;
        &x + self.down.forward(&hidden)?
    }
}

fn main() -> Result {
    let sizes = Sizes::from_arguments()?;
    let map = VarMap::new();
    let model = Model::new(
        sizes,
        VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu),
    )?;
    let params = ParamsAdamW {
        lr: 1e-3,
        ..Default::default()
    };
    let mut adam = AdamW::new(map.all_vars(), params)?;
    let count = sizes.batch * sizes.length;
    let [words, following] = sizes.text();
    let words = Tensor::from_vec(words, count, &Device::Cpu)?;
    let following = Tensor::from_vec(following, count, &Device::Cpu)?;
    measure("candle (CPU)", || {
        let loss = model.loss(&words, &following)?;
        adam.backward_step(&loss)?;
        Ok(loss.to_scalar::<f32>()?)
    })
}
