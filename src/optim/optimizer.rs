//! The optimizers, and their step.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::LossScaler;
use super::algorithm::{AdamWOptions, Algorithm, SgdOptions, at_least_0};
use super::group::ParameterGroup;
use crate::grad::Gradients;
use crate::ops::fill;
use crate::ops::optim::{COUNT_STEP, Condition, FIRST_COUNT, Member, Update, count};
use crate::tensor::Tensor;
use crate::tensor::history::Paused;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

/// Stochastic gradient descent, with momentum if its options say so. PyTorch's `SGD`.
pub type Sgd = Optimizer<SgdOptions>;

/// Adam with decoupled weight decay (Loshchilov and Hutter, *Decoupled Weight Decay
/// Regularization*, 2019). PyTorch's `AdamW`.
pub type AdamW = Optimizer<AdamWOptions>;

/// An optimizer: [`Sgd`] or [`AdamW`].
///
/// It holds the parameters, and their state in tensors. Its steps change the parameters in place,
/// as under [`no_grad`](crate::Gpu::no_grad).
#[derive(Debug)]
pub struct Optimizer<O> {
    pub(super) parameters: Vec<Tensor>,
    pub(super) algorithm: Algorithm,
    pub(super) groups: Vec<ParameterGroup>,
    /// What the last step was, then the number of updates of each parameter with its
    /// corrections, as u32.
    pub(super) counts: Tensor,
    options: PhantomData<fn(O) -> O>,
}

impl Optimizer<SgdOptions> {
    /// An optimizer of these parameters. It allocates the momentum, if there is one.
    ///
    /// ```no_run
    /// # fn demo(w: &lapidary::Tensor, b: &lapidary::Tensor) -> lapidary::Result<()> {
    /// use lapidary::optim::{Sgd, SgdOptions};
    ///
    /// let options = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
    /// let mut sgd = Sgd::new(&[w, b], options)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for an option that PyTorch refuses, for no parameters, or for two that
    /// share their memory. [`Error::DType`] for a type of state other than f32 and bf16, and for a
    /// parameter that is not of floats. [`Error::Gradient`] for a tensor that is no parameter: it
    /// does not [`requires_grad`](Tensor::requires_grad), or is a view of one that does.
    /// [`Error::Foreign`] for parameters of several `Gpu`s.
    #[track_caller]
    pub fn new(parameters: &[&Tensor], options: SgdOptions) -> Result<Sgd> {
        Optimizer::with(parameters, Algorithm::Sgd(options))
    }
}

impl Optimizer<AdamWOptions> {
    /// An optimizer of these parameters. It allocates both moments.
    ///
    /// ```no_run
    /// # fn demo(w: &lapidary::Tensor, b: &lapidary::Tensor) -> lapidary::Result<()> {
    /// use lapidary::optim::{AdamW, AdamWOptions};
    ///
    /// let mut adam = AdamW::new(&[w, b], AdamWOptions { lr: 3e-4, ..Default::default() })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Sgd::new`].
    #[track_caller]
    pub fn new(parameters: &[&Tensor], options: AdamWOptions) -> Result<AdamW> {
        Optimizer::with(parameters, Algorithm::AdamW(options))
    }
}

impl<O> Optimizer<O> {
    #[track_caller]
    pub(super) fn with(parameters: &[&Tensor], algorithm: Algorithm) -> Result<Self> {
        algorithm.check()?;
        check_parameters(parameters)?;
        let parameters: Vec<Tensor> = parameters.iter().map(|&one| one.clone()).collect();
        let (formula, dtype) = (algorithm.formula(), algorithm.state_dtype());
        let len = FIRST_COUNT + COUNT_STEP * parameters.len();
        let counts = fill::full(&parameters[0].engine, &[len], 0.into(), DType::U32)?;
        Ok(Optimizer {
            groups: ParameterGroup::all(&parameters, formula, dtype)?,
            counts: counts.named("optimizer state"),
            parameters,
            algorithm,
            options: PhantomData,
        })
    }

    /// The learning rate of the next step.
    pub fn learning_rate(&self) -> f64 {
        self.algorithm.lr()
    }

    /// Sets the learning rate, for a schedule. Nothing is compiled or allocated.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a negative number, NaN or infinity.
    pub fn set_learning_rate(&mut self, lr: f64) -> Result<()> {
        at_least_0("lr", lr)?;
        self.algorithm.set_lr(lr);
        Ok(())
    }

    /// Changes the parameters by their gradients. A parameter without a gradient stays as it is,
    /// with its state. It records commands and waits for nothing.
    ///
    /// A backward that needs a parameter as it was before is an error, as after any write in place.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`] for gradients of another `Gpu`; nothing has changed then.
    #[track_caller]
    pub fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let _method = MadeFor::method("step");
        self.step_if(gradients, Condition::Always)
    }

    /// As [`step`](Self::step), for the gradients of a [scaled](LossScaler::scale) loss. It divides
    /// them by the scale as it reads them, unless [`LossScaler::unscale`] has. If one of them is
    /// NaN or infinite, the device skips the step: parameters, state and counts stay as they are.
    ///
    /// # Errors
    ///
    /// Those of [`step`](Self::step) and of [`LossScaler::unscale`].
    #[track_caller]
    pub fn step_scaled(&mut self, gradients: &Gradients, scaler: &mut LossScaler) -> Result<()> {
        let _method = MadeFor::method("step_scaled");
        gradients.check_engine(OPERATION, &self.counts)?;
        if gradients.is_empty() {
            return Ok(());
        }
        scaler.check(OPERATION, gradients)?;
        let found = scaler.checked_number(OPERATION)?;
        self.step_if(
            gradients,
            match gradients.is_unscaled() {
                true => Condition::Unless(found),
                false => Condition::UnlessScaled(found, scaler.scale_tensor()),
            },
        )
    }

    #[track_caller]
    fn step_if(&mut self, gradients: &Gradients, condition: Condition<'_>) -> Result<()> {
        gradients.check_engine(OPERATION, &self.counts)?;
        let found = |parameter: &Tensor| gradients.get(parameter).filter(|grad| !grad.is_empty());
        let found: Vec<Option<Tensor>> = self.parameters.iter().map(found).collect();
        let are_there: Vec<bool> = found.iter().map(Option::is_some).collect();
        if !are_there.contains(&true) {
            return Ok(());
        }
        let _paused = Paused::new();
        count(&self.counts, &are_there, self.algorithm.logs(), condition)?;
        for group in &self.groups {
            self.update(group, &found)?;
        }
        Ok(())
    }

    /// Updates the parameters of a group that have gradients.
    #[track_caller]
    fn update(&self, group: &ParameterGroup, gradients: &[Option<Tensor>]) -> Result<()> {
        let (mut members, mut copies) = (Vec::new(), Vec::new());
        for member in group.members() {
            let Some(gradient) = &gradients[member.number] else {
                continue;
            };
            let parameter = self.parameters[member.number].untracked();
            let value = match parameter.is_whole_storage() {
                true => parameter,
                false => {
                    let copy = parameter.copy()?;
                    copies.push((parameter, copy.clone()));
                    copy
                }
            };
            let gradient = match gradient.is_whole_storage() {
                true => gradient.untracked(),
                false => gradient.untracked().copy()?,
            };
            members.push(Member {
                value,
                gradient,
                start: member.start,
                number: member.number,
            });
        }
        if members.is_empty() {
            return Ok(());
        }
        let update = Update {
            formula: self.algorithm.formula(),
            factors: self.algorithm.factors(),
            counts: &self.counts,
            state: group.state(),
            plane: group.plane(),
        };
        update.launch(&members)?;
        for (parameter, copy) in copies {
            parameter.copy_(&copy)?;
        }
        Ok(())
    }
}

const OPERATION: &str = "step";

fn check_parameters(parameters: &[&Tensor]) -> Result<()> {
    let refuse = |reason: String| {
        Err(Error::Option {
            option: "parameters",
            reason,
        })
    };
    let Some(first) = parameters.first() else {
        return refuse("the list is empty, so there is nothing to optimize".into());
    };
    let mut known = HashMap::new();
    for (number, parameter) in parameters.iter().enumerate() {
        parameter.same_engine("parameters", first)?;
        if !parameter.dtype.is_float() {
            return Err(Error::DType {
                operation: "parameters",
                expected: "f32, f16 or bf16".into(),
                got: parameter.dtype,
                hint: "Integers and bools have no gradient",
                at: String::new(),
            });
        }
        let node = parameter.history().map(|history| history.node());
        let is_leaf =
            |layout| node.is_some_and(|node| node.is_leaf() && node.layout.same_map(layout));
        if !is_leaf(&parameter.layout) {
            return Err(Error::Gradient {
                operation: "parameters",
                reason: format!(
                    "number {number}, made at {}, is no parameter: call `requires_grad` on it, and \
                     give the whole and no view or result of it",
                    parameter.tag()
                ),
            });
        }
        if let Some(other) = known.insert(Arc::as_ptr(&parameter.storage.here()), number) {
            return refuse(format!(
                "numbers {other} and {number} share the memory made at {}",
                parameter.tag()
            ));
        }
    }
    Ok(())
}
