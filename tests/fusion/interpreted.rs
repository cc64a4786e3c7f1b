//! Fused kernels, interpreted: they read nothing past the end of a view, and give the bits of their
//! parts.

use lapidary::adapter::AdapterKind;
use lapidary::operations::{Activation, Epilogue};
use lapidary::sim::{SimKernels, SimOptions};
use lapidary::{DType, Gpu, Result, Tensor};

use crate::fusion::simulated;

/// A device of this kind that interprets kernels, without fusion and with it.
pub(super) fn pair(kind: AdapterKind) -> Vec<Gpu> {
    let device = SimOptions {
        kernels: SimKernels::Interpreted,
        kind,
        wide_words: kind == AdapterKind::Cpu,
        ..SimOptions::default()
    };
    [false, true]
        .map(|fuse| simulated(fuse, device.clone()).0)
        .to_vec()
}

type View = fn(&Tensor) -> Result<Tensor>;

/// Views whose last vec4 passes the end of a storage of `[8, 8]`, or its begin.
const VIEWS: [(&str, View); 9] = [
    ("the last part", |x| x.narrow(0, 1, 7)?.narrow(1, 1, 7)),
    ("the last row", |x| x.select(0, 7)?.narrow(0, 1, 7)),
    ("a flip", |x| {
        x.flip(&[0, 1])?.narrow(0, 1, 7)?.narrow(1, 1, 7)
    }),
    ("a flipped row", |x| {
        x.select(0, 0)?.narrow(0, 0, 7)?.flip(&[0])
    }),
    ("transposed", |x| x.narrow(0, 1, 7)?.narrow(1, 3, 5)?.t()),
    ("every second", |x| {
        x.slice(0, 1, None, 2)?.slice(1, 1, None, 3)
    }),
    ("a column", |x| x.select(1, 7)?.narrow(0, 1, 7)),
    ("a broadcast", |x| {
        x.select(0, 7)?.narrow(0, 1, 7)?.broadcast_to(&[3, 7])
    }),
    ("windows", |x| x.select(0, 7)?.unfold(0, 3, 2)),
];

/// Expressions of a view, alone and before, after and around kernels that read element by element.
fn results(x: &Tensor) -> Result<Vec<Tensor>> {
    let before = || (x * 2.0)? + 1.0;
    let last = x.rank() as isize - 1;
    let size = x.shape()[last as usize];
    let mut made = vec![
        before()?,
        (before()? * x)?,
        before()?.cast(DType::F16)?.add(1.0)?,
    ];
    for axis in [0, last] {
        made.extend([
            before()?.sum(&[axis])?,
            before()?.max(&[axis])?.mul(2.0)?,
            before()?.argmax(axis)?,
            (before()?.sum_keepdim(&[axis])? * x)?,
            (before()?.softmax(axis)? * x)?,
            before()?.log_softmax(axis)?,
            (x.softmax(axis)? - x)?,
        ]);
    }
    made.extend([
        before()?.mean_all()?,
        (before()?.layer_norm(&[size], None, None, 1e-3)? * x)?,
        (x.layer_norm(&[size], None, None, 1e-3)? + x)?,
    ]);
    let part = x.zeros_like()?;
    part.narrow(last, 0, size - 1)?
        .copy_(&before()?.narrow(last, 1, size - 1)?)?;
    made.push(part);
    if x.rank() == 2 {
        let end = Epilogue::new().activation(Activation::Relu).residual(x);
        let square = (x.matmul(&x.t()?)? * 0.01)?;
        made.push((square.matmul_with(x, &end)? + x)?);
    }
    Ok(made)
}

#[test]
fn a_fused_kernel_reads_nothing_past_the_end_of_a_view() {
    for kind in [AdapterKind::Discrete, AdapterKind::Cpu] {
        let gpus = pair(kind);
        for dtype in [DType::F32, DType::F16] {
            for (name, view) in VIEWS {
                let [apart, fused] = [0, 1].map(|index| {
                    let x = gpus[index].arange(0.0, 64.0, 1.0, dtype)?;
                    let x = x.reshape(&[8, 8])?.mul(0.25)?;
                    x.force()?;
                    let made = results(&view(&x)?)?;
                    let read = |one: &Tensor| one.cast(DType::F32)?.to_vec::<f32>();
                    made.iter().map(read).collect::<Result<Vec<_>>>()
                });
                let what = format!("{name} of {dtype} on {kind:?}");
                let [apart, fused] = [apart, fused]
                    .map(|made| made.unwrap_or_else(|error| panic!("{what}: {error}")));
                assert_eq!(apart, fused, "{what}");
            }
        }
        assert!(gpus[1].fused_kernels().len() > 10);
    }
}
