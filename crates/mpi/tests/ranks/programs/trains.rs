//! Training over ranks gives what training on as many devices of one process gives, to the bit.

use lapidary::devices::{Group, Reduce, Replicas, ReplicasOptions, split};
use lapidary::optim::{AdamW, AdamWOptions};
use lapidary::{Gpu, Options, Tensor};
use lapidary_mpi::{Ranks, Replica, Result};

use super::collectives::bits;
use super::simulated as simulated_gpu;

const INPUTS: usize = 20;
const HIDDEN: usize = 33;
const ROWS: usize = 12;
const STEPS: u64 = 4;

/// Two layers, a parameter that nothing uses, and one that only some ranks use.
fn parameters(gpu: &Gpu, seed: usize) -> Result<Vec<Tensor>> {
    let normal = |shape: &[usize], salt: usize| -> lapidary::Result<Tensor> {
        let host: Vec<f32> = (0..shape.iter().product::<usize>())
            .map(|at| ((at * 37 + (salt + seed) * 11) % 101) as f32 / 101.0 - 0.5)
            .collect();
        gpu.tensor(&host, shape)
    };
    Ok(vec![
        normal(&[INPUTS, HIDDEN], 1)?.named("first"),
        normal(&[HIDDEN], 2)?,
        normal(&[HIDDEN, 1], 3)?.named("last"),
        normal(&[5], 4)?,
        normal(&[7], 5)?,
    ])
}

fn batch(gpu: &Gpu, step: u64) -> Result<Tensor> {
    let value = |at: usize| ((at as u64 * 29 + step * 13) % 89) as f32 / 89.0 - 0.4;
    let host: Vec<f32> = (0..ROWS * INPUTS).map(value).collect();
    Ok(gpu.tensor(&host, &[ROWS, INPUTS])?)
}

fn loss(parameters: &[Tensor], x: &Tensor, index: usize) -> lapidary::Result<Tensor> {
    let [first, bias, last, _, of_some] = parameters else {
        unreachable!("five parameters");
    };
    let hidden = (x.matmul(first)? + bias)?.gelu()?;
    let targets = x.sum(&[1])?.unsqueeze(1)?;
    let loss = (hidden.matmul(last)? - targets)?.square()?.mean_all()?;
    match index % 2 {
        1 => loss + of_some.square()?.mean_all()?,
        _ => Ok(loss),
    }
}

fn adam_options() -> AdamWOptions {
    AdamWOptions {
        lr: 0.05,
        ..Default::default()
    }
}

/// The bits of the parameters after some steps, and those of all losses.
type Trained = (Vec<Vec<u32>>, Vec<u32>);

fn on_devices(gpus: &[Gpu], options: ReplicasOptions) -> Result<Trained> {
    let first = parameters(&gpus[0], 0)?;
    let all: Vec<&Tensor> = first.iter().collect();
    let mut replicas = Replicas::new(&Group::new(gpus)?, &all, options)?;
    let mut adams = replicas.each(|own| AdamW::new(own, adam_options()))?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let parts = split(&batch(&gpus[0], step)?, 0, gpus)?;
        let of_step = replicas.step(&mut adams, |own| {
            loss(own.parameters(), &parts[own.index()], own.index())
        })?;
        losses.extend(of_step.iter().flat_map(bits));
    }
    let trained = replicas.parameters(0).expect("there is one");
    Ok((trained.iter().map(bits).collect(), losses))
}

fn on_ranks(ranks: &Ranks, gpu: &Gpu, options: ReplicasOptions) -> Result<Trained> {
    // Rank 0 has the values that count.
    let first = parameters(gpu, ranks.rank())?;
    let all: Vec<&Tensor> = first.iter().collect();
    let mut replica = Replica::new(ranks, &all, options)?;
    let own: Vec<&Tensor> = replica.parameters().iter().collect();
    let mut adam = AdamW::new(&own, adam_options())?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let parts = batch(gpu, step)?.chunk(ranks.count(), 0)?;
        let index = ranks.rank();
        let own = replica.step(&mut adam, |own| loss(own, &parts[index], index))?;
        let of_all = ranks.all_gather(&own.reshape(&[1])?, 0)?;
        losses.extend(bits(&of_all));
    }
    Ok((replica.parameters().iter().map(bits).collect(), losses))
}

/// With buckets of a gradient, of some and of all.
fn check(ranks: &Ranks, gpus: &[Gpu], gpu: &Gpu) -> Result<()> {
    for (bucket_bytes, reduce) in [
        (1, Reduce::Sum),
        (200, Reduce::Mean),
        (u64::MAX, Reduce::Mean),
    ] {
        let options = ReplicasOptions {
            bucket_bytes,
            reduce,
        };
        let (expected, expected_losses) = on_devices(gpus, options)?;
        let (got, losses) = on_ranks(ranks, gpu, options)?;
        assert_eq!(losses, expected_losses, "{options:?}");
        assert!(got == expected, "{options:?}");
    }
    Ok(())
}

pub(crate) fn simulated(ranks: &Ranks) -> Result<()> {
    let gpus: Vec<Gpu> = (0..ranks.count()).map(simulated_gpu).collect();
    check(ranks, &gpus, &simulated_gpu(ranks.rank()))
}

pub(crate) fn on_adapter(ranks: &Ranks) -> Result<()> {
    let gpu = ranks.open(Options::from_env()?)?;
    let gpus = (0..ranks.count()).map(|_| ranks.open(Options::from_env().unwrap()));
    check(ranks, &gpus.collect::<Result<Vec<_>>>()?, &gpu)
}
