//! A network of two layers: its forward pass, and its training with hand-written gradients.

use lapidary::{DType, Gpu, Result, Tensor};

const MOMENTUM: f32 = 0.9;

/// `x · weight + bias`, and the momentum of both.
struct Layer {
    weight: Tensor,
    bias: Tensor,
    weight_velocity: Tensor,
    bias_velocity: Tensor,
}

impl Layer {
    fn new(gpu: &Gpu, inputs: usize, outputs: usize, seed: u64) -> Result<Layer> {
        // He's initialization keeps the variance through a relu.
        let std = (2.0 / inputs as f32).sqrt();
        let shape = [inputs, outputs];
        Ok(Layer {
            weight: gpu
                .rand_normal(&shape, 0.0, std, seed, DType::F32)?
                .named("weight"),
            bias: gpu.zeros(&[outputs], DType::F32)?.named("bias"),
            weight_velocity: gpu.zeros(&shape, DType::F32)?.named("weight velocity"),
            bias_velocity: gpu.zeros(&[outputs], DType::F32)?.named("bias velocity"),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight)? + &self.bias
    }

    /// Learns from the gradient of its output. `x` was its input.
    fn descend(&self, x: &Tensor, gradient: &Tensor, rate: f32) -> Result<()> {
        // A transposed view: nothing is copied.
        let of_weight = x.t()?.matmul(gradient)?;
        let of_bias = gradient.sum(&[0])?;
        for (value, velocity, gradient) in [
            (&self.weight, &self.weight_velocity, of_weight),
            (&self.bias, &self.bias_velocity, of_bias),
        ] {
            // In place: the parameters keep their memory.
            velocity.mul_scalar_(MOMENTUM)?;
            velocity.add_(&gradient)?;
            value.sub_(&(velocity * rate)?)?;
        }
        Ok(())
    }
}

pub(crate) struct Network {
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
            hidden: Layer::new(gpu, inputs, hidden, seed)?,
            output: Layer::new(gpu, hidden, outputs, seed + 1)?,
        })
    }

    /// The class of each row.
    pub(crate) fn classify(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.hidden.forward(x)?.relu()?;
        self.output.forward(&hidden)?.argmax(-1)
    }

    /// Learns from one batch; `targets` has a 1 in each row, at the right class. Returns the cross
    /// entropy before the step, of shape `[]`, without waiting for it.
    pub(crate) fn learn(&self, x: &Tensor, targets: &Tensor, rate: f32) -> Result<Tensor> {
        let per_image = 1.0 / x.shape()[0] as f32;

        let hidden = self.hidden.forward(x)?.relu()?;
        let logits = self.output.forward(&hidden)?;
        let loss = ((targets * logits.log_softmax(-1)?)?.sum_all()? * -per_image)?;

        // The gradient of softmax and cross entropy together.
        let of_logits = ((logits.softmax(-1)? - targets)? * per_image)?;
        // The gradient of relu is 0 where it was flat. Compute this before the output layer changes
        // its weights.
        let mask = hidden.gt_scalar(0.0)?.cast(DType::F32)?;
        let of_hidden = (of_logits.matmul(&self.output.weight.t()?)? * mask)?;

        self.output.descend(&hidden, &of_logits, rate)?;
        self.hidden.descend(x, &of_hidden, rate)?;
        Ok(loss)
    }
}
