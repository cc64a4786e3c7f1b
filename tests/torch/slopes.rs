//! Results and gradients of operations that are composed of others.

use lapidary::operations::{Conv, ConvTranspose, Reduction};
use lapidary::{Result, Tensor};

use crate::torch::cases::{self, Call};

/// The result of a call, and the gradients of the operands that are floats. The last tensor is the
/// gradient of the result.
fn slopes(t: &[Tensor], call: fn(&[Tensor]) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let (seed, operands) = t.split_last().expect("a gradient");
    let leaves = operands.iter().cloned().map(|leaf| match leaf.dtype() {
        dtype if dtype.is_float() => leaf.requires_grad(),
        _ => Ok(leaf),
    });
    let leaves = leaves.collect::<Result<Vec<Tensor>>>()?;
    let y = call(&leaves)?;
    let gradients = y.backprop().seed(seed).run()?;
    let wanted = leaves.iter().filter(|leaf| leaf.has_grad());
    let of = |leaf| gradients.get(leaf).expect("a gradient").clone();
    Ok([y.detach()].into_iter().chain(wanted.map(of)).collect())
}

const CALLS: &[(&str, Call)] = &[
    ("conv_transpose2d", |_, t| {
        slopes(t, |t| {
            let options = ConvTranspose {
                stride: [3, 2],
                padding: [1, 2],
                output_padding: [2, 0],
                dilation: [2, 1],
                groups: 2,
            };
            t[0].conv_transpose2d(&t[1], Some(&t[2]), &options)
        })
    }),
    ("conv_transpose2d, dilated", |_, t| {
        slopes(t, |t| {
            let options = ConvTranspose {
                output_padding: [1, 2],
                dilation: [2, 3],
                ..ConvTranspose::default()
            };
            t[0].conv_transpose2d(&t[1], None, &options)
        })
    }),
    ("conv_transpose1d", |_, t| {
        slopes(t, |t| {
            let options = ConvTranspose {
                stride: [2],
                padding: [1],
                output_padding: [1],
                ..ConvTranspose::default()
            };
            t[0].conv_transpose1d(&t[1], Some(&t[2]), &options)
        })
    }),
    ("conv2d, same", |_, t| {
        slopes(t, |t| {
            let options = Conv {
                padding: Conv::SAME,
                dilation: [1, 2],
                ..Conv::default()
            };
            t[0].conv2d(&t[1], None, &options)
        })
    }),
    ("conv1d, same", |_, t| {
        slopes(t, |t| {
            let options = Conv {
                padding: Conv::SAME,
                ..Conv::default()
            };
            t[0].conv1d(&t[1], None, &options)
        })
    }),
    ("instance_norm", |_, t| {
        slopes(t, |t| t[0].instance_norm(Some(&t[1]), Some(&t[2]), 1e-5))
    }),
    ("normalize", |_, t| {
        slopes(t, |t| t[0].normalize(3, 1, 1e-12))
    }),
    ("normalize of zeros", |_, t| {
        slopes(t, |t| t[0].normalize(2.0, -1, 1e-12))
    }),
    ("logcumsumexp", |_, t| slopes(t, |t| t[0].logcumsumexp(1))),
    ("logcumsumexp, columns", |_, t| {
        slopes(t, |t| t[0].logcumsumexp(0))
    }),
    ("embedding_with", |_, t| {
        slopes(t, |t| t[0].embedding_with(&t[1], 1))
    }),
    ("smooth_l1_loss", |_, t| {
        slopes(t, |t| t[0].smooth_l1_loss(&t[1], 2.0, Reduction::Mean))
    }),
    ("l1_loss", |_, t| {
        slopes(t, |t| t[0].l1_loss(&t[1], Reduction::Sum))
    }),
    ("masked_scatter", |_, t| {
        slopes(t, |t| t[0].masked_scatter(&t[1], &t[2]))
    }),
    ("index, mask of rows", |_, t| {
        slopes(t, |t| t[0].index(&[Some(&t[1])]))
    }),
    ("repeat_interleave_by", |_, t| {
        slopes(t, |t| t[0].repeat_interleave_by(&t[1], 0))
    }),
    ("diag", |_, t| slopes(t, |t| t[0].diag(2))),
    ("max_with_indices_all", |_, t| {
        slopes(t, |t| Ok(t[0].max_with_indices_all()?.0))
    }),
    ("std, a fraction", |_, t| slopes(t, |t| t[0].std(&[1], 0.5))),
];

#[test]
fn slopes_are_those_of_pytorch() {
    cases::check("slopes", CALLS);
}
