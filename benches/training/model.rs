//! A decoder transformer that predicts the next byte, in the form of GPT-2: norms come first, and
//! the layers have biases.

use lapidary::operations::Epilogue;
use lapidary::{DType, Gpu, Result, Tensor};

pub(crate) const EPS: f32 = 1e-5;

/// `benches/peers/training.py` and the other peers have the same numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) length: usize,
    pub(crate) batch: usize,
    pub(crate) words: usize,
}

impl Sizes {
    pub(crate) fn rows(&self) -> usize {
        self.batch * self.length
    }

    /// Elements of a head.
    pub(crate) fn size(&self) -> usize {
        self.width / self.heads
    }
}

/// A weight and a bias, of a layer or a norm.
pub(crate) struct Pair {
    pub(crate) weight: Tensor,
    pub(crate) bias: Tensor,
}

pub(crate) struct Block {
    pub(crate) norms: [Pair; 2],
    pub(crate) qkv: Pair,
    pub(crate) out: Pair,
    pub(crate) up: Pair,
    pub(crate) down: Pair,
}

pub(crate) struct Model {
    pub(crate) sizes: Sizes,
    pub(crate) words: Tensor,
    pub(crate) positions: Tensor,
    pub(crate) blocks: Vec<Block>,
    pub(crate) norm: Pair,
    pub(crate) head: Tensor,
}

/// A batch: words, and the words that follow them. Both have a row for each position.
pub(crate) struct Batch {
    pub(crate) words: Tensor,
    pub(crate) next: Tensor,
}

/// Makes parameters of random numbers, the same in every model.
struct Maker<'a> {
    gpu: &'a Gpu,
    seed: u64,
}

impl Maker<'_> {
    fn normal(&mut self, rows: usize, columns: usize, std: f32) -> Result<Tensor> {
        self.seed += 1;
        (self.gpu).rand_normal(&[rows, columns], 0.0, std, self.seed, DType::F32)
    }

    fn layer(&mut self, inputs: usize, outputs: usize) -> Result<Pair> {
        Ok(Pair {
            weight: self.normal(inputs, outputs, (inputs as f32).powf(-0.5))?,
            bias: self.gpu.zeros(&[outputs], DType::F32)?,
        })
    }

    fn norm(&self, width: usize) -> Result<Pair> {
        Ok(Pair {
            weight: self.gpu.ones(&[width], DType::F32)?,
            bias: self.gpu.zeros(&[width], DType::F32)?,
        })
    }
}

impl Model {
    pub(crate) fn new(gpu: &Gpu, sizes: Sizes) -> Result<Self> {
        let width = sizes.width;
        let mut maker = Maker { gpu, seed: 0 };
        let mut blocks = Vec::new();
        for _ in 0..sizes.layers {
            blocks.push(Block {
                norms: [maker.norm(width)?, maker.norm(width)?],
                qkv: maker.layer(width, 3 * width)?,
                out: maker.layer(width, width)?,
                up: maker.layer(width, 4 * width)?,
                down: maker.layer(4 * width, width)?,
            });
        }
        Ok(Model {
            sizes,
            words: maker.normal(sizes.words, width, 0.1)?,
            positions: maker.normal(sizes.length, width, 0.1)?,
            blocks,
            norm: maker.norm(width)?,
            head: maker.normal(width, sizes.words, (width as f32).powf(-0.5))?,
        })
    }

    /// Its parameters, in the order of the forward pass.
    pub(crate) fn parameters(&self) -> Vec<&Tensor> {
        let pairs = self.blocks.iter().flat_map(|block| {
            let Block {
                norms: [norm, norm_2],
                qkv,
                out,
                up,
                down,
            } = block;
            [norm, qkv, out, norm_2, up, down]
        });
        let pairs = pairs.chain([&self.norm]);
        let of_pairs = pairs.flat_map(|pair| [&pair.weight, &pair.bias]);
        let embeddings = [&self.words, &self.positions];
        embeddings
            .into_iter()
            .chain(of_pairs)
            .chain([&self.head])
            .collect()
    }

    /// Marks all parameters for gradients.
    pub(crate) fn recorded(self) -> Result<Self> {
        for parameter in self.parameters() {
            parameter.clone().requires_grad()?;
        }
        Ok(self)
    }

    pub(crate) fn batch(&self, gpu: &Gpu) -> Result<Batch> {
        let Sizes {
            words,
            length,
            batch,
            ..
        } = self.sizes;
        let text: Vec<u32> = (0..=batch * length)
            .map(|at| ((at * at / 3 + at) % words) as u32)
            .collect();
        let from = |start: usize| {
            let rows = &text[start..start + batch * length];
            gpu.tensor(rows, &[batch * length])
        };
        Ok(Batch {
            words: from(0)?,
            next: from(1)?,
        })
    }

    /// The mean cross entropy.
    pub(crate) fn loss(&self, batch: &Batch) -> Result<Tensor> {
        let mut x = self.embedded(&batch.words)?;
        for block in &self.blocks {
            x = block.forward(&x, &self.sizes)?;
        }
        let logits = self.norm.normalize(&x)?.matmul(&self.head)?;
        logits.cross_entropy(&batch.next, None, Default::default())
    }

    fn embedded(&self, words: &Tensor) -> Result<Tensor> {
        let Sizes {
            width,
            length,
            batch,
            ..
        } = self.sizes;
        let x = self.words.embedding(words)?;
        let x = (x.reshape(&[batch, length, width])? + &self.positions)?;
        x.reshape(&[batch * length, width])
    }
}

impl Pair {
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul_with(&self.weight, &Epilogue::new().bias(&self.bias))
    }

    fn normalize(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (Some(&self.weight), Some(&self.bias));
        x.layer_norm(self.weight.shape(), weight, bias, EPS)
    }
}

impl Block {
    /// `x` and the result have a row for each position of each text.
    fn forward(&self, x: &Tensor, sizes: &Sizes) -> Result<Tensor> {
        let [norm, norm_2] = &self.norms;
        let [q, k, v] = heads(&self.qkv.apply(&norm.normalize(x)?)?, sizes)?;
        let seen = q.scaled_dot_product_attention(&k, &v, None, true, None)?;
        let x = (x + self.out.apply(&rows(&seen, sizes)?)?)?;
        let hidden = self.up.apply(&norm_2.normalize(&x)?)?.gelu()?;
        &x + self.down.apply(&hidden)?
    }
}

/// Queries, keys and values of shape `[batch, heads, length, size]`: views.
fn heads(qkv: &Tensor, sizes: &Sizes) -> Result<[Tensor; 3]> {
    let all = qkv
        .view_as(&[sizes.batch, sizes.length, 3, sizes.heads, sizes.size()])?
        .permute(&[2, 0, 3, 1, 4])?;
    Ok([all.select(0, 0)?, all.select(0, 1)?, all.select(0, 2)?])
}

/// The heads side by side again, with a row for each position.
fn rows(heads: &Tensor, sizes: &Sizes) -> Result<Tensor> {
    let rows = heads.permute(&[0, 2, 1, 3])?;
    rows.reshape(&[sizes.rows(), sizes.width])
}
