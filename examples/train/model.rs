//! A small vision transformer: 16 patches of an image, four blocks of attention and a network of
//! two layers, with the backward pass written out.

use lapidary::{Gpu, Result, Tensor, operations::Epilogue};

use crate::digits::{CLASSES, SIDE};
use crate::learn::{Habits, Learner, Param};

/// Pixels along a patch's side.
pub(crate) const PATCH: usize = 2;
pub(crate) const TOKENS: usize = (SIDE / PATCH) * (SIDE / PATCH);
const WIDTH: usize = 64;
const HEADS: usize = 4;
const HIDDEN: usize = 256;
const BLOCKS: usize = 4;
const EPS: f32 = 1e-5;
use lapidary::DType::F32;

/// `x · weight + bias`.
struct Linear {
    weight: Param,
    bias: Param,
}

impl Linear {
    fn new(gpu: &Gpu, inputs: usize, outputs: usize, seed: &mut u64) -> Result<Linear> {
        *seed += 1;
        let std = (1.0 / inputs as f32).sqrt();
        let weight = gpu.rand_normal(&[inputs, outputs], 0.0, std, *seed, F32)?;
        Ok(Linear {
            weight: Param::new(gpu, weight)?,
            bias: Param::new(gpu, gpu.zeros(&[outputs], F32)?)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul_with(&self.weight.value, &Epilogue::new().bias(&self.bias.value))
    }

    /// The gradient of `x`, from that of the result.
    fn backward(&mut self, x: &Tensor, by_y: &Tensor, learner: &mut Learner) -> Result<Tensor> {
        let by_x = by_y.matmul(&self.weight.value.t()?)?;
        learner.take(&mut self.weight, x.t()?.matmul(by_y)?)?;
        learner.take(&mut self.bias, by_y.sum(&[0])?)?;
        Ok(by_x)
    }
}

struct Norm {
    weight: Param,
    bias: Param,
}

impl Norm {
    fn new(gpu: &Gpu) -> Result<Norm> {
        Ok(Norm {
            weight: Param::new(gpu, gpu.ones(&[WIDTH], F32)?)?,
            bias: Param::new(gpu, gpu.zeros(&[WIDTH], F32)?)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(
            &[WIDTH],
            Some(&self.weight.value),
            Some(&self.bias.value),
            EPS,
        )
    }

    fn backward(&mut self, x: &Tensor, by_y: &Tensor, learner: &mut Learner) -> Result<Tensor> {
        let [by_x, by_weight, by_bias] =
            by_y.layer_norm_backward(x, &[WIDTH], Some(&self.weight.value), EPS)?;
        learner.take(&mut self.weight, by_weight)?;
        learner.take(&mut self.bias, by_bias)?;
        Ok(by_x)
    }
}

/// `x + attention(norm(x))`, and the same with a network of two layers.
pub(crate) struct Block {
    norms: [Norm; 2],
    to_heads: Linear,
    from_heads: Linear,
    up: Linear,
    down: Linear,
}

/// What the backward pass of a block needs: all activations, or the input to compute them from.
pub(crate) enum Kept {
    Everything(Box<Activations>),
    Input(Tensor),
}

impl Kept {
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        match self {
            Kept::Everything(all) => all.0.iter(),
            Kept::Input(input) => std::slice::from_ref(input).iter(),
        }
    }
}

/// In the order in which `Block::forward` makes them.
pub(crate) struct Activations([Tensor; 9]);

impl Block {
    fn new(gpu: &Gpu, seed: &mut u64) -> Result<Block> {
        Ok(Block {
            norms: [Norm::new(gpu)?, Norm::new(gpu)?],
            to_heads: Linear::new(gpu, WIDTH, 3 * WIDTH, seed)?,
            from_heads: Linear::new(gpu, WIDTH, WIDTH, seed)?,
            up: Linear::new(gpu, WIDTH, HIDDEN, seed)?,
            down: Linear::new(gpu, HIDDEN, WIDTH, seed)?,
        })
    }

    /// `x` and the result have a row for each token of each image.
    pub(crate) fn forward(&self, x: &Tensor, habits: &Habits) -> Result<(Tensor, Kept)> {
        let normal = self.norms[0].forward(x)?;
        let qkv = self.to_heads.forward(&normal)?;
        let [q, k, v] = heads(&qkv)?;
        let weights = (q.matmul(&k.transpose(-2, -1)?)? * scale())?.softmax(-1)?;
        let seen = rows(&weights.matmul(&v)?)?;
        let middle = (x + self.from_heads.forward(&seen)?)?;
        let normal_2 = self.norms[1].forward(&middle)?;
        let hidden = self.up.forward(&normal_2)?;
        let active = hidden.gelu()?;
        let y = (&middle + self.down.forward(&active)?)?;
        let keep = |tensor| habits.keep(tensor);
        let kept = Activations([
            keep(x)?,
            keep(&normal)?,
            keep(&qkv)?,
            keep(&weights)?,
            keep(&seen)?,
            keep(&middle)?,
            keep(&normal_2)?,
            keep(&hidden)?,
            keep(&active)?,
        ]);
        Ok((y, Kept::Everything(Box::new(kept))))
    }

    fn backward(&mut self, kept: Kept, by_y: &Tensor, learner: &mut Learner) -> Result<Tensor> {
        let kept = match kept {
            Kept::Everything(all) => *all,
            // The forward pass once more, for this block alone.
            Kept::Input(x) => match self.forward(&x.cast(F32)?, &learner.habits)?.1 {
                Kept::Everything(all) => *all,
                Kept::Input(_) => return Ok(by_y.clone()),
            },
        };
        // Widened if they were kept in 16 bits. Each is dropped after its last use.
        let [
            x,
            normal,
            qkv,
            weights,
            seen,
            middle,
            normal_2,
            hidden,
            active,
        ] = kept.0;
        let by_active = self.down.backward(&active.cast(F32)?, by_y, learner)?;
        drop(active);
        let by_hidden = by_active.gelu_backward(&hidden.cast(F32)?)?;
        drop((hidden, by_active));
        let by_normal_2 = self
            .up
            .backward(&normal_2.cast(F32)?, &by_hidden, learner)?;
        drop((normal_2, by_hidden));
        let through = self.norms[1].backward(&middle.cast(F32)?, &by_normal_2, learner)?;
        let by_middle = (by_y + through)?;
        drop((middle, by_normal_2));

        let by_seen = self
            .from_heads
            .backward(&seen.cast(F32)?, &by_middle, learner)?;
        let images = by_seen.shape()[0] / TOKENS;
        let by_seen = by_seen
            .view_as(&[images, TOKENS, HEADS, WIDTH / HEADS])?
            .permute(&[0, 2, 1, 3])?;
        let (qkv, weights) = (qkv.cast(F32)?, weights.cast(F32)?);
        let [q, k, v] = heads(&qkv)?;
        let by_v = weights.transpose(-2, -1)?.matmul(&by_seen)?;
        let by_weights = by_seen.matmul(&v.transpose(-2, -1)?)?;
        let by_scores = (by_weights.softmax_backward(&weights, -1)? * scale())?;
        let by_q = by_scores.matmul(&k)?;
        let by_k = by_scores.transpose(-2, -1)?.matmul(&q)?;
        let by_heads = [rows(&by_q)?, rows(&by_k)?, rows(&by_v)?];
        let by_qkv = Tensor::concat(&by_heads.each_ref(), 1)?;
        drop((
            qkv, weights, q, k, v, by_weights, by_scores, by_q, by_k, by_v, by_heads,
        ));

        let by_normal = self
            .to_heads
            .backward(&normal.cast(F32)?, &by_qkv, learner)?;
        let through = self.norms[0].backward(&x.cast(F32)?, &by_normal, learner)?;
        by_middle + through
    }
}

fn scale() -> f32 {
    1.0 / ((WIDTH / HEADS) as f32).sqrt()
}

/// Queries, keys and values, each of shape `[images, heads, tokens, width of a head]`: views.
fn heads(qkv: &Tensor) -> Result<[Tensor; 3]> {
    let images = qkv.shape()[0] / TOKENS;
    let all = qkv
        .view_as(&[images, TOKENS, 3, HEADS, WIDTH / HEADS])?
        .permute(&[2, 0, 3, 1, 4])?;
    Ok([all.select(0, 0)?, all.select(0, 1)?, all.select(0, 2)?])
}

/// The heads side by side again, with a row for each token.
fn rows(heads: &Tensor) -> Result<Tensor> {
    let images = heads.shape()[0];
    heads
        .permute(&[0, 2, 1, 3])?
        .reshape(&[images * TOKENS, WIDTH])
}

pub(crate) struct Model {
    embed: Linear,
    positions: Param,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
}

impl Model {
    pub(crate) fn new(gpu: &Gpu, mut seed: u64) -> Result<Model> {
        let positions = gpu.rand_normal(&[TOKENS, WIDTH], 0.0, 0.1, seed, F32)?;
        let blocks = (0..BLOCKS).map(|_| Block::new(gpu, &mut seed));
        Ok(Model {
            blocks: blocks.collect::<Result<_>>()?,
            embed: Linear::new(gpu, PATCH * PATCH, WIDTH, &mut seed)?,
            positions: Param::new(gpu, positions)?,
            norm: Norm::new(gpu)?,
            head: Linear::new(gpu, WIDTH, CLASSES, &mut seed)?,
        })
    }

    /// The class of each image; `images` is `[images, TOKENS, PATCH²]`.
    pub(crate) fn classify(&self, images: &Tensor) -> Result<Tensor> {
        let (mut x, count) = (self.tokens(images)?, images.shape()[0]);
        for block in &self.blocks {
            x = block.forward(&x, &Habits::CARELESS)?.0;
        }
        self.head
            .forward(&pooled(&self.norm.forward(&x)?, count)?)?
            .argmax(-1)
    }

    /// Learns from one batch: passes gradients to the learner, multiplied by `share`. Returns the
    /// sum of the cross entropies before it, multiplied likewise.
    pub(crate) fn learn(
        &mut self,
        images: &Tensor,
        targets: &Tensor,
        share: f32,
        learner: &mut Learner,
    ) -> Result<Tensor> {
        let count = images.shape()[0];
        let mut x = self.tokens(images)?;
        let mut kept = Vec::new();
        for block in &self.blocks {
            let (y, of_block) = learner.keep(block, &x)?;
            learner.hold(&of_block);
            kept.push(of_block);
            x = y;
        }
        let pool = pooled(&self.norm.forward(&x)?, count)?;
        let logits = self.head.forward(&pool)?;
        let loss = ((targets * logits.log_softmax(-1)?)?.sum_all()? * -share)?;

        // The gradient of softmax and cross entropy together.
        let by_logits = ((logits.softmax(-1)? - targets)? * share)?;
        let by_pool = self.head.backward(&pool, &by_logits, learner)?;
        let by_normal = (by_pool / TOKENS as f32)?
            .unsqueeze(1)?
            .broadcast_to(&[count, TOKENS, WIDTH])?
            .reshape(&[count * TOKENS, WIDTH])?;
        let mut by_x = self.norm.backward(&x, &by_normal, learner)?;
        drop((x, by_normal));
        for block in self.blocks.iter_mut().rev() {
            if let Some(of_block) = kept.pop() {
                by_x = block.backward(of_block, &by_x, learner)?;
            }
        }
        let by_positions = by_x.view_as(&[count, TOKENS, WIDTH])?.sum(&[0])?;
        learner.take(&mut self.positions, by_positions)?;
        let patches = images.view_as(&[count * TOKENS, PATCH * PATCH])?;
        // The gradient of the images is not used, but it costs next to nothing.
        self.embed.backward(&patches, &by_x, learner)?;
        Ok(loss)
    }

    pub(crate) fn each_param(
        &mut self,
        visit: &mut dyn FnMut(&mut Param) -> Result<()>,
    ) -> Result<()> {
        let mut linears = vec![&mut self.embed, &mut self.head];
        let mut norms = vec![&mut self.norm];
        for block in &mut self.blocks {
            linears.extend([
                &mut block.to_heads,
                &mut block.from_heads,
                &mut block.up,
                &mut block.down,
            ]);
            norms.extend(&mut block.norms);
        }
        visit(&mut self.positions)?;
        for linear in linears {
            visit(&mut linear.weight)?;
            visit(&mut linear.bias)?;
        }
        for norm in norms {
            visit(&mut norm.weight)?;
            visit(&mut norm.bias)?;
        }
        Ok(())
    }

    fn tokens(&self, images: &Tensor) -> Result<Tensor> {
        let count = images.shape()[0];
        let patches = images.reshape(&[count * TOKENS, PATCH * PATCH])?;
        let x = self
            .embed
            .forward(&patches)?
            .view_as(&[count, TOKENS, WIDTH])?;
        (x + &self.positions.value)?.view_as(&[count * TOKENS, WIDTH])
    }
}

/// The mean of an image's tokens.
fn pooled(x: &Tensor, images: usize) -> Result<Tensor> {
    x.view_as(&[images, TOKENS, WIDTH])?.mean(&[1])
}
