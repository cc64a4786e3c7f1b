//! A network of two layers: its forward pass, and its training with recorded gradients.

use lapidary::{DType, Gpu, Result, Tensor};

const MOMENTUM: f32 = 0.9;

/// A tensor that learns, and its momentum.
struct Parameter {
    value: Tensor,
    velocity: Tensor,
}

impl Parameter {
    fn new(value: Tensor, name: &str) -> Result<Parameter> {
        let velocity = value.zeros_like()?.named(&format!("{name} velocity"));
        let value = value.named(name).requires_grad()?;
        Ok(Parameter { value, velocity })
    }
}

/// `x · weight + bias`.
struct Layer {
    weight: Parameter,
    bias: Parameter,
}

impl Layer {
    fn new(gpu: &Gpu, inputs: usize, outputs: usize, seed: u64) -> Result<Layer> {
        // He's initialization keeps the variance through a relu.
        let std = (2.0 / inputs as f32).sqrt();
        let weight = gpu.rand_normal(&[inputs, outputs], 0.0, std, seed, DType::F32)?;
        let bias = gpu.zeros(&[outputs], DType::F32)?;
        Ok(Layer {
            weight: Parameter::new(weight, "weight")?,
            bias: Parameter::new(bias, "bias")?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight.value)? + &self.bias.value
    }
}

pub(crate) struct Network {
    gpu: Gpu,
    hidden: Layer,
    output: Layer,
}

impl Network {
    pub(crate) fn new(
        gpu: &Gpu,
        [inputs, hidden, outputs]: [usize; 3],
        seed: u64,
    ) -> Result<Network> {
        Ok(Network {
            gpu: gpu.clone(),
            hidden: Layer::new(gpu, inputs, hidden, seed)?,
            output: Layer::new(gpu, hidden, outputs, seed + 1)?,
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
    pub(crate) fn learn(&self, x: &Tensor, targets: &Tensor, rate: f32) -> Result<Tensor> {
        let per_image = 1.0 / x.shape()[0] as f32;
        let logits = self.logits(x)?;
        let loss = ((targets * logits.log_softmax(-1)?)?.sum_all()? * -per_image)?;
        let gradients = loss.backward()?;

        let _no_grad = self.gpu.no_grad();
        let layers = [&self.hidden, &self.output];
        for parameter in layers
            .into_iter()
            .flat_map(|layer| [&layer.weight, &layer.bias])
        {
            let Some(gradient) = gradients.get(&parameter.value) else {
                continue;
            };
            // In place: the parameters keep their memory.
            parameter.velocity.mul_scalar_(MOMENTUM)?;
            parameter.velocity.add_(&gradient)?;
            parameter.value.sub_(&(&parameter.velocity * rate)?)?;
        }
        Ok(loss.detach())
    }
}
