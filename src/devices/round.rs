//! One backward on all devices: the gradients that have been made so far.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lapidary_core::{Error, Result};

use super::buckets::Buckets;
use super::exchange::Outgoing;
use crate::tensor::Tensor;

/// The round that the hooks of the parameters hand their gradients to, if there is one.
#[derive(Debug, Default)]
pub(super) struct Current(Mutex<Option<Arc<Round>>>);

impl Current {
    /// Begins a round, until the guard is dropped.
    pub(super) fn begin(&self, round: &Arc<Round>) -> CurrentGuard<'_> {
        *lock(&self.0) = Some(round.clone());
        CurrentGuard(self)
    }

    /// The hook of a parameter: the round takes its gradient, which is freed when it has been
    /// reduced.
    pub(super) fn hand_over(
        &self,
        device: usize,
        parameter: usize,
        grad: &Tensor,
    ) -> Result<Option<Tensor>> {
        let round = lock(&self.0).clone();
        match round {
            Some(round) if round.takes_from(device) => {
                // Read now, before the rest of the backward: a device works in order.
                let outgoing = Outgoing::new(device, &grad.untracked().contiguous()?)?.queued()?;
                round.deliver(device, parameter, outgoing)?;
                Ok(None)
            }
            _ => Ok(Some(grad.clone())),
        }
    }
}

pub(super) struct CurrentGuard<'a>(&'a Current);

impl Drop for CurrentGuard<'_> {
    fn drop(&mut self) {
        let round = lock(&self.0.0).take();
        drop(round);
    }
}

/// How far the backward of a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Done,
}

#[derive(Debug)]
pub(super) struct Round {
    buckets: Arc<Buckets>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    phases: Vec<Phase>,
    /// The gradients of each device, by parameter, until their bucket is reduced.
    gradients: Vec<Vec<Option<Outgoing>>>,
    /// Whether each device has handed a gradient over, by parameter.
    delivered: Vec<Vec<bool>>,
    /// The gradients that each device lacks, by bucket.
    missing: Vec<Vec<usize>>,
    is_cancelled: bool,
}

impl Round {
    pub(super) fn new(buckets: &Arc<Buckets>, devices: usize) -> Arc<Self> {
        let sizes: Vec<usize> = buckets.all().iter().map(Vec::len).collect();
        let empty = || (0..sizes.iter().sum()).map(|_| None).collect();
        let state = State {
            phases: vec![Phase::Forward; devices],
            gradients: (0..devices).map(|_| empty()).collect(),
            delivered: vec![vec![false; sizes.iter().sum()]; devices],
            missing: vec![sizes.clone(); devices],
            is_cancelled: false,
        };
        Arc::new(Round {
            buckets: buckets.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// The backward of a device begins. A backward within its forward pass hands nothing over.
    pub(super) fn begin_backward(&self, device: usize) {
        lock(&self.state).phases[device] = Phase::Backward;
    }

    /// The device has handed over all gradients that it makes.
    pub(super) fn end_backward(&self, device: usize) {
        lock(&self.state).phases[device] = Phase::Done;
        self.changed.notify_all();
    }

    /// No more gradients are reduced.
    pub(super) fn cancel(&self) {
        lock(&self.state).is_cancelled = true;
        self.changed.notify_all();
    }

    fn takes_from(&self, device: usize) -> bool {
        lock(&self.state).phases[device] == Phase::Backward
    }

    fn deliver(&self, device: usize, parameter: usize, grad: Outgoing) -> Result<()> {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.delivered[device][parameter], true) {
            return Err(Error::Gradient {
                operation: "Replicas::backward",
                reason: format!(
                    "parameter {parameter} got two gradients on device {device}: run no other \
                     backward of the replicas meanwhile"
                ),
            });
        }
        state.gradients[device][parameter] = Some(grad);
        let missing = &mut state.missing[device][self.buckets.of(parameter)];
        *missing -= 1;
        if *missing == 0 {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until all devices have handed a bucket over. Returns the gradients of each of its
    /// parameters, in the order of the devices; a device may have none. `None` if the round was
    /// cancelled.
    pub(super) fn wait_for(&self, bucket: usize) -> Option<Vec<Vec<Outgoing>>> {
        let mut state = lock(&self.state);
        while !state.is_cancelled && !state.has(bucket) {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_cancelled {
            return None;
        }
        let mut take = |parameter: &usize| {
            let devices = state.gradients.iter_mut();
            devices.filter_map(|own| own[*parameter].take()).collect()
        };
        Some(self.buckets.all()[bucket].iter().map(&mut take).collect())
    }
}

impl State {
    fn has(&self, bucket: usize) -> bool {
        let mut devices = self.phases.iter().zip(&self.missing);
        devices.all(|(phase, missing)| *phase == Phase::Done || missing[bucket] == 0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;

    #[test]
    fn a_second_gradient_is_refused_also_when_the_first_was_reduced() {
        let (gpu, _) = Gpu::simulated(Default::default()).unwrap();
        let buckets = Arc::new(Buckets::new(&[4, 4], 4).unwrap());
        let round = Round::new(&buckets, 1);
        let grad = || {
            let tensor = gpu.tensor(&[1.0_f32], &[1]).unwrap();
            Outgoing::new(0, &tensor).unwrap()
        };
        round.begin_backward(0);
        round.deliver(0, 1, grad()).unwrap();
        assert!(round.deliver(0, 1, grad()).is_err());
        assert_eq!(round.wait_for(0).unwrap()[0].len(), 1);
        let again = round.deliver(0, 1, grad()).unwrap_err();
        assert!(matches!(again, Error::Gradient { .. }), "{again}");
    }
}
