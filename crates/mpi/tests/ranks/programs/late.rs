//! Ranks whose backward hangs while they answer the others.

use std::thread;
use std::time::Duration;

use lapidary::devices::ReplicasOptions;
use lapidary_mpi::{Ranks, Replica, Result};

use super::bad::{LONG, ones};
use super::simulated;

/// Rank 1 hangs in its loss. Rank 2 comes to the call late, so only rank 0 waits for all of the
/// time-out.
pub(crate) fn hangs_in_backward(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    let w = ones(gpu, &[64])?;
    let mut replica = Replica::new(ranks, &[&w], Default::default())?;
    let time = [Duration::ZERO, LONG, Duration::from_secs(2)][ranks.rank()];
    replica.backward(|own| {
        thread::sleep(time);
        own[0].sum_all()
    })?;
    Ok(())
}

/// Rank 1 hangs behind its first bucket, so that all others wait for its second.
pub(crate) fn hangs_between_buckets(ranks: &Ranks) -> Result<()> {
    let gpu = &simulated(ranks.rank());
    let (first, last) = (ones(gpu, &[8])?.requires_grad()?, ones(gpu, &[4])?);
    if ranks.rank() == 1 {
        first.on_gradient(|gradient| {
            thread::sleep(LONG);
            Ok(gradient.clone())
        })?;
    }
    let options = ReplicasOptions {
        bucket_bytes: 1,
        ..Default::default()
    };
    let mut replica = Replica::new(ranks, &[&first, &last], options)?;
    replica.backward(|own| own[0].sum_all()? + own[1].sum_all()?)?;
    Ok(())
}
