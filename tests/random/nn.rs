//! Operations of networks: their results have the right shape and type in any program.

use lapidary::{
    DType, Result, Tensor,
    operations::{Conv, Pool},
};

use super::model::Model;
use super::more::shaped;
use super::world::{Outcome, World};

/// A float tensor as images: `[samples, channels, height, width]`.
fn planes(w: &mut World) -> Outcome<(Result<Tensor>, DType, [usize; 4])> {
    let (x, model) = w.pick_where(|m| m.dtype.is_float() && m.shape.len() >= 2)?;
    let shape = &model.shape;
    let rank = shape.len();
    let outer = shape[..rank - 2].iter().product();
    let planes = [1, outer, shape[rank - 2], shape[rank - 1]];
    Ok((x.reshape(&planes), model.dtype, planes))
}

/// Attention of a tensor to itself.
pub(crate) fn attention(w: &mut World) -> Outcome {
    let few = |m: &Model| m.dtype.is_float() && m.shape.len() >= 2 && m.at.len() <= 2000;
    let (x, model) = w.pick_where(few)?;
    let is_causal = w.rng.bool();
    let made = x.scaled_dot_product_attention(&x, &x, None, is_causal, None);
    shaped(w, made, model.dtype, &model.shape)
}

/// A convolution that keeps the size, and its gradient by the input.
pub(crate) fn convolution(w: &mut World) -> Outcome {
    let (x, dtype, shape) = planes(w)?;
    if shape.contains(&0) {
        return Ok(());
    }
    let groups = shape[1];
    let made = x.and_then(|x| {
        let (weight, _) = w.fresh(dtype, &[groups, 1, 3, 3])?;
        let same = Conv {
            padding: [1, 1],
            groups,
            ..Conv::default()
        };
        let y = x.conv2d(&weight, None, &same)?;
        let [by_x, ..] = y.conv2d_backward(&x, &weight, &same)?;
        Ok(by_x)
    });
    shaped(w, made, dtype, &shape)
}

/// The maxima of windows, and the gradient by the input.
pub(crate) fn pooling(w: &mut World) -> Outcome {
    let (x, dtype, shape) = planes(w)?;
    if shape[2..].contains(&0) {
        return Ok(());
    }
    let pool = Pool {
        stride: [1, 2],
        ceil_mode: w.rng.bool(),
        dilation: [1, if shape[3] > 4 { 2 } else { 1 }],
        ..Pool::new([shape[2].min(2), shape[3].min(3)])
    };
    let made = x.and_then(|x| x.max_pool2d(&pool)?.max_pool2d_backward(&x, &pool));
    shaped(w, made, dtype, &shape)
}

/// Dimensions permuted and summed by an equation, exact for integers.
pub(crate) fn einsum(w: &mut World) -> Outcome {
    let (x, model) = w.pick_where(|m| m.shape.len() >= 2)?;
    let mut shape = model.shape.clone();
    let rank = shape.len();
    shape.swap(rank - 2, rank - 1);
    let turned = model.view(&shape, |index| {
        let mut from = index.to_vec();
        from.swap(rank - 2, rank - 1);
        from
    });
    let made = Tensor::einsum("...ij->...ji", &[&x]);
    let values = turned.values();
    // A view shares the storage of its tensor, so the model must share it too.
    let made = made.and_then(|made| made.copy());
    w.made(made, Model::new(model.dtype, &shape, values))
}
