//! candle on the CPU, as its documentation shows.

use std::process::ExitCode;

use candle_core::{Device, Tensor};
use lapidary_harness::{
    About, BATCH, CLASSES, HIDDEN, INPUTS, RATE, Result, Subject, Timed, Way, Work,
};

fn main() -> ExitCode {
    lapidary_harness::main(|| Ok(Box::new(Candle)))
}

struct Candle;

/// Operations that return tensors.
struct Op<F> {
    call: F,
    made: Vec<Tensor>,
}

impl<F: FnMut() -> candle_core::Result<Vec<Tensor>>> Timed for Op<F> {
    fn run(&mut self) -> Result {
        self.made.clear();
        self.made = (self.call)()?;
        Ok(())
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for made in &self.made {
            values.extend(made.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(values)
    }
}

type Prepared<'a> = Result<Option<Box<dyn Timed + 'a>>>;

fn many<'a>(call: impl FnMut() -> candle_core::Result<Vec<Tensor>> + 'a) -> Prepared<'a> {
    let made = Vec::new();
    Ok(Some(Box::new(Op { call, made })))
}

fn op<'a>(mut call: impl FnMut() -> candle_core::Result<Tensor> + 'a) -> Prepared<'a> {
    many(move || Ok(vec![call()?]))
}

impl Subject for Candle {
    fn about(&self) -> About {
        About {
            by: "candle",
            adapter: "CPU".into(),
            driver: "candle's own kernels".into(),
        }
    }

    fn prepare<'a>(&'a self, work: &Work, inputs: &'a [Vec<f32>]) -> Prepared<'a> {
        let tensor =
            |index: usize, shape: &[usize]| Tensor::from_slice(&inputs[index], shape, &Device::Cpu);
        match *work {
            Work::Matmul {
                batch,
                m,
                n,
                k,
                is_b_transposed,
            } => {
                let a = tensor(0, &[batch, m, k])?;
                let b = match is_b_transposed {
                    true => tensor(1, &[batch, n, k])?.transpose(1, 2)?,
                    false => tensor(1, &[batch, k, n])?,
                };
                op(move || a.matmul(&b))
            }
            Work::Add { len } => {
                let (a, b) = (tensor(0, &[len])?, tensor(1, &[len])?);
                op(move || &a + &b)
            }
            Work::Chain { len } => {
                let (a, b) = (tensor(0, &[len])?, tensor(1, &[len])?);
                let (c, d) = (tensor(2, &[len])?, tensor(3, &[len])?);
                op(move || ((&a * &b)? + &c)?.relu()? * &d)
            }
            Work::Softmax { rows, columns } => {
                let x = tensor(0, &[rows, columns])?;
                op(move || candle_nn::ops::softmax_last_dim(&x))
            }
            Work::Sum { len } => {
                let x = tensor(0, &[len])?;
                op(move || x.sum_all())
            }
            Work::Transpose { rows, columns } => {
                let x = tensor(0, &[rows, columns])?.t()?;
                op(move || x.contiguous())
            }
            Work::Gelu { len } => {
                let x = tensor(0, &[len])?;
                op(move || x.gelu_erf())
            }
            Work::Increments { ops, len } => {
                let first = tensor(0, &[len])?;
                op(move || {
                    let mut x = (&first + 1.0)?;
                    for _ in 1..ops {
                        x = (x + 1.0)?;
                    }
                    Ok(x)
                })
            }
            Work::Rotations { ops, len } => {
                let first = tensor(0, &[len])?;
                let next: Vec<u32> = (0..len).map(|i| ((i + 1) % len) as u32).collect();
                let next = Tensor::from_slice(&next, len, &Device::Cpu)?;
                op(move || {
                    let mut x = first.index_select(&next, 0)?;
                    for _ in 1..ops {
                        x = x.index_select(&next, 0)?;
                    }
                    Ok(x)
                })
            }
            Work::Upload {
                len,
                way: Way::Direct,
            } => op(move || Tensor::from_slice(&inputs[0], len, &Device::Cpu)),
            Work::Training { steps } => {
                let (images, classes) =
                    (tensor(0, &[BATCH, INPUTS])?, tensor(1, &[BATCH, CLASSES])?);
                let zeros = |len: usize| Tensor::zeros(len, candle_core::DType::F32, &Device::Cpu);
                let mut parameters = vec![
                    tensor(2, &[INPUTS, HIDDEN])?,
                    zeros(HIDDEN)?,
                    tensor(3, &[HIDDEN, CLASSES])?,
                    zeros(CLASSES)?,
                ];
                many(move || {
                    for _ in 0..steps {
                        parameters = step(&images, &classes, &parameters)?;
                    }
                    Ok(parameters.clone())
                })
            }
            // Its memory is host memory, without staging or blocks.
            _ => Ok(None),
        }
    }
}

fn step(
    images: &Tensor,
    classes: &Tensor,
    parameters: &[Tensor],
) -> candle_core::Result<Vec<Tensor>> {
    let [first, first_bias, second, second_bias] = parameters else {
        unreachable!("there are four parameters");
    };
    let hidden = images.matmul(first)?.broadcast_add(first_bias)?.relu()?;
    let outputs = hidden.matmul(second)?.broadcast_add(second_bias)?;
    let of_outputs = ((candle_nn::ops::softmax_last_dim(&outputs)? - classes)? / BATCH as f64)?;
    let mask = hidden.gt(0.0)?.to_dtype(candle_core::DType::F32)?;
    let of_hidden = (of_outputs.matmul(&second.t()?)? * mask)?;
    let gradients = [
        images.t()?.matmul(&of_hidden)?,
        of_hidden.sum(0)?,
        hidden.t()?.matmul(&of_outputs)?,
        of_outputs.sum(0)?,
    ];
    let pairs = parameters.iter().zip(gradients);
    pairs
        .map(|(parameter, gradient)| parameter - (gradient * f64::from(RATE))?)
        .collect()
}
