//! Random layers: each takes rows and gives rows of the same width.

use std::sync::Arc;

use fastrand::Rng;
use lapidary::operations::Conv;
use lapidary::{DType, Gpu, Result, Tensor};

pub(super) type Layer = Arc<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

fn layer(of: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static) -> Result<Layer> {
    Ok(Arc::new(of))
}

/// Makes layers and their parameters.
pub(super) struct Maker {
    gpu: Gpu,
    rng: Rng,
    width: usize,
    parameters: Vec<Tensor>,
}

type Make = fn(&mut Maker) -> Result<Layer>;

const ALL: &[Make] = &[
    linear,
    activation,
    norm,
    residual,
    gate,
    writes,
    transposed,
    attention,
    softmax,
    dropout,
    convolution,
    indices,
    centered,
    halves,
    checkpoint,
    checkpoint,
];

const ACTIVATIONS: &[fn(&Tensor) -> Result<Tensor>] = &[
    Tensor::relu,
    Tensor::gelu,
    Tensor::silu,
    Tensor::tanh,
    Tensor::sigmoid,
    Tensor::sin,
    |x| x.clamp(-1.0, 1.0)?.square(),
    |x| (x.abs()? + 1.0)?.log(),
];

impl Maker {
    pub(super) fn new(gpu: &Gpu, rng: Rng, width: usize) -> Self {
        Maker {
            gpu: gpu.clone(),
            rng,
            width,
            parameters: Vec::new(),
        }
    }

    pub(super) fn layer(&mut self) -> Result<Layer> {
        ALL[self.rng.usize(..ALL.len())](self)
    }

    /// A layer that gives this many numbers for each row.
    pub(super) fn last(&mut self, count: usize) -> Result<Layer> {
        let weight = self.parameter(&[count, self.width])?;
        let bias = self.parameter(&[count])?;
        layer(move |x| x.linear(&weight, Some(&bias)))
    }

    /// The generator as it is then, and all parameters.
    pub(super) fn done(self) -> (Rng, Vec<Tensor>) {
        (self.rng, self.parameters)
    }

    fn parameter(&mut self, shape: &[usize]) -> Result<Tensor> {
        let made = (self.gpu).rand_normal(shape, 0.0, 0.3, self.rng.u64(..), DType::F32)?;
        let made = made.requires_grad()?;
        self.parameters.push(made.clone());
        Ok(made)
    }

    fn square(&mut self) -> Result<Tensor> {
        self.parameter(&[self.width, self.width])
    }

    fn row(&mut self) -> Result<Tensor> {
        self.parameter(&[self.width])
    }

    fn any_activation(&mut self) -> fn(&Tensor) -> Result<Tensor> {
        ACTIVATIONS[self.rng.usize(..ACTIVATIONS.len())]
    }
}

fn linear(m: &mut Maker) -> Result<Layer> {
    let (weight, bias) = (m.square()?, m.row()?);
    match m.rng.bool() {
        true => layer(move |x| x.linear(&weight, Some(&bias))),
        false => layer(move |x| x.matmul(&weight)? + &bias),
    }
}

fn activation(m: &mut Maker) -> Result<Layer> {
    let (first, second) = (m.any_activation(), m.any_activation());
    layer(move |x| second(&first(x)?))
}

fn norm(m: &mut Maker) -> Result<Layer> {
    let (weight, bias) = (m.row()?, m.row()?);
    match m.rng.bool() {
        true => layer(move |x| x.layer_norm(weight.shape(), Some(&weight), Some(&bias), 1e-5)),
        false => layer(move |x| x.rms_norm(weight.shape(), Some(&weight), 1e-5)? + &bias),
    }
}

fn residual(m: &mut Maker) -> Result<Layer> {
    let hidden = 2 * m.width;
    let up = m.parameter(&[m.width, hidden])?;
    let down = m.parameter(&[hidden, m.width])?;
    let activation = m.any_activation();
    layer(move |x| x + activation(&x.matmul(&up)?)?.matmul(&down)?)
}

/// Views of one product are multiplied.
fn gate(m: &mut Maker) -> Result<Layer> {
    let weight = m.parameter(&[m.width, 2 * m.width])?;
    match m.rng.bool() {
        true => layer(move |x| x.matmul(&weight)?.glu(1)),
        false => layer(move |x| {
            let both = x.matmul(&weight)?;
            let width = x.shape()[1];
            let (gate, up) = (
                both.narrow(1, 0, width)?,
                both.slice(1, width as isize, None, 1)?,
            );
            gate.silu()? * up
        }),
    }
}

/// Writes in place, to the whole and through views.
fn writes(m: &mut Maker) -> Result<Layer> {
    let (weight, row) = (m.square()?, m.row()?);
    let (half, which) = (m.width / 2, m.rng.u32(..4));
    layer(move |x| {
        let y = x.matmul(&weight)?;
        match which {
            0 => y.add_(&row)?,
            1 => y.narrow(1, 0, half)?.mul_(&row.narrow(0, 0, half)?)?,
            2 => y.select(0, 3)?.copy_(&row)?,
            _ => {
                let rows = x.zeros_like()?;
                rows.narrow(1, 0, half)?.copy_(&y.narrow(1, 1, half)?)?;
                rows.sin_()?;
                return rows + y;
            }
        }
        y.tanh()
    })
}

fn transposed(m: &mut Maker) -> Result<Layer> {
    let weight = m.square()?;
    layer(move |x| weight.t()?.matmul(&x.t()?)?.t())
}

fn attention(m: &mut Maker) -> Result<Layer> {
    let weight = m.parameter(&[m.width, 3 * m.width])?;
    let is_causal = m.rng.bool();
    layer(move |x| {
        let &[rows, width] = x.shape() else {
            unreachable!("layers give rows");
        };
        let shape = [rows / 16, 16, 3, 2, width / 2];
        let all = x
            .matmul(&weight)?
            .reshape(&shape)?
            .permute(&[2, 0, 3, 1, 4])?;
        let [q, k, v] = [0, 1, 2].map(|at| all.select(0, at));
        let y = q?.scaled_dot_product_attention(&k?, &v?, None, is_causal, None)?;
        y.permute(&[0, 2, 1, 3])?.reshape(&[rows, width])
    })
}

fn softmax(m: &mut Maker) -> Result<Layer> {
    let row = m.row()?;
    match m.rng.bool() {
        true => layer(move |x| (x * &row)?.softmax(1)),
        false => layer(move |x| (x.log_softmax(-1)? * &row)? / 4.0),
    }
}

fn dropout(m: &mut Maker) -> Result<Layer> {
    let seed = m.rng.u64(..);
    layer(move |x| x.dropout(0.2, seed))
}

fn convolution(m: &mut Maker) -> Result<Layer> {
    let weight = m.parameter(&[2, 2, 3])?;
    layer(move |x| {
        let &[rows, width] = x.shape() else {
            unreachable!("layers give rows");
        };
        let options = Conv {
            padding: [1],
            ..Conv::default()
        };
        let y = x
            .reshape(&[rows, 2, width / 2])?
            .conv1d(&weight, None, &options)?;
        y.reshape(&[rows, width])
    })
}

fn indices(m: &mut Maker) -> Result<Layer> {
    let which = m.rng.u32(..4);
    layer(move |x| match which {
        0 => x.flip(&[0, 1]),
        1 => x.index_select(0, &x.select(1, 0)?.argsort(0, false)?),
        2 => x.cumsum(1)? / 4.0,
        _ => Ok(x.sort(1, true)?.0),
    })
}

fn centered(_: &mut Maker) -> Result<Layer> {
    layer(|x| {
        let centered = (x - x.mean_keepdim(&[0])?)?;
        let scale = (centered.square()?.mean_all()? + 0.1)?.rsqrt()?;
        centered * scale
    })
}

/// In f16.
fn halves(m: &mut Maker) -> Result<Layer> {
    let weight = m.square()?;
    layer(move |x| {
        let y = x.cast(DType::F16)?.matmul(&weight.cast(DType::F16)?)?;
        y.tanh()?.cast(DType::F32)
    })
}

/// Layers that are computed again, a checkpoint in one of them perhaps.
fn checkpoint(m: &mut Maker) -> Result<Layer> {
    let layers = [m.layer()?, m.layer()?];
    let gpu = m.gpu.clone();
    layer(move |x| {
        let [first, second] = layers.clone();
        gpu.checkpoint(&[x], move |x| second(&first(&x[0])?))
    })
}
