//! Rotary positions: the cosines and sines of each position's angles.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use lapidary::{Gpu, Tensor};

use crate::config::{Rope, Scaling};
use crate::error::Result;

/// The frequencies of an embedding of positions, a pair of elements each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frequencies {
    radians: Vec<f64>,
    /// The factor of cosines and sines.
    attention: f64,
}

/// A step of at most so many rows gets its angles from the host, once for each head. For more
/// rows the device repeats them.
const FEW_ROWS: usize = 8;

/// Cosines and sines for the rows of a step.
#[derive(Debug)]
pub(crate) struct Angles<'a> {
    gpu: &'a Gpu,
    rows: usize,
    /// Of cosines and of sines, a row for each row of the step.
    values: [Vec<f32>; 2],
    /// For each number of heads that was asked for.
    made: RefCell<BTreeMap<usize, [Tensor; 2]>>,
}

impl Frequencies {
    /// Of a description that was checked, for sequences of at most so many tokens.
    pub(crate) fn new(rope: &Rope, context: usize) -> Frequencies {
        let pairs = rope.rotated / 2;
        let theta = f64::from(rope.theta);
        let plain = |pair: usize| theta.powf(-2.0 * pair as f64 / rope.rotated as f64);
        let mut attention = 1.0;
        let radians =
            (0..pairs)
                .map(plain)
                .enumerate()
                .map(|(pair, radians)| match &rope.scaling {
                    Scaling::None => radians,
                    Scaling::Linear(factor) => radians / f64::from(*factor),
                    Scaling::Llama3 {
                        factor,
                        low,
                        high,
                        original,
                    } => llama3(radians, [*factor, *low, *high, *original].map(f64::from)),
                    Scaling::Yarn {
                        factor,
                        attention: of_yarn,
                        fast,
                        slow,
                        original,
                    } => {
                        attention = f64::from(*of_yarn);
                        // The pair that turns so often within the original context.
                        let pair_of = |turns: f32| {
                            let wavelength =
                                f64::from(*original) / (f64::from(turns) * std::f64::consts::TAU);
                            rope.rotated as f64 * wavelength.ln() / (2.0 * theta.ln())
                        };
                        let first = pair_of(*fast).floor().max(0.0);
                        let last = pair_of(*slow).ceil().min(rope.rotated as f64 - 1.0);
                        let span = (last - first).max(0.001);
                        let divided = ((pair as f64 - first) / span).clamp(0.0, 1.0);
                        radians * (1.0 - divided) + radians / f64::from(*factor) * divided
                    }
                    Scaling::Each {
                        factors,
                        long_factors,
                        original,
                        attention: of_each,
                    } => {
                        attention = f64::from(*of_each);
                        let is_long = context > *original && !long_factors.is_empty();
                        let factors = if is_long { long_factors } else { factors };
                        radians / factors.get(pair).map_or(1.0, |&factor| f64::from(factor))
                    }
                });
        let radians = radians.collect();
        Frequencies { radians, attention }
    }

    /// The angles of rows at these positions, computed in f64 and rounded once.
    pub(crate) fn angles<'a>(&self, gpu: &'a Gpu, positions: &[u32]) -> Angles<'a> {
        let of = |turn: fn(f64) -> f64| {
            let angles = positions.iter().flat_map(|&position| {
                let at = move |radians: &f64| turn(f64::from(position) * radians) * self.attention;
                self.radians.iter().map(at)
            });
            angles.map(|value| value as f32).collect()
        };
        Angles {
            gpu,
            rows: positions.len(),
            values: [of(f64::cos), of(f64::sin)],
            made: RefCell::default(),
        }
    }
}

impl Angles<'_> {
    /// Turns the pairs of so many heads of each row: `[rows · heads, size]`.
    pub(crate) fn turn(&self, x: &Tensor, heads: usize, are_neighbours: bool) -> Result<Tensor> {
        let mut made = self.made.borrow_mut();
        let [cos, sin] = match made.entry(heads) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let [cos, sin] = &self.values;
                new.insert([self.repeated(cos, heads)?, self.repeated(sin, heads)?])
            }
        };
        Ok(x.rotary(cos, sin, are_neighbours)?)
    }

    /// `[rows · heads, pairs]` of the values of each row.
    fn repeated(&self, values: &[f32], heads: usize) -> Result<Tensor> {
        let pairs = values.len() / self.rows.max(1);
        let shape = [self.rows * heads, pairs];
        if self.rows <= FEW_ROWS {
            let rows = values.chunks(pairs.max(1));
            let all: Vec<f32> = rows.flat_map(|row| row.repeat(heads)).collect();
            return Ok(self.gpu.tensor(&all, &shape)?);
        }
        let once = self.gpu.tensor(values, &[self.rows, 1, pairs])?;
        let all = once.broadcast_to(&[self.rows, heads, pairs])?;
        Ok(all.contiguous()?.reshape(&shape)?)
    }
}

/// As Llama 3.1 changes a frequency.
fn llama3(radians: f64, [factor, low, high, original]: [f64; 4]) -> f64 {
    let wavelength = std::f64::consts::TAU / radians;
    if wavelength < original / high {
        radians
    } else if wavelength > original / low {
        radians / factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * radians / factor + smooth * radians
    }
}
