//! The same model with its backward by hand: what an app writes without recorded gradients.

use lapidary::{DType, Gpu, Result, Tensor};

use crate::model::{Batch, Block, EPS, Model, Pair, Sizes, heads, rows};

/// The gradients so far, the last parameter first.
type Gradients = Vec<Tensor>;

/// What a block keeps for its backward, in the order in which it is made.
struct Kept {
    x: Tensor,
    normal: Tensor,
    qkv: Tensor,
    weights: Tensor,
    seen: Tensor,
    middle: Tensor,
    normal_2: Tensor,
    hidden: Tensor,
    active: Tensor,
}

impl Model {
    /// The loss, and the gradients in the order of the parameters.
    pub(crate) fn loss_by_hand(
        &self,
        batch: &Batch,
        is_later: &Tensor,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let sizes = &self.sizes;
        let mut x = self.embedded(&batch.words)?;
        let mut all_kept = Vec::new();
        for block in &self.blocks {
            let (y, kept) = block.forward_by_hand(x, is_later, sizes)?;
            all_kept.push(kept);
            x = y;
        }
        let normal = self.norm.normalize(&x)?;
        let logits = normal.matmul(&self.head)?;
        let loss = logits.cross_entropy(&batch.next, None, Default::default())?;

        let mut gradients = Gradients::new();
        let targets = batch.next.one_hot(sizes.words, DType::F32)?;
        let by_logits = ((logits.softmax(-1)? - targets)? * (1.0 / sizes.rows() as f64))?;
        drop(logits);
        gradients.push(normal.t()?.matmul(&by_logits)?);
        let by_normal = by_logits.matmul(&self.head.t()?)?;
        drop((normal, by_logits));
        let mut by_x = self
            .norm
            .back_through_norm(&x, &by_normal, &mut gradients)?;
        drop((x, by_normal));
        for (block, kept) in self.blocks.iter().zip(all_kept).rev() {
            by_x = block.backward(kept, &by_x, sizes, &mut gradients)?;
        }
        let by_position = by_x.view_as(&[sizes.batch, sizes.length, sizes.width])?;
        gradients.push(by_position.sum(&[0])?);
        let by_words = self.words.zeros_like()?;
        by_words.index_add_(0, &batch.words, &by_x)?;
        gradients.push(by_words);
        gradients.reverse();
        Ok((loss, gradients))
    }
}

impl Pair {
    fn back_through_norm(
        &self,
        x: &Tensor,
        by_y: &Tensor,
        gradients: &mut Gradients,
    ) -> Result<Tensor> {
        let [by_x, by_weight, by_bias] =
            by_y.layer_norm_backward(x, self.weight.shape(), Some(&self.weight), EPS)?;
        gradients.extend([by_bias, by_weight]);
        Ok(by_x)
    }

    fn back_through_layer(
        &self,
        x: &Tensor,
        by_y: &Tensor,
        gradients: &mut Gradients,
    ) -> Result<Tensor> {
        gradients.extend([by_y.sum(&[0])?, x.t()?.matmul(by_y)?]);
        by_y.matmul(&self.weight.t()?)
    }
}

impl Block {
    fn forward_by_hand(
        &self,
        x: Tensor,
        is_later: &Tensor,
        sizes: &Sizes,
    ) -> Result<(Tensor, Kept)> {
        let [norm, norm_2] = &self.norms;
        let normal = norm.normalize(&x)?;
        let qkv = self.qkv.apply(&normal)?;
        let [q, k, v] = heads(&qkv, sizes)?;
        let scores = (q.matmul(&k.transpose(-2, -1)?)? * scale(sizes))?;
        let weights = scores
            .masked_fill(is_later, f32::NEG_INFINITY)?
            .softmax(-1)?;
        let seen = rows(&weights.matmul(&v)?, sizes)?;
        let middle = (&x + self.out.apply(&seen)?)?;
        let normal_2 = norm_2.normalize(&middle)?;
        let hidden = self.up.apply(&normal_2)?;
        let active = hidden.gelu()?;
        let y = (&middle + self.down.apply(&active)?)?;
        let kept = Kept {
            x,
            normal,
            qkv,
            weights,
            seen,
            middle,
            normal_2,
            hidden,
            active,
        };
        Ok((y, kept))
    }

    /// Each activation is dropped after its last use.
    fn backward(
        &self,
        kept: Kept,
        by_y: &Tensor,
        sizes: &Sizes,
        gradients: &mut Gradients,
    ) -> Result<Tensor> {
        let Kept {
            x,
            normal,
            qkv,
            weights,
            seen,
            middle,
            normal_2,
            hidden,
            active,
        } = kept;
        let by_active = self.down.back_through_layer(&active, by_y, gradients)?;
        drop(active);
        let by_hidden = by_active.gelu_backward(&hidden)?;
        drop((hidden, by_active));
        let by_normal_2 = self
            .up
            .back_through_layer(&normal_2, &by_hidden, gradients)?;
        drop((normal_2, by_hidden));
        let [norm, norm_2] = &self.norms;
        let through = norm_2.back_through_norm(&middle, &by_normal_2, gradients)?;
        let by_middle = (by_y + through)?;
        drop((middle, by_normal_2));

        let by_seen = self.out.back_through_layer(&seen, &by_middle, gradients)?;
        drop(seen);
        let by_qkv = back_through_attention(&qkv, &weights, &by_seen, sizes)?;
        drop((qkv, weights, by_seen));
        let by_normal = self.qkv.back_through_layer(&normal, &by_qkv, gradients)?;
        drop((normal, by_qkv));
        by_middle + norm.back_through_norm(&x, &by_normal, gradients)?
    }
}

fn back_through_attention(
    qkv: &Tensor,
    weights: &Tensor,
    by_seen: &Tensor,
    sizes: &Sizes,
) -> Result<Tensor> {
    let by_seen = by_seen
        .view_as(&[sizes.batch, sizes.length, sizes.heads, sizes.size()])?
        .permute(&[0, 2, 1, 3])?;
    let [q, k, v] = heads(qkv, sizes)?;
    let by_v = weights.transpose(-2, -1)?.matmul(&by_seen)?;
    let by_weights = by_seen.matmul(&v.transpose(-2, -1)?)?;
    let by_scores = (by_weights.softmax_backward(weights, -1)? * scale(sizes))?;
    let by_q = by_scores.matmul(&k)?;
    let by_k = by_scores.transpose(-2, -1)?.matmul(&q)?;
    let by_heads = [
        rows(&by_q, sizes)?,
        rows(&by_k, sizes)?,
        rows(&by_v, sizes)?,
    ];
    Tensor::concat(&by_heads.each_ref(), 1)
}

fn scale(sizes: &Sizes) -> f32 {
    (sizes.size() as f32).powf(-0.5)
}

/// Which keys come after a query.
pub(crate) fn is_later(gpu: &Gpu, sizes: &Sizes) -> Result<Tensor> {
    let at = gpu.arange(0, sizes.length as i32, 1, DType::I32)?;
    at.gt(&at.unsqueeze(1)?)
}
