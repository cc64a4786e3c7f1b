//! Gradients of random programs, with views and writes in place, against finite differences.

use fastrand::Rng;
use lapidary::{Error, Gpu, Result, Tensor};

use super::check::{check as check_within, gpu, parameter, spread};

/// Programs of the suite. `LAPIDARY_PROGRAMS` sets another number.
const PROGRAMS: usize = 40;
const OPERATIONS: usize = 9;
const SHAPES: [&[usize]; 3] = [&[3, 4], &[4], &[2, 3, 2]];

/// An operation of a program. The operands are chosen among the values that exist.
#[derive(Clone, Copy, Debug)]
struct Operation {
    kind: u32,
    a: usize,
    b: usize,
    at: usize,
}

impl Operation {
    fn random(rng: &mut Rng) -> Self {
        Operation {
            kind: rng.u32(..17),
            a: rng.usize(..1000),
            b: rng.usize(..1000),
            at: rng.usize(..1000),
        }
    }

    /// Adds its result to the values, or writes to one of them.
    fn run(self, values: &mut Vec<Tensor>, parameters: usize) -> Result<()> {
        let count = values.len();
        // The newest values are the likelier operands, so that programs are deep.
        let a = values[count - 1 - self.a % count.min(3)].clone();
        let b = &values[self.b % count];
        let b = match b.shape() == a.shape() {
            true => b.clone(),
            false => b.mean_all()?,
        };
        let rank = a.rank();
        let axis = self.at % rank.max(1);
        let along = axis as isize;
        let has_rows = rank > 0 && a.shape()[axis] > 1;
        let made = match self.kind {
            0 => a.tanh()?,
            1 => a.sin()?,
            2 => a.sigmoid()?.exp()?,
            3 => (a.square()? + 1.0)?.sqrt()?,
            4 => (&a + &b)?,
            5 => (&a * &b)?,
            6 => (&a - (&b * 0.5)?)?,
            7 if rank > 1 => a.transpose(0, -1)?,
            8 if has_rows => {
                let from = (self.b % 2) as isize;
                a.slice(along, from, None, 1 + (self.b / 2 % 2) as isize)?
            }
            9 => a.reshape(&[a.len()])?,
            10 if rank > 0 => a.flip(&[along])?,
            11 if rank > 0 => a.softmax(along)?,
            12 if rank == 2 => (a.matmul(&a.t()?)? * 0.3)?,
            13 if rank > 0 => (&a * a.mean_keepdim(&[along])?.broadcast_to(a.shape())?)?,
            // A part of a new value is written.
            14 if has_rows => {
                let copy = (&a * 1.0)?;
                let part = copy.slice(along, self.b as isize % 2, None, 2)?;
                part.mul_(&b.mean_all()?)?;
                copy
            }
            // An old value is written, of which there may be views. The last write may be to what
            // the backward needs.
            15 if count > parameters => {
                let old = &values[parameters + self.b % (count - parameters)];
                return old.add_(&a.mean_all()?);
            }
            16 if rank > 0 => Tensor::concat(&[&a, &a.cumsum(along)?], along)?,
            _ => a.tanh()?,
        };
        values.push(made);
        Ok(())
    }
}

/// The number that a program computes from its parameters.
fn run(program: &[Operation], parameters: &[Tensor]) -> Result<Tensor> {
    let mut values = parameters.to_vec();
    for operation in program {
        operation.run(&mut values, parameters.len())?;
    }
    let mut total = values[0].mean_all()?;
    for value in &values[values.len() - 3..] {
        total = (total + value.tanh()?.sum_all()?)?;
    }
    Ok(total)
}

/// Is the error that of a write to a parameter, or to what the backward needs?
fn is_of_write(reason: &str) -> bool {
    reason.contains("wrote to it since") || reason.contains("cannot be written at")
}

/// Checks a program. `false` if it makes a write that is refused.
fn check(gpu: &Gpu, seed: u64) -> bool {
    let mut rng = Rng::with_seed(seed);
    let program: Vec<_> = (0..OPERATIONS)
        .map(|_| Operation::random(&mut rng))
        .collect();
    let elements = SHAPES.map(|shape| spread(shape.iter().product(), -0.9, 1.1));
    let operands: Vec<_> = elements.iter().map(Vec::as_slice).zip(SHAPES).collect();
    let case = format!("seed {seed}: {program:?}");
    let marked: Vec<_> = (operands.iter())
        .map(|(elements, shape)| parameter(gpu, elements, shape))
        .collect();
    match run(&program, &marked).and_then(|y| y.backward()) {
        Ok(_) => {}
        Err(Error::Gradient { reason, .. }) if is_of_write(&reason) => return false,
        Err(error) => panic!("{case}: {error}"),
    }
    // A single result counts about half there.
    check_within(gpu, &case, &operands, |x| run(&program, x)? * 2.0);
    true
}

#[test]
fn random_programs_agree_with_finite_differences() {
    let gpu = gpu();
    let programs = std::env::var("LAPIDARY_PROGRAMS");
    let programs = programs.map_or(PROGRAMS, |count| count.parse().expect("a number"));
    let checked = (0..programs)
        .filter(|&seed| check(&gpu, seed as u64))
        .count();
    println!("{checked} of {programs}");
    assert!(
        checked > programs * 3 / 4,
        "{checked} programs were checked"
    );
}
