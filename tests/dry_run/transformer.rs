//! A transformer that learns in place: the program that apps ask about.

use lapidary::{DType, Gpu, Result, Tensor};

const HEADS: usize = 4;
const CLASSES: usize = 16;

/// Blocks of attention and a perceptron, with a norm in front of each.
pub(crate) struct Transformer {
    blocks: Vec<Block>,
    head: Tensor,
    width: usize,
}

struct Block {
    norms: [Tensor; 2],
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
}

impl Block {
    fn parameters(&self) -> [&Tensor; 6] {
        let [first, second] = &self.norms;
        [first, second, &self.qkv, &self.out, &self.up, &self.down]
    }
}

impl Transformer {
    pub(crate) fn new(gpu: &Gpu, layers: usize, width: usize) -> Result<Self> {
        let parameter = |shape: &[usize], seed: usize| {
            let made = gpu.rand_normal(shape, 0.0, 0.02, seed as u64, DType::F32)?;
            made.named("weights").requires_grad()
        };
        let ones = || gpu.ones(&[width], DType::F32)?.requires_grad();
        let blocks = (0..layers).map(|layer| {
            Ok(Block {
                norms: [ones()?, ones()?],
                qkv: parameter(&[width, 3 * width], 4 * layer)?,
                out: parameter(&[width, width], 4 * layer + 1)?,
                up: parameter(&[width, 4 * width], 4 * layer + 2)?,
                down: parameter(&[4 * width, width], 4 * layer + 3)?,
            })
        });
        Ok(Transformer {
            blocks: blocks.collect::<Result<_>>()?,
            head: parameter(&[width, CLASSES], 4 * layers)?,
            width,
        })
    }

    /// One step of training with `batch` sequences of `tokens`. Returns the loss.
    pub(crate) fn step(&self, gpu: &Gpu, batch: usize, tokens: usize) -> Result<Tensor> {
        let (width, rows) = (self.width, batch * tokens);
        let mut x = gpu.rand_normal(&[rows, width], 0.0, 1.0, 7, DType::F32)?;
        let labels = gpu.zeros(&[rows], DType::U32)?;
        for block in &self.blocks {
            let [first, second] = &block.norms;
            let qkv = x.layer_norm(&[width], Some(first), None, 1e-5)?;
            let qkv = qkv.matmul(&block.qkv)?;
            let qkv = qkv.reshape(&[batch, tokens, 3, HEADS, width / HEADS])?;
            let part = |index: isize| qkv.select(2, index)?.transpose(1, 2);
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let seen = q.scaled_dot_product_attention(&k, &v, None, true, None)?;
            let seen = seen.transpose(1, 2)?.reshape(&[rows, width])?;
            x = (x + seen.matmul(&block.out)?)?;
            let up = x.layer_norm(&[width], Some(second), None, 1e-5)?;
            let up = up.matmul(&block.up)?.gelu()?;
            x = (x + up.matmul(&block.down)?)?;
        }
        let loss = x
            .matmul(&self.head)?
            .cross_entropy(&labels, None, Default::default())?;
        let gradients = loss.backward()?;
        let _no_grad = gpu.no_grad();
        let parameters = self.blocks.iter().flat_map(Block::parameters);
        for parameter in parameters.chain([&self.head]) {
            if let Some(gradient) = gradients.get(parameter) {
                parameter.sub_(&(gradient * 0.01)?)?;
            }
        }
        Ok(loss.detach())
    }
}
