//! A step of lapidary's `benches/training` in burn: on the CPU (`flex`), or on wgpu if the sixth
//! size is followed by `wgpu`.

#[path = "mod.rs"]
mod training;

use burn::module::{Initializer, Module, Param};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor, TensorData, activation, module};
use lapidary_harness::Result;
use training::{Sizes, measure};

#[derive(Module, Debug)]
struct Block {
    norm: LayerNorm,
    norm_2: LayerNorm,
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
}

#[derive(Module, Debug)]
struct Model {
    words: Embedding,
    positions: Param<Tensor<2>>,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Model {
    fn new(sizes: Sizes, device: &Device) -> Self {
        let width = sizes.width;
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let norm = || LayerNormConfig::new(width).init(device);
        let block = |_| Block {
            norm: norm(),
            norm_2: norm(),
            qkv: linear(width, 3 * width),
            out: linear(width, width),
            up: linear(width, 4 * width),
            down: linear(4 * width, width),
        };
        let normal = Initializer::Normal {
            mean: 0.0,
            std: 0.1,
        };
        Model {
            words: EmbeddingConfig::new(sizes.words, width).init(device),
            positions: normal.init([sizes.length, width], device),
            blocks: (0..sizes.layers).map(block).collect(),
            norm: norm(),
            head: LinearConfig::new(width, sizes.words)
                .with_bias(false)
                .init(device),
        }
    }

    fn logits(&self, words: Tensor<2, Int>, sizes: &Sizes) -> Tensor<2> {
        let x = self.words.forward(words) + self.positions.val().unsqueeze();
        let mut x: Tensor<2> = x.reshape([sizes.batch * sizes.length, sizes.width]);
        for block in &self.blocks {
            x = block.forward(x, sizes);
        }
        self.head.forward(self.norm.forward(x))
    }
}

impl Block {
    fn forward(&self, x: Tensor<2>, sizes: &Sizes) -> Tensor<2> {
        let Sizes {
            width,
            heads,
            length,
            batch,
            ..
        } = *sizes;
        let qkv = self.qkv.forward(self.norm.forward(x.clone()));
        let qkv: Tensor<5> = qkv.reshape([batch, length, 3, heads, width / heads]);
        let [q, k, v] = [0, 1, 2].map(|at| {
            let one: Tensor<4> = qkv.clone().narrow(2, at, 1).squeeze_dim(2);
            one.swap_dims(1, 2)
        });
        let options = AttentionModuleOptions {
            is_causal: true,
            ..Default::default()
        };
        let seen = module::attention(q, k, v, None, None, options).swap_dims(1, 2);
        let x = x + self.out.forward(seen.reshape([batch * length, width]));
        let hidden = activation::gelu(self.up.forward(self.norm_2.forward(x.clone())));
        x + self.down.forward(hidden)
    }
}

fn main() -> Result {
    let sizes = Sizes::from_arguments()?;
    let (name, device) = match std::env::args().nth(7).as_deref() {
        Some("wgpu") => ("burn (wgpu)", Device::wgpu(Default::default())),
        _ => ("burn (flex)", Device::flex()),
    };
    let device = device.autodiff();
    let mut model = Model::new(sizes, &device);
    let mut adam = AdamWConfig::new().init();
    let cross_entropy: CrossEntropyLoss = CrossEntropyLossConfig::new().init(&device);
    let [words, following] = sizes
        .text()
        .map(|text| text.into_iter().map(|w| w as i32).collect::<Vec<_>>());
    let count = sizes.batch * sizes.length;
    let words = TensorData::new(words, [sizes.batch, sizes.length]);
    let following = TensorData::new(following, [count]);
    let words: Tensor<2, Int> = Tensor::from_data(words, &device);
    let following: Tensor<1, Int> = Tensor::from_data(following, &device);
    measure(name, || {
        let logits = model.logits(words.clone(), &sizes);
        let loss = cross_entropy.forward(logits, following.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = adam.step(1e-3, model.clone(), gradients);
        device.sync()?;
        let values = loss
            .into_data()
            .try_to_vec::<f32>()
            .map_err(|error| format!("{error:?}"))?;
        Ok(values[0])
    })
}
