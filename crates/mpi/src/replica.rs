//! A model on all ranks, each with a part of the batch.

use std::panic::{Location, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use lapidary::devices::ReplicasOptions;
use lapidary::devices::internal::{self, Buckets};
use lapidary::grad::Gradients;
use lapidary::optim::Optimizer;
use lapidary::{DType, Result as OfDevice, Tensor};
use lapidary_core::internal::{Filling, MadeFor, Pieces};

use crate::checked::{kind, room};
use crate::error::{Error, Result};
use crate::exchange::{Column, sum};
use crate::flight::Flight;
use crate::mailbox::{Letter, Mailbox};
use crate::place::Doing;
use crate::ranks::Ranks;

/// How often a rank that waits for its own backward looks for notes of the others.
const LOOK_TIME: Duration = Duration::from_millis(10);

/// The parameters of a model on this rank, equal to the bit on all ranks. PyTorch's
/// `DistributedDataParallel`.
///
/// ```no_run
/// # use lapidary::optim::{AdamW, AdamWOptions};
/// # use lapidary::{DType, Options, Tensor};
/// # use lapidary_mpi::{Ranks, Replica, Result};
/// # fn program(ranks: &Ranks) -> Result<()> {
/// let gpu = ranks.open(Options::default())?;
/// let w = gpu.zeros(&[64, 1], DType::F32)?;
/// let mut replica = Replica::new(ranks, &[&w], Default::default())?;
/// let own: Vec<&Tensor> = replica.parameters().iter().collect();
/// let mut adam = AdamW::new(&own, AdamWOptions::default())?;
/// for step in 0..100 {
///     // Each rank has rows of its own.
///     let seed = (step * ranks.count() + ranks.rank()) as u64;
///     let x = gpu.rand_normal(&[256, 64], 0.0, 1.0, seed, DType::F32)?;
///     let loss = replica.step(&mut adam, |own| x.matmul(&own[0])?.square()?.mean_all())?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// The forward and the backward run on a thread of their own. As soon as all ranks have the
/// gradients of a bucket, the calling thread reduces them, while the backward goes on. The sums are
/// those of [`Replicas`](lapidary::devices::Replicas) over as many devices, to the bit.
///
/// Replicas are counted from 1, in the order in which all ranks make them. Errors have this number.
/// If ranks call different replicas, each gets [`Error::Differs`], also if the shapes are equal.
///
/// The parameters stay equal as long as all ranks make the same changes. On devices of different
/// makers the last bits of the kernels differ; then call [`copy_from`](Self::copy_from) now and
/// then.
#[derive(Debug)]
pub struct Replica<'a> {
    ranks: &'a Ranks,
    /// Counted from 1, on all ranks in the same order. Ranks compare it before bytes move.
    number: u64,
    parameters: Vec<Tensor>,
    buckets: Buckets,
    mailbox: Arc<Mailbox>,
    options: ReplicasOptions,
}

/// What [`Replica::backward`] gives.
#[derive(Debug)]
pub struct Backward {
    /// The value of this rank that went backward, without its history.
    pub loss: Tensor,
    /// The reduced gradients: the same bits on all ranks.
    pub gradients: Gradients,
}

/// The gradients that this rank has made, by parameter.
type Made = Vec<Option<Pieces>>;

/// Sums by parameter.
type Reduced = Vec<(usize, Tensor)>;

impl<'a> Replica<'a> {
    /// Marks the parameters by [`requires_grad`](Tensor::requires_grad), and gives them the values
    /// that they have on rank 0. All ranks give parameters of the same shapes and types, in the
    /// same order. Functions of [`Tensor::on_gradient`] that they have already see the gradients of
    /// this rank. A backward of the replica does not call functions that they get later.
    ///
    /// # Errors
    /// [`Error::Differs`] for other parameters or options on another rank. [`Error::Lapidary`] for
    /// no parameters or buckets of 0 bytes, and for those of [`Tensor::requires_grad`]; else as
    /// [`Ranks::broadcast`].
    #[track_caller]
    pub fn new(
        ranks: &'a Ranks,
        parameters: &[&Tensor],
        options: ReplicasOptions,
    ) -> Result<Replica<'a>> {
        const OPERATION: &str = "Replica::new";
        let mailbox = Arc::new(Mailbox::default());
        let checked = marked(ranks, parameters, options, &mailbox);
        let call = |(parameters, _): &(Vec<Tensor>, Buckets)| {
            let kinds: Vec<String> = parameters.iter().map(kind).collect();
            let kinds = kinds.join(", ");
            let (count, options) = (parameters.len(), format!("{options:?}"));
            let call = format!("{OPERATION} of {count} parameters, {options}: {kinds}");
            (call, 0)
        };
        let ((parameters, buckets), _) = ranks.agree_if(OPERATION, checked, call)?;
        let mut replica = Replica {
            ranks,
            number: ranks.count_replica(),
            parameters,
            buckets,
            mailbox,
            options,
        };
        replica.copy_from(0)?;
        Ok(replica)
    }

    /// The parameters, in the order of [`new`](Self::new).
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// Copies the parameters of a rank to all others, in place. After a checkpoint was loaded on
    /// one rank, or between devices whose results differ in the last bits.
    ///
    /// # Errors
    /// As [`Ranks::broadcast`].
    #[track_caller]
    pub fn copy_from(&mut self, rank: usize) -> Result<()> {
        for (number, parameter) in self.parameters.iter().enumerate() {
            let (number, count) = (number + 1, self.parameters.len());
            let what = format!(", parameter {number} of {count} of replica {}", self.number);
            let copy = self.ranks.broadcast_as(&what, rank, &parameter.detach())?;
            if rank != self.ranks.rank() {
                internal::overwrite(parameter, &copy)?;
            }
        }
        Ok(())
    }

    /// A [`backward`](Self::backward), and then a step of the optimizer. Returns this rank's loss.
    /// To clip gradients first, call both yourself.
    ///
    /// # Errors
    /// Those of [`backward`](Self::backward), and of the optimizer.
    #[track_caller]
    pub fn step<O>(
        &mut self,
        optimizer: &mut Optimizer<O>,
        loss_of: impl FnOnce(&[Tensor]) -> OfDevice<Tensor> + Send,
    ) -> Result<Tensor> {
        let backward = self.backward(loss_of)?;
        optimizer.step(&backward.gradients)?;
        Ok(backward.loss)
    }

    /// Computes a value and goes backward from it, on all ranks at once. The gradients are reduced
    /// bucket by bucket while the backward goes on.
    ///
    /// A parameter on which the value of no rank depends has no gradient. Ranks whose values do not
    /// depend on it add nothing.
    ///
    /// # Errors
    /// If the function or its backward fails on a rank, that rank has its [`Error::Lapidary`] and
    /// the others [`Error::Failed`]. There are no gradients then, and the next backward may go
    /// well. Else as [`Ranks::all_reduce`]. A panic of the function reaches the caller. On several
    /// ranks a dry run is a [`DryRunRead`](lapidary::Error::DryRunRead): dry-run the function
    /// alone.
    #[track_caller]
    pub fn backward(
        &mut self,
        loss_of: impl FnOnce(&[Tensor]) -> OfDevice<Tensor> + Send,
    ) -> Result<Backward> {
        let (parameters, mailbox) = (&self.parameters[..], &self.mailbox);
        // On a thread nobody knows the caller.
        let caller = MadeFor::or(Location::caller());
        if self.ranks.count() == 1 {
            return Ok(own_backward(parameters, loss_of, || (), caller)?);
        }
        let columns = match columns(parameters) {
            Ok(columns) => columns,
            // The others hear of it.
            Err(error) => return self.together(Ok(None), Err(error)),
        };
        let (sender, letters) = channel();
        let (reduced, own) = scope(|scope| {
            let work = move || {
                let done = sender.clone();
                let _closed = mailbox.closed_at_the_end();
                let open = || mailbox.open(sender);
                let backward = own_backward(parameters, loss_of, open, caller)?;
                // Nobody listens after an error of the reduction.
                let _ = done.send(Letter::Done);
                Ok(backward)
            };
            let thread = Builder::new().name("lapidary backward".into());
            let thread = thread.spawn_scoped(scope, work).map_err(|error| {
                let reason = format!("the system starts no thread: {error}");
                let operation = "Replica::backward";
                Error::Argument { operation, reason }
            });
            let reduced = match &thread {
                Ok(_) => self.reduce_all(&letters, columns),
                Err(_) => Ok(None),
            };
            drop(letters);
            let own =
                thread.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (reduced, own)
        });
        self.together(reduced, own)
    }

    /// What came of a backward, if all ranks have come to its end.
    fn together(
        &self,
        reduced: Result<Option<Reduced>>,
        own: Result<OfDevice<Backward>>,
    ) -> Result<Backward> {
        let reduced = reduced?;
        let own = own.and_then(|own| Ok(own?));
        let call = |_: &Backward| {
            let call = format!("the end of a backward of replica {}", self.number);
            (call, 0)
        };
        let (mut backward, _) = self.ranks.agree_if("Replica::backward", own, call)?;
        for (parameter, gradient) in reduced.into_iter().flatten() {
            let parameter = &self.parameters[parameter];
            internal::set_gradient(&mut backward.gradients, parameter, gradient);
        }
        Ok(backward)
    }

    /// Reduces the buckets one after the other, as soon as this rank has their gradients. `None` if
    /// its backward has failed before; the other ranks do not know yet.
    fn reduce_all(
        &self,
        letters: &Receiver<Letter>,
        mut room: Vec<Option<Filling>>,
    ) -> Result<Option<Reduced>> {
        let mut made: Made = self.parameters.iter().map(|_| None).collect();
        let (mut is_done, mut all) = (false, Vec::new());
        let buckets = self.buckets.all();
        let (start, own) = (
            Instant::now(),
            format!("a backward of replica {}", self.number),
        );
        for (number, bucket) in buckets.iter().enumerate() {
            while !is_done && bucket.iter().any(|parameter| made[*parameter].is_none()) {
                match letters.recv_timeout(LOOK_TIME) {
                    Ok(Letter::Gradient(parameter, pieces)) => made[parameter] = Some(pieces),
                    Ok(Letter::Done) => is_done = true,
                    Err(RecvTimeoutError::Timeout) => {
                        let doing = Doing::Computes(&own, start);
                        self.ranks.unbroken(self.ranks.check_notes(doing))?;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Ok(None),
                }
            }
            let call = self.bucket_named(number, bucket);
            let has = |parameter: &usize| made[*parameter].is_some();
            let has: Vec<bool> = bucket.iter().map(has).collect();
            let count = has.iter().filter(|has| **has).count();
            let counts = self.ranks.agree(&call, count as u64)?;
            let reduced = self.reduce(&call, bucket, &has, &counts, &mut made, &mut room);
            all.extend(self.ranks.unbroken(reduced)?);
        }
        Ok(Some(all))
    }

    /// A bucket as ranks compare it. Those that mixed up two replicas reduce different gradients.
    fn bucket_named(&self, number: usize, bucket: &[usize]) -> String {
        let mut kinds: Vec<(DType, usize)> = Vec::new();
        for parameter in bucket {
            let parameter = &self.parameters[*parameter];
            let (dtype, elements) = (parameter.dtype(), parameter.len());
            match kinds.iter_mut().find(|(known, _)| *known == dtype) {
                Some((_, sum)) => *sum += elements,
                None => kinds.push((dtype, elements)),
            }
        }
        let kinds = kinds.iter();
        let kinds = kinds.map(|(dtype, elements)| format!("{elements} elements of {dtype}"));
        format!(
            "bucket {} of {} of a backward of replica {} ({})",
            number + 1,
            self.buckets.all().len(),
            self.number,
            kinds.collect::<Vec<_>>().join(", ")
        )
    }

    /// Reduces a bucket. `counts` are the gradients that each rank has.
    fn reduce(
        &self,
        call: &str,
        bucket: &[usize],
        has: &[bool],
        counts: &[u64],
        made: &mut Made,
        room: &mut [Option<Filling>],
    ) -> Result<Reduced> {
        let summands = self.summands(call, has, counts)?;
        let (mut columns, mut numbers) = (Vec::new(), Vec::new());
        for (parameter, summands) in bucket.iter().zip(summands) {
            let to = room[*parameter].take();
            let Some(to) = to.filter(|_| summands.contains(&true)) else {
                continue;
            };
            let like = &self.parameters[*parameter];
            numbers.push(*parameter);
            columns.push(Column {
                dtype: like.dtype(),
                size_bytes: like.size_bytes(),
                from: made[*parameter].take(),
                summands,
                to,
            });
        }
        let divisor = self.ranks.divisor(self.options.reduce);
        let sums = sum(self.ranks, call, columns, divisor)?;
        let made = numbers.into_iter().zip(sums).map(|(parameter, filled)| {
            let like = &self.parameters[parameter];
            let tensor = internal::tensor(filled, like.shape(), like.dtype());
            (parameter, tensor)
        });
        Ok(made.collect())
    }

    /// Which ranks have a gradient, for each parameter of a bucket.
    fn summands(&self, call: &str, has: &[bool], counts: &[u64]) -> Result<Vec<Rc<[bool]>>> {
        let count = self.ranks.count();
        if counts.iter().all(|count| *count == has.len() as u64) {
            let all: Rc<[bool]> = Rc::from(vec![true; count]);
            return Ok(vec![all; has.len()]);
        }
        let own = has.iter().map(|has| u8::from(*has)).collect();
        let mut flight = Flight::all_gather(self.ranks.comm(), count, own)?;
        self.ranks.wait(call, &mut flight)?;
        let (_, of_ranks) = flight.end();
        let of_parameter = |parameter: usize| {
            let of_ranks = of_ranks.chunks(has.len());
            of_ranks.map(|of_rank| of_rank[parameter] == 1).collect()
        };
        Ok((0..has.len()).map(of_parameter).collect())
    }
}

/// Memory for the reduced gradients of all parameters.
#[track_caller]
fn columns(parameters: &[Tensor]) -> Result<Vec<Option<Filling>>> {
    // In a dry run the thread would compute.
    internal::check_reads(&parameters[0])?;
    let mut columns = Vec::with_capacity(parameters.len());
    for parameter in parameters {
        columns.push(Some(room(parameter, parameter.size_bytes())?));
    }
    Ok(columns)
}

/// The parameters, marked and with hooks, and their buckets.
#[track_caller]
fn marked(
    ranks: &Ranks,
    parameters: &[&Tensor],
    options: ReplicasOptions,
    mailbox: &Arc<Mailbox>,
) -> Result<(Vec<Tensor>, Buckets)> {
    if parameters.is_empty() {
        return Err(Error::Argument {
            operation: "Replica::new",
            reason: "the list of parameters is empty, so there is nothing to train".into(),
        });
    }
    let sizes_bytes: Vec<u64> = parameters.iter().map(|one| one.size_bytes()).collect();
    let buckets = Buckets::new(&sizes_bytes, options.bucket_bytes)?;
    let mut marked = Vec::with_capacity(parameters.len());
    for (number, &parameter) in parameters.iter().enumerate() {
        let parameter = parameter.clone().requires_grad()?;
        if ranks.count() > 1 {
            let mailbox = mailbox.clone();
            internal::take_gradient(&parameter, move |gradient| mailbox.take(number, gradient))?;
        }
        marked.push(parameter);
    }
    Ok((marked, buckets))
}

/// A forward and a backward on this thread. `between` is called between them. `caller` is the line
/// that asked for them.
fn own_backward(
    parameters: &[Tensor],
    loss_of: impl FnOnce(&[Tensor]) -> OfDevice<Tensor>,
    between: impl FnOnce(),
    caller: &'static Location<'static>,
) -> OfDevice<Backward> {
    let loss = loss_of(parameters)?;
    between();
    let _line = MadeFor::line(caller);
    Ok(Backward {
        gradients: loss.backward()?,
        loss: loss.detach(),
    })
}
