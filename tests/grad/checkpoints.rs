//! Checkpoints whose functions return views of every kind, against the same programs without
//! checkpoints.

use fastrand::Rng;
use lapidary::{DType, Gpu, Result, Tensor, sim::SimOptions};

use super::check::{gpu, parameter, spread};

const PROGRAMS: u64 = 30;
const STATEMENTS: usize = 6;
const MOST_ELEMENTS: usize = 300;

type View = fn(&Tensor) -> Result<Tensor>;

/// Views of a tensor of shape `[3, 4]`.
const VIEWS: [(&str, View); 24] = [
    ("itself", |h| Ok(h.clone())),
    ("a broadcast in front", |h| h.broadcast_to(&[2, 3, 4])),
    ("a broadcast axis", |h| {
        h.narrow(1, 1, 1)?.broadcast_to(&[3, 5])
    }),
    ("a broadcast in the middle", |h| {
        h.unsqueeze(1)?.broadcast_to(&[3, 2, 4])
    }),
    ("a broadcast of all", |h| {
        h.narrow(0, 1, 1)?.narrow(1, 2, 1)?.broadcast_to(&[2, 6])
    }),
    ("a number broadcast", |h| {
        h.select(0, 1)?.select(0, -1)?.broadcast_to(&[7])
    }),
    ("windows that overlap", |h| h.unfold(1, 3, 1)),
    ("windows of windows", |h| h.unfold(0, 2, 1)?.unfold(1, 2, 1)),
    ("windows side by side", |h| h.unfold(1, 2, 2)),
    ("windows with gaps", |h| h.unfold(1, 1, 3)),
    ("windows of a flip", |h| h.flip(&[0, 1])?.unfold(1, 3, 1)),
    ("a broadcast of windows", |h| {
        h.unfold(1, 2, 1)?.broadcast_to(&[2, 3, 3, 2])
    }),
    ("a flip", |h| h.flip(&[1])),
    ("a flip of both", |h| h.flip(&[0, 1])),
    ("a part", |h| h.narrow(1, 1, 2)),
    ("every second", |h| h.slice(1, 1, None, 2)),
    ("backwards by two", |h| h.slice(1, None, None, -2)),
    ("a row", |h| h.select(0, -1)),
    ("a number", |h| h.select(0, 1)?.select(0, 2)),
    ("transposed", |h| h.t()),
    ("reshaped", |h| h.view_as(&[2, 6])),
    ("a diagonal", |h| h.diagonal(1, 0, 1)),
    ("a broadcast diagonal", |h| {
        h.diagonal(0, 0, 1)?.broadcast_to(&[4, 3])
    }),
    ("nothing", |h| h.narrow(0, 1, 0)),
];

/// A number that depends on each element of a tensor by a weight of its own.
fn weighted(gpu: &Gpu, y: &Tensor) -> Result<Tensor> {
    let weights = gpu.tensor(&spread(y.len(), 0.5, 1.5), y.shape())?;
    (y * weights)?.sum_all()
}

fn check_close(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let is_close =
        |(got, expected): (&f32, &f32)| (got - expected).abs() <= 1e-4 * (1.0 + expected.abs());
    let mut pairs = got.iter().zip(expected);
    assert!(
        pairs.all(is_close),
        "{what}: {got:?} instead of {expected:?}"
    );
}

/// The gradients of a number by these parameters, and those of a number that its gradients give.
fn gradients(y: &Tensor, parameters: &[Tensor]) -> Result<Vec<Vec<f32>>> {
    let first = y.backprop().record().run()?;
    let of = |gradient: Option<Tensor>, parameter: &Tensor| match gradient {
        Some(gradient) => gradient.to_vec::<f32>(),
        None => Ok(vec![0.0; parameter.len()]),
    };
    let mut all = Vec::new();
    let mut sum = y.clone();
    for parameter in parameters {
        let gradient = first.get(parameter);
        if let Some(gradient) = gradient.as_ref().filter(|gradient| gradient.has_grad()) {
            sum = (sum + gradient.square()?.sum_all()?)?;
        }
        all.push(of(gradient, parameter)?);
    }
    let second = sum.backward()?;
    for parameter in parameters {
        all.push(of(second.get(parameter), parameter)?);
    }
    Ok(all)
}

#[test]
fn a_checkpoint_that_returns_a_broadcast_has_the_gradient_of_each_element_once() {
    let gpu = gpu();
    let p = parameter(&gpu, &[1.0], &[1]);
    let y = gpu.checkpoint(&[&p], |x| (&x[0] * 3.0)?.broadcast_to(&[2, 3]));
    let gradients = y.unwrap().sum_all().unwrap().backward().unwrap();
    let gradient = gradients.get(&p).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(gradient, [18.0]);
}

#[test]
fn a_checkpoint_may_return_any_view_of_what_it_made_was_given_or_captured() {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    let elements = spread(12, -1.0, 1.0);
    for (name, view) in VIEWS {
        for (source, whose) in ["a new tensor", "an input", "a captured one"]
            .iter()
            .enumerate()
        {
            let run = |is_checkpoint: bool| {
                let x = parameter(&gpu, &elements, &[3, 4]);
                let captured = x.clone();
                let function = move |inputs: &[Tensor]| match source {
                    0 => view(&inputs[0].square()?),
                    1 => view(&inputs[1]),
                    _ => view(&captured),
                };
                let y = match is_checkpoint {
                    true => gpu.checkpoint(&[&x, &x], function)?,
                    false => function(&[x.clone(), x.clone()])?,
                };
                // Through views of the result, too.
                let mut sum = weighted(&gpu, &y.tanh()?)?;
                if y.rank() > 0 {
                    let part = y.flip(&[0])?.slice(0, None, None, 2)?;
                    sum = (sum + weighted(&gpu, &part.square()?)?)?;
                }
                gradients(&sum, &[x])
            };
            let (got, expected) = (run(true).unwrap(), run(false).unwrap());
            for (got, expected) in got.iter().zip(&expected) {
                check_close(&format!("{name} of {whose}"), got, expected);
            }
        }
    }
}

/// An operation within a checkpoint.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u32,
    at: usize,
}

impl Step {
    fn random(rng: &mut Rng) -> Self {
        Step {
            kind: rng.u32(..17),
            at: rng.usize(..1000),
        }
    }

    fn run(self, x: &Tensor) -> Result<Tensor> {
        let rank = x.rank();
        if rank == 0 {
            return match self.kind {
                0..4 => x.sin(),
                4..8 => x.unsqueeze(0),
                8..12 => x.broadcast_to(&[1 + self.at % 3]),
                _ => Ok(x.clone()),
            };
        }
        let axis = self.at % rank;
        let (along, dim) = (axis as isize, x.shape()[axis]);
        let size = 1 + self.at / 7 % dim.max(1);
        let is_small = x.len() * 3 <= MOST_ELEMENTS && rank < 5;
        match self.kind {
            0 => x.sin(),
            1 => x.square(),
            2 => x * 1.5,
            3 if is_small => {
                let shape = [&[1 + self.at % 3], x.shape()].concat();
                x.broadcast_to(&shape)
            }
            4 if is_small => {
                let mut shape = x.unsqueeze(along)?.shape().to_vec();
                shape[axis] = 1 + self.at / 5 % 3;
                x.unsqueeze(along)?.broadcast_to(&shape)
            }
            5 | 6 if is_small && size <= dim => x.unfold(along, size, 1 + self.at / 3 % 3),
            7 => x.flip(&[along]),
            8 if size <= dim => x.narrow(along, (self.at / 11 % (dim - size + 1)) as isize, size),
            9 if dim > 0 => x.select(along, (self.at / 5 % dim) as isize),
            10 => x.transpose(along, -1),
            11 => x.flatten(),
            12 => x.slice(along, None, None, -1 - (self.at as isize / 5 % 2)),
            13 if rank > 1 => x.diagonal(self.at as isize / 5 % 3 - 1, 0, 1),
            14 => x.unsqueeze(along),
            15 => Ok(x.squeeze()),
            _ => Ok(x.clone()),
        }
    }
}

/// A call of a checkpoint: its operands among the values, its steps, and another checkpoint after
/// that many of them.
#[derive(Clone, Debug)]
struct Statement {
    operands: [usize; 2],
    steps: Vec<Step>,
    nested_from: Option<usize>,
}

impl Statement {
    fn random(rng: &mut Rng, values: usize) -> Self {
        let count = rng.usize(1..6);
        Statement {
            operands: [rng.usize(..values), rng.usize(..values)],
            steps: (0..count).map(|_| Step::random(rng)).collect(),
            nested_from: rng.bool().then(|| rng.usize(..count)),
        }
    }

    fn run(&self, gpu: &Gpu, values: &[Tensor], is_checkpoint: bool) -> Result<Tensor> {
        let operands = self.operands.map(|operand| &values[operand]);
        let (steps, nested_from) = (self.steps.clone(), self.nested_from);
        let its_gpu = gpu.clone();
        let function = move |inputs: &[Tensor]| {
            let sum = inputs[1].mean_all()?;
            let (before, nested) = steps.split_at(nested_from.unwrap_or(steps.len()));
            let x = run_steps(before, &inputs[0])?;
            let x = match nested.is_empty() {
                true => x,
                false if is_checkpoint => {
                    let nested = nested.to_vec();
                    its_gpu.checkpoint(&[&x], move |inputs| run_steps(&nested, &inputs[0]))?
                }
                false => run_steps(nested, &x)?,
            };
            // Else the second operand has no part in it.
            match steps.len() % 2 {
                0 => (&x + sum)?.broadcast_to(x.shape()),
                _ => Ok(x),
            }
        };
        match is_checkpoint {
            true => gpu.checkpoint(&operands, function),
            false => function(&operands.map(Tensor::clone)),
        }
    }
}

fn run_steps(steps: &[Step], x: &Tensor) -> Result<Tensor> {
    steps.iter().try_fold(x.clone(), |x, step| step.run(&x))
}

#[test]
fn random_programs_with_checkpoints_have_the_gradients_of_those_without() {
    let (gpu, _sim) = Gpu::simulated(SimOptions::default()).unwrap();
    for seed in 0..PROGRAMS {
        let mut rng = Rng::with_seed(seed);
        let program: Vec<Statement> = (0..STATEMENTS)
            .map(|index| Statement::random(&mut rng, 2 + index))
            .collect();
        let run = |is_checkpoint: bool| {
            let parameters = [
                parameter(&gpu, &spread(12, -0.9, 1.1), &[3, 4]),
                parameter(&gpu, &spread(5, -0.5, 1.0), &[5]),
            ];
            let mut values = parameters.to_vec();
            let mut sum = gpu.zeros(&[], DType::F32)?;
            for statement in &program {
                let made = statement.run(&gpu, &values, is_checkpoint)?;
                // An empty tensor has no mean.
                let made = match made.is_empty() {
                    true => values[0].clone(),
                    false => made,
                };
                sum = (sum + weighted(&gpu, &made.tanh()?)?)?;
                values.push(made);
            }
            gradients(&(sum + weighted(&gpu, &values[1])?)?, &parameters)
        };
        let case = format!("seed {seed}: {program:?}");
        let [got, expected] = [true, false].map(|is_checkpoint| {
            run(is_checkpoint).unwrap_or_else(|error| panic!("{case}: {error}"))
        });
        for (got, expected) in got.iter().zip(&expected) {
            check_close(&case, got, expected);
        }
    }
}
