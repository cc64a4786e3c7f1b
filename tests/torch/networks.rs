//! Convolutions, poolings, attention and sums of products, with their gradients, in all of their
//! options, on views too, and on a device whose operands take several windows.

use lapidary::operations::{Causal, Conv, ConvTranspose, Pool};
use lapidary::{Result, Tensor};

use crate::ops_reduce::model::gpus;
use crate::torch::cases::read;

/// The options of a case, its last operand.
struct Given(Vec<i32>);

impl Given {
    fn of(t: &[Tensor]) -> Result<Given> {
        t[t.len() - 1].to_vec().map(Given)
    }

    fn pair(&self, at: usize) -> [usize; 2] {
        [self.0[2 * at], self.0[2 * at + 1]].map(|size| size as usize)
    }

    fn last(&self) -> usize {
        self.0[self.0.len() - 1] as usize
    }
}

/// The same tensor with other strides.
fn around(x: &Tensor) -> Result<Tensor> {
    let axes: Vec<isize> = (0..x.rank() as isize).rev().collect();
    x.permute(&axes)?.contiguous()?.permute(&axes)
}

fn conv2d(t: &[Tensor]) -> Result<Vec<Tensor>> {
    let given = Given::of(t)?;
    let options = Conv {
        stride: given.pair(0),
        padding: given.pair(1),
        dilation: given.pair(2),
        groups: given.last(),
    };
    let [x, w, b, grad] = [0, 1, 2, 3].map(|at| &t[at]);
    // Channels last and reversed.
    let last = x.permute(&[0, 2, 3, 1])?.contiguous()?;
    let flipped = last.permute(&[0, 3, 1, 2])?.flip(&[2, 3])?;
    let viewed = flipped.contiguous()?.flip(&[2, 3])?;
    let mut made = vec![
        x.conv2d(w, Some(b), &options)?,
        viewed.conv2d(w, Some(b), &options)?,
    ];
    made.extend(grad.conv2d_backward(x, w, &options)?);
    Ok(made)
}

fn conv_transpose2d(t: &[Tensor]) -> Result<Vec<Tensor>> {
    let given = Given::of(t)?;
    let options = ConvTranspose {
        stride: given.pair(0),
        padding: given.pair(1),
        output_padding: given.pair(2),
        dilation: given.pair(3),
        groups: given.last(),
    };
    let [x, w, b] = [0, 1, 2].map(|at| &t[at]);
    let bias = b.unsqueeze(1)?.broadcast_to(&[b.len(), 2])?.select(1, 1)?;
    Ok(vec![
        x.conv_transpose2d(w, Some(b), &options)?,
        around(x)?.conv_transpose2d(&around(w)?, Some(&bias), &options)?,
    ])
}

fn pool(t: &[Tensor]) -> Result<Vec<Tensor>> {
    let given = Given::of(t)?;
    let pool = Pool {
        kernel: given.pair(0),
        stride: given.pair(1),
        padding: given.pair(2),
        dilation: given.pair(3),
        ceil_mode: given.0[8] != 0,
        count_include_pad: given.0[9] != 0,
        divisor_override: Some(given.last()).filter(|&divisor| divisor > 0),
    };
    let of_max = Pool {
        count_include_pad: true,
        divisor_override: None,
        ..pool
    };
    let [x, grad] = [&t[0], &t[1]];
    let (max, places) = x.max_pool2d_with_indices(&of_max)?;
    Ok(vec![
        x.max_pool2d(&of_max)?,
        max,
        places,
        x.avg_pool2d(&pool)?,
        grad.max_pool2d_backward(x, &of_max)?,
        grad.avg_pool2d_backward(x, &pool)?,
    ])
}

fn adaptive(t: &[Tensor]) -> Result<Vec<Tensor>> {
    let (size, [x, grad]) = (Given::of(t)?.pair(0), [&t[0], &t[1]]);
    let (max, places) = x.adaptive_max_pool2d_with_indices(size)?;
    Ok(vec![
        x.adaptive_max_pool2d(size)?,
        max,
        places,
        x.adaptive_avg_pool2d(size)?,
        grad.adaptive_max_pool2d_backward(x)?,
        grad.adaptive_avg_pool2d_backward(x)?,
    ])
}

fn attention(seen: &str, t: &[Tensor]) -> Result<Vec<Tensor>> {
    let causal = match seen {
        "from first" => Causal::FirstKey,
        "from last" => Causal::LastKey,
        _ => Causal::No,
    };
    let attend = |q: &Tensor, k: &Tensor, v: &Tensor| {
        q.scaled_dot_product_attention(k, v, t.get(3), causal, Some(0.5))
    };
    // The layout after a projection: heads beside rows, and not at a vec4.
    let turned = |x: &Tensor| x.transpose(-2, 0)?.contiguous()?.transpose(-2, 0);
    let shifted = |x: &Tensor| {
        let wide = x.pad(&[&vec![(0, 0); x.rank() - 1][..], &[(1, 0)]].concat(), 0)?;
        wide.slice(-1, Some(1), None, 1)
    };
    let [q, k, v] = [0, 1, 2].map(|at| &t[at]);
    Ok(vec![
        attend(q, k, v)?,
        attend(&turned(q)?, &turned(k)?, &shifted(v)?)?,
    ])
}

/// The call of a case, whose name begins with it.
fn call(name: &str, t: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut parts = name.split(": ");
    let (kind, how) = (parts.next(), parts.next().unwrap_or_default());
    match kind.unwrap_or_default() {
        "conv2d" => conv2d(t),
        "conv_transpose2d" => conv_transpose2d(t),
        "pool" => pool(t),
        "adaptive" => adaptive(t),
        "attention" => attention(how, t),
        "matmul" => Ok(vec![t[0].matmul(&t[1])?]),
        "einsum" => Ok(vec![Tensor::einsum(how, &t.iter().collect::<Vec<_>>())?]),
        _ => panic!("no call of {name}"),
    }
}

#[test]
fn kernels_of_networks_give_pytorchs_values() {
    let cases = read("networks");
    assert!(cases.len() > 100, "only {} cases", cases.len());
    let mut faults = Vec::new();
    for (device, gpu) in gpus() {
        for case in &cases {
            if let Err(fault) = case.check(&gpu, |_, operands| call(case.name(), operands)) {
                faults.push(format!("{} on {device}: {fault}", case.name()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
