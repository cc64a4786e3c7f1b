//! The choice of the next token, on the device: only the chosen tokens are read.

use lapidary::{DType, Gpu, Tensor};

use crate::error::{Error, Result};

/// How the next token of a sequence is chosen. The default takes the likeliest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it. 0 takes the likeliest token.
    pub temperature: f32,
    /// Only so many of the likeliest tokens may be chosen. Without it, each step sorts the whole
    /// vocabulary.
    pub top_k: Option<usize>,
    /// Only the likeliest tokens whose probabilities together reach this may be chosen, among those
    /// that `top_k` left (A. Holtzman et al., 2020).
    pub top_p: f32,
    /// Only tokens of at least this share of the likeliest one's probability may be chosen (N. N.
    /// Minh et al., 2024).
    pub min_p: f32,
    /// Logits of tokens that the sequence has are divided by this if they are positive, else
    /// multiplied (N. S. Keskar et al., 2019). 1 changes nothing.
    pub repetition_penalty: f32,
    /// The same seed, tokens and model make the same choice, whatever else a step computes, up to
    /// the rounding of its sums.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// The likeliest token, always.
    pub fn greedy() -> Self {
        Sampling::default()
    }

    /// A choice at this temperature among the 64 likeliest tokens.
    pub fn at(temperature: f32, seed: u64) -> Self {
        Sampling {
            temperature,
            top_k: Some(64),
            seed,
            ..Sampling::default()
        }
    }

    /// Refuses numbers without a meaning.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |name: &str, value: f32, range: &str| {
            Err(Error::Argument(format!("{name} is {value}: it is {range}")))
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return refused("temperature", self.temperature, "a number from 0 on");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refused("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refused("min_p", self.min_p, "from 0 to 1");
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return refused(
                "repetition_penalty",
                self.repetition_penalty,
                "a number above 0",
            );
        }
        match self.top_k {
            Some(0) => refused("top_k", 0.0, "1 or more"),
            _ => Ok(()),
        }
    }

    fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}

/// What a row of logits is sampled with.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) sampling: &'a Sampling,
    /// How many tokens the sequence has: each takes another random number of the seed's.
    pub(crate) tokens: usize,
    /// `[vocabulary]` of f32: 1 for tokens that the sequence has, if that matters.
    pub(crate) seen: Option<&'a Tensor>,
}

/// The chosen tokens, `[rows]` of u32, and their log-probabilities, `[rows]` of f32: what the model
/// gives them, before anything that a [`Sampling`] changes.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) tokens: Tensor,
    pub(crate) log_probabilities: Tensor,
}

/// Chooses a token for each row of logits, `[rows, vocabulary]` of f32.
pub(crate) fn choose(gpu: &Gpu, logits: &Tensor, rows: &[Row<'_>]) -> Result<Chosen> {
    let _sampling = gpu.scope("sampling");
    let penalized = penalized(gpu, logits, rows)?;
    let tokens = match rows.iter().all(|row| row.sampling.is_greedy()) {
        true => penalized.argmax(-1)?,
        false => drawn(gpu, &penalized, rows)?,
    };
    let column = tokens.reshape(&[rows.len(), 1])?;
    let log_probabilities = logits.log_softmax(-1)?.gather(-1, &column)?;
    Ok(Chosen {
        tokens,
        log_probabilities: log_probabilities.reshape(&[rows.len()])?,
    })
}

fn penalized(gpu: &Gpu, logits: &Tensor, rows: &[Row<'_>]) -> Result<Tensor> {
    if rows.iter().all(|row| row.seen.is_none()) {
        return Ok(logits.clone());
    }
    let vocabulary = logits.shape()[1];
    let none = gpu.zeros(&[1, vocabulary], DType::F32)?;
    let seen = rows.iter().map(|row| match row.seen {
        Some(seen) => seen.reshape(&[1, vocabulary]),
        None => Ok(none.clone()),
    });
    let seen = seen.collect::<lapidary::Result<Vec<_>>>()?;
    let seen = Tensor::concat(&seen.iter().collect::<Vec<_>>(), 0)?;
    let penalties: Vec<f32> = rows
        .iter()
        .map(|row| row.sampling.repetition_penalty)
        .collect();
    let penalties = gpu.tensor(&penalties, &[rows.len(), 1])?;
    let lower = logits
        .gt(0.0)?
        .where_(&logits.div(&penalties)?, &logits.mul(&penalties)?)?;
    Ok(seen.gt(0.0)?.where_(&lower, logits)?)
}

/// Draws a token of each row. Candidates descend, so those that may be chosen come first.
fn drawn(gpu: &Gpu, logits: &Tensor, rows: &[Row<'_>]) -> Result<Tensor> {
    let vocabulary = logits.shape()[1];
    let kept = |row: &Row<'_>| match row.sampling.is_greedy() {
        true => 1,
        false => row.sampling.top_k.unwrap_or(vocabulary).min(vocabulary),
    };
    let most = rows.iter().map(kept).max().unwrap_or(1);
    let (values, indices) = match most < vocabulary {
        true => logits.top_k(most, -1, true)?,
        false => logits.sort(-1, true)?,
    };
    let column = |of: &dyn Fn(&Row<'_>) -> f32| {
        let numbers: Vec<f32> = rows.iter().map(of).collect();
        gpu.tensor(&numbers, &[rows.len(), 1])
    };
    let inverse = column(&|row| match row.sampling.is_greedy() {
        true => 1.0,
        false => 1.0 / row.sampling.temperature,
    })?;
    let rank = gpu
        .arange(0.0, most as f32, 1.0, DType::F32)?
        .reshape(&[1, most])?;
    let is_kept = rank.lt(&column(&|row| kept(row) as f32)?)?;
    let hidden = is_kept.logical_not()?;
    let scores = values
        .mul(&inverse)?
        .masked_fill(&hidden, f32::NEG_INFINITY)?;
    let shares = scores.softmax(-1)?;
    let before = shares.cumsum(-1)?.sub(&shares)?;
    let is_likely = before.lt(&column(&|row| row.sampling.top_p)?)?;
    let least = shares
        .narrow(-1, 0, 1)?
        .mul(&column(&|row| row.sampling.min_p)?)?;
    let may_be = is_likely
        .logical_and(&shares.ge(&least)?)?
        .logical_and(&is_kept)?;
    let shares = shares.mul(&may_be.cast(DType::F32)?)?;
    let sums = shares.cumsum(-1)?;
    let all = sums.narrow(-1, most - 1, 1)?;
    let point = all.mul(&column(&|row| uniform(row.sampling.seed, row.tokens))?)?;
    // The number of candidates whose shares end at the point or before it, but not beyond the last.
    let passed = sums.le(&point)?.cast(DType::F32)?.sum(&[1])?;
    let last = may_be.cast(DType::F32)?.sum(&[1])?.sub(1.0)?;
    let index = passed
        .minimum(&last)?
        .cast(DType::U32)?
        .reshape(&[rows.len(), 1])?;
    Ok(indices.gather(-1, &index)?.reshape(&[rows.len()])?)
}

/// A number from 0 up to and without 1: SplitMix64 (G. Steele et al., 2014) of a seed and a count.
fn uniform(seed: u64, count: usize) -> f32 {
    let mut z = seed.wrapping_add((count as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        z = (z ^ (z >> shift)).wrapping_mul(factor);
    }
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests;
