//! A backward on all devices at once, each on a thread of its own.

use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use lapidary_core::internal::{Filling, MadeFor};
use lapidary_core::{Error, Result};

use super::{Backward, Replica, Replicas};
use crate::devices::exchange::{Column, exchange};
use crate::devices::round::Round;
use crate::grad::Gradients;
use crate::tensor::Tensor;

/// What a device made of its part.
type Done = (Tensor, Gradients, Duration);

/// A parameter's gradient, for each device.
type Reduced = (usize, Vec<Tensor>);

/// Memory for the gradients of each parameter, by device.
type Room = Vec<Vec<(usize, Filling)>>;

impl Replicas {
    /// Computes a value on each device and goes backward from it, on all devices at once. The
    /// gradients are reduced bucket by bucket while the backward goes on.
    ///
    /// A parameter on which no value depends has no gradient. If some of the values do not depend
    /// on it, they add nothing.
    ///
    /// ```no_run
    /// # use lapidary::Tensor;
    /// # use lapidary::devices::Replicas;
    /// # use lapidary::optim::AdamW;
    /// # fn demo(replicas: &mut Replicas, adams: &mut [AdamW], parts: &[Tensor])
    /// # -> lapidary::Result<()> {
    /// let mut backward = replicas.backward(|own| {
    ///     parts[own.index()].matmul(&own.parameters()[0])?.square()?.mean_all()
    /// })?;
    /// for (adam, gradients) in adams.iter_mut().zip(&mut backward.gradients) {
    ///     gradients.clip_global_norm(1.0)?;
    ///     adam.step(gradients)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`] names the device whose function, backward or reduction failed: the first
    /// one in the group's order. There are no gradients then, and the parameters are as they were.
    /// [`Error::DryRunRead`] in a dry run of a device; dry-run the function of one device instead.
    /// [`Error::Option`] if the system starts no more threads. A panic of the function reaches the
    /// caller.
    #[track_caller]
    pub fn backward(
        &mut self,
        loss_of: impl Fn(Replica<'_>) -> Result<Tensor> + Sync,
    ) -> Result<Backward> {
        let count = self.group.len();
        // On a thread nobody knows the caller.
        let caller = MadeFor::or(Location::caller());
        for gpu in self.group.gpus() {
            // The threads of the devices would compute.
            gpu.engine().here().check_has_values()?;
        }
        let round = Round::new(&self.buckets, count);
        let room = self.room()?;
        let _current = self.current.begin(&round);
        let (done, reduced) = scope(|scope| {
            let mut threads = Vec::with_capacity(count);
            for device in 0..count {
                let (this, round, loss_of) = (&*self, &round, &loss_of);
                let thread = Builder::new().name(format!("lapidary device {device}"));
                let work = move || this.run(device, round, loss_of, caller);
                match thread.spawn_scoped(scope, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        round.cancel();
                        join(threads);
                        return Err(Error::Option {
                            option: "gpus",
                            reason: format!("the system starts no thread for each: {error}"),
                        });
                    }
                }
            }
            let reduced = self.reduce_all(&round, room);
            if reduced.is_err() {
                round.cancel();
            }
            Ok((join(threads), reduced))
        })?;
        let mut backward = Backward {
            losses: Vec::with_capacity(count),
            gradients: Vec::with_capacity(count),
            times: Vec::with_capacity(count),
        };
        for (device, done) in done.into_iter().enumerate() {
            let (loss, gradients, time) = done.map_err(|error| self.group.named(device, error))?;
            backward.losses.push(loss);
            backward.gradients.push(gradients);
            backward.times.push(time);
        }
        for (parameter, of_devices) in reduced? {
            for (device, gradient) in of_devices.into_iter().enumerate() {
                let own = &self.parameters[device][parameter];
                backward.gradients[device].set(own, gradient);
            }
        }
        Ok(backward)
    }

    /// Memory for the reduced gradients. Their tags name the caller.
    #[track_caller]
    fn room(&self) -> Result<Room> {
        let mut room = Vec::new();
        if self.group.len() == 1 {
            return Ok(room);
        }
        for parameter in &self.parameters[0] {
            let mut fillings = Vec::with_capacity(self.group.len());
            for device in 0..self.group.len() {
                let filling = self.group.new_filling(device, parameter.size_bytes())?;
                fillings.push((device, filling));
            }
            room.push(fillings);
        }
        Ok(room)
    }

    /// The part of one device. `caller` is the line that asked for the backward.
    fn run(
        &self,
        device: usize,
        round: &Arc<Round>,
        loss_of: &(impl Fn(Replica<'_>) -> Result<Tensor> + Sync),
        caller: &'static Location<'static>,
    ) -> Result<Done> {
        let mut end = CancelUnlessDone {
            round,
            is_done: false,
        };
        let replica = Replica {
            index: device,
            gpu: &self.group.gpus()[device],
            parameters: &self.parameters[device],
        };
        let start = Instant::now();
        let loss = loss_of(replica)?;
        round.begin_backward(device);
        let gradients = {
            let _line = MadeFor::line(caller);
            loss.backward()?
        };
        round.end_backward(device);
        replica.gpu.finish()?;
        end.is_done = true;
        Ok((loss.detach(), gradients, start.elapsed()))
    }

    /// Reduces the buckets, one after the other, as soon as all devices have their gradients.
    fn reduce_all(&self, round: &Round, mut room: Room) -> Result<Vec<Reduced>> {
        let mut all = Vec::new();
        if self.group.len() == 1 {
            return Ok(all);
        }
        let divisor = self.reduce.divisor(self.group.len());
        for (bucket, parameters) in self.buckets.all().iter().enumerate() {
            let Some(gradients) = round.wait_for(bucket) else {
                break;
            };
            let mut columns = Vec::with_capacity(parameters.len());
            for (parameter, from) in parameters.iter().zip(gradients) {
                columns.push(Column::with(from, std::mem::take(&mut room[*parameter])));
            }
            let reduced = exchange(&self.group, columns, divisor)?;
            all.extend(parameters.iter().copied().zip(reduced));
        }
        Ok(all)
    }
}

/// Lets no other device wait for one that failed or panicked.
struct CancelUnlessDone<'a> {
    round: &'a Round,
    is_done: bool,
}

impl Drop for CancelUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.round.cancel();
        }
    }
}

/// Waits for all threads. The first panic goes on here.
fn join<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    let ended = ended.into_iter();
    ended
        .map(|one| one.unwrap_or_else(|panic| resume_unwind(panic)))
        .collect()
}
