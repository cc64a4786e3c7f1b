//! A network of two layers: its forward pass, and its training with recorded gradients.

use lapidary::optim::{Sgd, SgdOptions};
use lapidary::{DType, Gpu, Result, Tensor};

/// `x · weight + bias`.
struct Layer {
    weight: Tensor,
    bias: Tensor,
}

impl Layer {
    fn new(gpu: &Gpu, inputs: usize, outputs: usize, seed: u64) -> Result<Layer> {
        // He's initialization keeps the variance through a relu.
        let std = (2.0 / inputs as f32).sqrt();
        let weight = gpu.rand_normal(&[inputs, outputs], 0.0, std, seed, DType::F32)?;
        let bias = gpu.zeros(&[outputs], DType::F32)?;
        Ok(Layer {
            weight: weight.named("weight").requires_grad()?,
            bias: bias.named("bias").requires_grad()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight)? + &self.bias
    }
}

pub(crate) struct Network {
    gpu: Gpu,
    hidden: Layer,
    output: Layer,
    sgd: Sgd,
}

impl Network {
    pub(crate) fn new(
        gpu: &Gpu,
        [inputs, hidden, outputs]: [usize; 3],
        seed: u64,
    ) -> Result<Network> {
        let output = Layer::new(gpu, hidden, outputs, seed + 1)?;
        let hidden = Layer::new(gpu, inputs, hidden, seed)?;
        let parameters = [&hidden.weight, &hidden.bias, &output.weight, &output.bias];
        let options = SgdOptions {
            momentum: 0.9,
            ..SgdOptions::default()
        };
        Ok(Network {
            gpu: gpu.clone(),
            sgd: Sgd::new(&parameters, options)?,
            hidden,
            output,
        })
    }

    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(x)?.relu()?)
    }

    /// The class of each row.
    pub(crate) fn classify(&self, x: &Tensor) -> Result<Tensor> {
        let _no_grad = self.gpu.no_grad();
        self.logits(x)?.argmax(-1)
    }

    /// Learns from one batch; `targets` has a 1 in each row, at the right class. Returns the cross
    /// entropy before the step, of shape `[]`, without waiting for it.
    pub(crate) fn learn(&mut self, x: &Tensor, targets: &Tensor, rate: f64) -> Result<Tensor> {
        let per_image = 1.0 / x.shape()[0] as f32;
        let logits = self.logits(x)?;
        let loss = ((targets * logits.log_softmax(-1)?)?.sum_all()? * -per_image)?;
        self.sgd.set_learning_rate(rate)?;
        self.sgd.step(&loss.backward()?)?;
        Ok(loss.detach())
    }
}
