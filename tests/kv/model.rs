//! Conversations whose keys and values the host keeps, too.

use fastrand::Rng;
use half::f16;
use lapidary::kv::{Attend, KvCache, KvOptions, Sequence};
use lapidary::{DType, Gpu, Result, Tensor};

/// The shape of a small model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) size: usize,
    pub(super) dtype: DType,
    pub(super) page_tokens: usize,
}

pub(super) const SMALL: Shape = Shape {
    layers: 2,
    heads: 4,
    kv_heads: 2,
    size: 16,
    dtype: DType::F32,
    page_tokens: 16,
};

impl Shape {
    pub(super) fn options(self) -> KvOptions {
        KvOptions {
            layers: self.layers,
            kv_heads: self.kv_heads,
            head_size: self.size,
            dtype: self.dtype,
            page_tokens: self.page_tokens,
        }
    }

    /// The farthest that a result may be from that of f64.
    fn tolerance(self) -> f64 {
        match self.dtype {
            DType::F32 => 2e-5,
            DType::F16 => 2e-3,
            _ => 3e-2,
        }
    }
}

/// A sequence with its keys and values on the host: for each layer, the rows of all tokens.
pub(super) struct Talk {
    pub(super) sequence: Sequence,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl Talk {
    pub(super) fn new(cache: &KvCache, name: &str) -> Talk {
        let layers = cache.options().layers;
        Talk {
            sequence: cache.sequence(name),
            keys: vec![Vec::new(); layers],
            values: vec![Vec::new(); layers],
        }
    }

    pub(super) fn fork(&self, name: &str) -> Talk {
        Talk {
            sequence: self.sequence.fork(name),
            keys: self.keys.clone(),
            values: self.values.clone(),
        }
    }

    pub(super) fn truncate(&mut self, len: usize, shape: Shape) -> Result<()> {
        self.sequence.truncate(len)?;
        for rows in self.keys.iter_mut().chain(&mut self.values) {
            rows.truncate(len * shape.kv_heads * shape.size);
        }
        Ok(())
    }
}

/// The world of a test: a device, a cache, and dice.
pub(super) struct World {
    pub(super) gpu: Gpu,
    pub(super) cache: KvCache,
    pub(super) shape: Shape,
    rng: Rng,
    /// The bits of all results so far.
    pub(super) bits: Vec<u32>,
}

impl World {
    pub(super) fn new(gpu: &Gpu, shape: Shape) -> World {
        World {
            gpu: gpu.clone(),
            cache: KvCache::new(gpu, shape.options()).expect("a cache"),
            shape,
            rng: Rng::with_seed(7),
            bits: Vec::new(),
        }
    }

    pub(super) fn talk(&self, name: &str) -> Talk {
        Talk::new(&self.cache, name)
    }

    /// Numbers that f16 holds exactly.
    pub(super) fn rows(&mut self, rows: usize, heads: usize) -> Vec<f32> {
        let len = rows * heads * self.shape.size;
        let number = |rng: &mut Rng| f16::from_f32(2.0 * rng.f32() - 1.0).to_f32();
        (0..len).map(|_| number(&mut self.rng)).collect()
    }

    pub(super) fn upload(&self, rows: &[f32], heads: usize) -> Tensor {
        let tokens = rows.len() / heads / self.shape.size;
        let tensor = self.gpu.tensor(rows, &[tokens, heads, self.shape.size]);
        tensor.expect("an upload")
    }

    /// A step of so many new tokens of each conversation, in all layers. Compares the results with
    /// the host's.
    pub(super) fn step(&mut self, talks: &mut [(&mut Talk, usize)], how: Attend) -> Result<()> {
        let shape = self.shape;
        let befores: Vec<usize> = talks.iter().map(|(talk, _)| talk.sequence.len()).collect();
        let counts: Vec<usize> = talks.iter().map(|(_, count)| *count).collect();
        let tokens: usize = counts.iter().sum();
        let cache = self.cache.clone();
        let (mut sequences, mut kept) = (Vec::new(), Vec::new());
        for (talk, count) in talks.iter_mut() {
            let Talk {
                sequence,
                keys,
                values,
            } = &mut **talk;
            sequences.push((sequence, *count));
            kept.push((keys, values));
        }
        let step = cache.step(sequences)?;
        assert_eq!(step.tokens(), tokens);
        let positions = (befores.iter().zip(&counts))
            .flat_map(|(&before, &count)| (before..before + count).map(|at| at as u32));
        let positions: Vec<u32> = positions.collect();
        assert_eq!(step.positions().to_vec::<u32>()?, positions);
        for layer in 0..shape.layers {
            let q = self.rows(tokens, shape.heads);
            let [k, v] = [0, 1].map(|_| self.rows(tokens, shape.kv_heads));
            let y = step.attend(
                layer,
                &self.upload(&q, shape.heads),
                &self.upload(&k, shape.kv_heads),
                &self.upload(&v, shape.kv_heads),
                how,
            )?;
            let y = y.to_vec::<f32>()?;
            self.bits.extend(y.iter().map(|y| y.to_bits()));
            let mut row = 0;
            for (index, (keys, values)) in kept.iter_mut().enumerate() {
                let width = shape.kv_heads * shape.size;
                let own = row * width..(row + counts[index]) * width;
                keys[layer].extend(&k[own.clone()]);
                values[layer].extend(&v[own]);
                for at in 0..counts[index] {
                    let width = shape.heads * shape.size;
                    let own = row * width..(row + 1) * width;
                    let expected = attention(
                        shape,
                        &q[own.clone()],
                        (&keys[layer], &values[layer]),
                        befores[index] + at,
                        how,
                    );
                    for (at, (got, expected)) in y[own].iter().zip(expected).enumerate() {
                        let apart = (f64::from(*got) - expected).abs();
                        assert!(
                            apart < shape.tolerance(),
                            "{shape:?}, layer {layer}, row {row}, element {at}: {got}, not \
                             {expected}"
                        );
                    }
                    row += 1;
                }
            }
        }
        step.finish();
        Ok(())
    }
}

/// A row of attention with the keys up to its position.
fn attention(
    shape: Shape,
    q: &[f32],
    (keys, values): (&[f32], &[f32]),
    position: usize,
    how: Attend,
) -> Vec<f64> {
    let Shape {
        heads,
        kv_heads,
        size,
        ..
    } = shape;
    let scale = f64::from(how.scale.unwrap_or(1.0 / (size as f32).sqrt()));
    let first = how
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let row = |rows: &[f32], key: usize, head: usize| -> Vec<f64> {
        let at = (key * kv_heads + head / (heads / kv_heads)) * size;
        rows[at..at + size].iter().map(|&x| f64::from(x)).collect()
    };
    let of_head = |head: usize| {
        let q = &q[head * size..][..size];
        let scores: Vec<f64> = (first..=position)
            .map(|key| {
                let products = row(keys, key, head);
                let products = products.iter().zip(q).map(|(k, q)| k * f64::from(*q));
                let score = products.sum::<f64>() * scale;
                match how.softcap.map(f64::from) {
                    Some(cap) => cap * (score / cap).tanh(),
                    None => score,
                }
            })
            .collect();
        let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - peak).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut y = vec![0.0; size];
        for (key, weight) in (first..).zip(&weights) {
            let value = row(values, key, head);
            for (y, v) in y.iter_mut().zip(value) {
                *y += weight / sum * v;
            }
        }
        y
    };
    (0..heads).flat_map(of_head).collect()
}
