//! A model on several devices, each with a part of the batch.

mod run;

use std::sync::Arc;
use std::time::Duration;

use lapidary_core::{Error, Result};

use super::buckets::Buckets;
use super::group::{Group, Reduce};
use super::round::Current;
use crate::gpu::Gpu;
use crate::grad::Gradients;
use crate::optim::Optimizer;
use crate::tensor::Tensor;
use crate::tensor::history::Paused;

/// Options of [`Replicas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicasOptions {
    /// Gradients travel together when they have this many bytes. Smaller buckets leave earlier,
    /// larger ones need fewer submissions.
    pub bucket_bytes: u64,
    /// What becomes of the gradients of a parameter. With losses that are means over equal parts of
    /// a batch, their mean is the gradient of the whole. If the parts have different sizes, divide
    /// each sum of losses by the size of the whole batch, and take the sum.
    pub reduce: Reduce,
}

impl Default for ReplicasOptions {
    fn default() -> Self {
        ReplicasOptions {
            bucket_bytes: 4 << 20,
            reduce: Reduce::Mean,
        }
    }
}

/// The parameters of a model on each device of a group, equal to the bit. PyTorch's
/// `DistributedDataParallel`, within one process.
///
/// ```no_run
/// # fn main() -> lapidary::Result<()> {
/// use lapidary::devices::{Group, Replicas, split};
/// use lapidary::optim::{AdamW, AdamWOptions};
/// use lapidary::{DType, Gpu, Options};
///
/// let gpus = Gpu::open_all(Options::default())?;
/// let w = gpus[0].zeros(&[64, 1], DType::F32)?;
/// let mut replicas = Replicas::new(&Group::new(&gpus)?, &[&w], Default::default())?;
/// let mut adams = replicas.each(|own| AdamW::new(own, AdamWOptions::default()))?;
/// for step in 0..100 {
///     let batch = gpus[0].rand_normal(&[256, 64], 0.0, 1.0, step, DType::F32)?;
///     let parts = split(&batch, 0, &gpus)?;
///     let losses = replicas.step(&mut adams, |own| {
///         let x = &parts[own.index()];
///         x.matmul(&own.parameters()[0])?.square()?.mean_all()
///     })?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// Each device runs the function on a thread of its own. As soon as all devices have the gradients
/// of a bucket, the calling thread reduces them, while the backward goes on.
///
/// The parameters stay equal as long as every device gets the same changes. An optimizer computes
/// the same bits on devices of one kind. On devices of different makers the last bits may differ;
/// then call [`copy_from`](Replicas::copy_from) now and then.
#[derive(Debug)]
pub struct Replicas {
    group: Group,
    /// The parameters of each device.
    parameters: Vec<Vec<Tensor>>,
    buckets: Arc<Buckets>,
    current: Arc<Current>,
    reduce: Reduce,
}

/// What the function of [`Replicas::backward`] gets: one device and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    index: usize,
    gpu: &'a Gpu,
    parameters: &'a [Tensor],
}

impl<'a> Replica<'a> {
    /// The number of the device in the group.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The device.
    pub fn gpu(&self) -> &'a Gpu {
        self.gpu
    }

    /// The parameters on this device, in the order of [`Replicas::new`].
    pub fn parameters(&self) -> &'a [Tensor] {
        self.parameters
    }
}

/// What [`Replicas::backward`] gives, by device.
#[derive(Debug)]
pub struct Backward {
    /// The values that went backward, without their history.
    pub losses: Vec<Tensor>,
    /// The reduced gradients: the same bits on each device, for its own parameters.
    pub gradients: Vec<Gradients>,
    /// How long each device took for its part, without the reduction: see
    /// [`Balance`](super::Balance).
    pub times: Vec<Duration>,
}

impl Replicas {
    /// Copies the parameters to each device of the group, and marks them by
    /// [`requires_grad`](Tensor::requires_grad). They may be on any device. The replica on their
    /// own device is the tensors themselves. Functions of [`Tensor::on_gradient`] that they have
    /// already see the gradients of their own device. A backward of the replicas does not call
    /// functions that they get later.
    ///
    /// # Errors
    /// [`Error::Option`] for no parameters or for buckets of 0 bytes. [`Error::Device`] names the
    /// device where something failed; else as [`Tensor::requires_grad`] and [`Tensor::to`].
    #[track_caller]
    pub fn new(
        group: &Group,
        parameters: &[&Tensor],
        options: ReplicasOptions,
    ) -> Result<Replicas> {
        if parameters.is_empty() {
            return Err(Error::Option {
                option: "parameters",
                reason: "the list is empty, so there is nothing to train".into(),
            });
        }
        let sizes_bytes: Vec<u64> = parameters.iter().map(|one| one.size_bytes()).collect();
        let buckets = Buckets::new(&sizes_bytes, options.bucket_bytes)?;
        let mut replicas = Replicas {
            group: group.clone(),
            parameters: Vec::with_capacity(group.len()),
            buckets: Arc::new(buckets),
            current: Arc::default(),
            reduce: options.reduce,
        };
        for device in 0..group.len() {
            match replicas.copies(device, parameters) {
                Ok(copies) => replicas.parameters.push(copies),
                Err(error) => return Err(group.named(device, error)),
            }
        }
        Ok(replicas)
    }

    /// The parameters on a device, with the hooks that hand their gradients over.
    #[track_caller]
    fn copies(&self, device: usize, parameters: &[&Tensor]) -> Result<Vec<Tensor>> {
        let gpu = &self.group.gpus()[device];
        let mut copies = Vec::with_capacity(parameters.len());
        for (number, &parameter) in parameters.iter().enumerate() {
            let is_here = parameter.engine.here().is_same(&gpu.engine().here());
            let mut copy = match is_here {
                true => parameter.clone(),
                false => parameter.detach().to(gpu)?,
            };
            if let Some(name) = parameter.tag().name().filter(|_| !is_here) {
                copy = copy.named(name);
            }
            let copy = copy.requires_grad()?;
            if self.group.len() > 1 {
                let current = self.current.clone();
                copy.take_gradient(move |grad| current.hand_over(device, number, grad))?;
            }
            copies.push(copy);
        }
        Ok(copies)
    }

    /// The devices.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The parameters on a device, in the order of [`new`](Replicas::new). `None` if the group has
    /// fewer devices.
    pub fn parameters(&self, device: usize) -> Option<&[Tensor]> {
        self.parameters.get(device).map(Vec::as_slice)
    }

    /// Calls a function with the parameters of each device in turn, to make what each device needs,
    /// such as an optimizer.
    ///
    /// # Errors
    /// Those of the function, as [`Error::Device`].
    pub fn each<T>(&self, mut make: impl FnMut(&[&Tensor]) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.group.len());
        for (device, parameters) in self.parameters.iter().enumerate() {
            let parameters: Vec<&Tensor> = parameters.iter().collect();
            all.push(make(&parameters).map_err(|error| self.group.named(device, error))?);
        }
        Ok(all)
    }

    /// A [`backward`](Replicas::backward), and then a step of each device's optimizer. Returns the
    /// losses. To clip gradients first, call both yourself.
    ///
    /// # Errors
    /// Those of [`backward`](Replicas::backward); then nothing has changed. [`Error::Option`]
    /// unless there is an optimizer for each device. If a device fails in its step, the others have
    /// done theirs: [`Error::Device`] names it.
    #[track_caller]
    pub fn step<O>(
        &mut self,
        optimizers: &mut [Optimizer<O>],
        loss_of: impl Fn(Replica<'_>) -> Result<Tensor> + Sync,
    ) -> Result<Vec<Tensor>> {
        if optimizers.len() != self.group.len() {
            return Err(Error::Option {
                option: "optimizers",
                reason: format!(
                    "{} were given, and the group has {} devices",
                    optimizers.len(),
                    self.group.len()
                ),
            });
        }
        let backward = self.backward(loss_of)?;
        let mut first_error = None;
        for (device, gradients) in backward.gradients.iter().enumerate() {
            // Submitted at once, so that no device waits for the program to read from another.
            let stepped = optimizers[device].step(gradients);
            let stepped = stepped.and_then(|()| self.group.gpus()[device].flush());
            if let Err(error) = stepped {
                let error = self.group.named(device, error);
                first_error = first_error.or(Some(error));
            }
        }
        first_error.map_or(Ok(backward.losses), Err)
    }

    /// Copies the parameters of a device to all others, in place. After a checkpoint was loaded on
    /// one device, or between devices whose results differ in the last bits.
    ///
    /// # Errors
    /// [`Error::Option`] for a number beyond the group; else as
    /// [`Group::all_reduce`](Group::all_reduce).
    #[track_caller]
    pub fn copy_from(&mut self, device: usize) -> Result<()> {
        let Some(of_device) = self.parameters.get(device) else {
            return Err(Error::Option {
                option: "device",
                reason: format!("{device} is none of the {} devices", self.group.len()),
            });
        };
        let _paused = Paused::new();
        for (number, parameter) in of_device.iter().enumerate() {
            let copies = self.group.broadcast(parameter)?;
            for (other, copy) in copies.iter().enumerate() {
                if other != device {
                    let copied = self.parameters[other][number].copy_(copy);
                    copied.map_err(|error| self.group.named(other, error))?;
                }
            }
        }
        Ok(())
    }
}
