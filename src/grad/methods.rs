//! The methods of tensors and of the device.

use std::panic::Location;
use std::sync::Arc;

use super::{Backprop, Gradients};
use crate::gpu::Gpu;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::history::{Hook, Paused, is_paused, line, undo_later, unrecorded};
use lapidary_core::internal::MaybeShared;
use lapidary_core::{Error, Result};

/// While it lives, its thread records no operations for gradients: see [`Gpu::no_grad`].
#[derive(Debug)]
#[must_use = "operations are recorded again when it is dropped"]
pub struct NoGrad {
    _paused: Paused,
}

impl Gpu {
    /// Until the guard is dropped, this thread records no operations, on any device. Nothing is
    /// kept for a backward, and parameters may be written in place.
    ///
    /// ```no_run
    /// # use lapidary::{Gpu, Tensor};
    /// # fn demo(gpu: &Gpu, w: &Tensor, step: &Tensor) -> lapidary::Result<()> {
    /// let _no_grad = gpu.no_grad();
    /// w.sub_(step)?;
    /// # Ok(()) }
    /// ```
    pub fn no_grad(&self) -> NoGrad {
        NoGrad {
            _paused: Paused::new(),
        }
    }

    /// Computes a tensor of `inputs` by a function whose intermediate values are not kept: the
    /// backward calls the function again. Use it where recomputing costs less than memory.
    ///
    /// Tensors that the function captures get their gradients too. Do not write to them before the
    /// backward: nothing notices it. If no input and nothing that it captures depends on a
    /// parameter, nothing is kept.
    /// It must compute the same each time: give random numbers a fixed seed. If it returns an
    /// input, a captured parameter or a view of one, the result is a copy. So it is for a view that
    /// names elements several times, such as a broadcast, if the result has a gradient. Under
    /// [`no_grad`](Self::no_grad) the function is only called. (Chen et al., *Training Deep Nets
    /// with Sublinear Memory Cost*, 2016.)
    ///
    /// ```no_run
    /// # use lapidary::{Gpu, Tensor};
    /// # fn demo(gpu: &Gpu, x: &Tensor, w: &Tensor) -> lapidary::Result<()> {
    /// let w = w.clone();
    /// let y = gpu.checkpoint(&[x], move |inputs| inputs[0].matmul(&w)?.gelu()?.square())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the function. [`Error::Gradient`] if it writes to an input. [`Error::Foreign`] if
    /// its result or an input is of another device or share than this one.
    #[track_caller]
    pub fn checkpoint(
        &self,
        inputs: &[&Tensor],
        function: impl Fn(&[Tensor]) -> Result<Tensor> + MaybeShared + 'static,
    ) -> Result<Tensor> {
        let handles = |handle: fn(&Tensor) -> Tensor| -> Vec<Tensor> {
            inputs.iter().map(|input| handle(input)).collect()
        };
        if is_paused() {
            return function(&handles(Tensor::clone));
        }
        let writes_before: Vec<u64> = inputs.iter().map(|input| input.writes()).collect();
        let (made, depends_on_captured) = unrecorded(|| function(&handles(Tensor::untracked)));
        let made = made?;
        let is_captured = made.is_tracked();
        let is_input = |input: &&Tensor| input.shares_storage_with(&made);
        // The history of the result is not that of memory which the function passed on.
        let is_passed_on = is_captured || inputs.iter().any(is_input);
        let depends =
            depends_on_captured || is_captured || inputs.iter().any(|input| input.is_tracked());
        let is_recorded = depends && made.dtype.is_float();
        // A gradient of elements that the result names several times would count for each of them.
        let made = match is_passed_on || is_recorded && made.layout.has_overlap() {
            true => made.untracked().copy()?,
            false => made,
        };
        if !is_recorded {
            return Ok(made);
        }
        self.check_is_here(&made, inputs)?;
        check_unwritten(inputs, &writes_before)?;
        Ok(made.computed_again_as(CHECKPOINT, inputs, function))
    }

    /// Refuses a function that goes to another device or share: a gradient cannot come back.
    fn check_is_here(&self, made: &Tensor, inputs: &[&Tensor]) -> Result<()> {
        if !self.engine().here().is_same(&made.engine.here()) {
            return Err(Error::Foreign {
                operation: CHECKPOINT,
            });
        }
        let mut inputs = inputs.iter();
        inputs.try_for_each(|input| made.same_engine(CHECKPOINT, input))
    }
}

const CHECKPOINT: &str = "checkpoint";

/// Refuses a function that wrote to an input: at the backward it would compute something else.
fn check_unwritten(inputs: &[&Tensor], writes_before: &[u64]) -> Result<()> {
    let mut pairs = inputs.iter().zip(writes_before);
    match pairs.position(|(input, before)| input.writes() != *before) {
        None => Ok(()),
        Some(number) => Err(Error::Gradient {
            operation: CHECKPOINT,
            reason: format!(
                "the function wrote to its input number {number}, made at {}, so it would compute \
                 something else at the backward. Write to a `copy`",
                inputs[number].tag()
            ),
        }),
    }
}

impl Tensor {
    /// Marks the tensor as a parameter. Operations on it are recorded from now on, and
    /// [`backward`](Tensor::backward) gives its gradient. The mark belongs to the memory: other
    /// handles and views see it too. It has no effect on a tensor that depends on a parameter.
    ///
    /// ```no_run
    /// # fn demo(gpu: &lapidary::Gpu) -> lapidary::Result<()> {
    /// let w = gpu.rand_normal(&[784, 10], 0.0, 0.05, 7, lapidary::DType::F32)?.requires_grad()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] unless it is of floats. [`Error::Shape`] for a view in which several
    /// indices name one element. [`Error::Gradient`] if the memory is a parameter of another shape.
    #[track_caller]
    pub fn requires_grad(self) -> Result<Tensor> {
        const OPERATION: &str = "requires_grad";
        if !self.dtype.is_float() {
            return Err(Error::DType {
                operation: OPERATION,
                expected: "f32, f16 or bf16".into(),
                got: self.dtype,
                hint: "Integers and bools have no gradient",
                at: String::new(),
            })
            .located();
        }
        if self.layout.has_overlap() {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "a view of shape {:?} and strides {:?} may name one element twice: use `copy`",
                    self.shape(),
                    self.strides()
                ),
            })
            .located();
        }
        let (shape, tag) = (self.shape().to_vec(), self.tag());
        self.made_leaf().map_err(|other| Error::Gradient {
            operation: OPERATION,
            reason: format!(
                "the memory of the tensor of shape {shape:?} made at {tag} is a parameter of shape \
                 {:?} already. Mark the whole, or a copy of the part",
                &other.shape[..]
            ),
        })
    }

    /// The number of writes to its memory so far.
    fn writes(&self) -> u64 {
        self.storage.here().version()
    }

    /// Whether it is a parameter, or depends on one.
    pub fn has_grad(&self) -> bool {
        self.history().is_some()
    }

    /// The same elements without a history. Operations on this handle are not recorded. A write
    /// through it is not recorded either, but shows in all.
    #[must_use]
    pub fn detach(&self) -> Tensor {
        self.untracked()
    }

    /// The gradients of this number with respect to all parameters that it depends on. It frees
    /// the history on the way, so it runs once; [`backprop`](Tensor::backprop) has more choices.
    ///
    /// It records commands and waits for nothing, like any operation.
    ///
    /// # Errors
    ///
    /// [`Error::Gradient`] if it depends on no parameter, or if a backward before has freed its
    /// history. Also if an operation has no gradient, or if a saved value was overwritten. It names
    /// the lines. [`Error::Shape`] unless it has one element. Errors of the operations, and those
    /// of hooks. After an error there are no gradients, and what the backward did not reach is
    /// still there.
    #[track_caller]
    pub fn backward(&self) -> Result<Gradients> {
        self.backprop().run()
    }

    /// A backward with choices: the gradient to begin with, whether to keep the history, whether
    /// to record the backward itself. [`Backprop::of`] goes back from several tensors at once.
    pub fn backprop(&self) -> Backprop<'_> {
        Backprop::of(&[(self, None)])
    }

    /// Calls a function with the gradient of this tensor, as soon as a backward has all of it. The
    /// gradient that the function returns takes its place.
    ///
    /// ```no_run
    /// # fn demo(w: &lapidary::Tensor) -> lapidary::Result<()> {
    /// w.on_gradient(|gradient| gradient.clamp(-1.0, 1.0))?;
    /// # Ok(()) }
    /// ```
    ///
    /// The function stays until the history ends; for a parameter, that is until its memory is
    /// freed. It should not hold the tensor, which would never be freed, and not write to the
    /// gradient, which others may share. It may return a tensor that it keeps: nothing writes to
    /// that. To keep the gradient that it got, it makes a `copy`.
    ///
    /// # Errors
    ///
    /// [`Error::Gradient`] if the tensor is no parameter and depends on none, or is a view of one.
    #[track_caller]
    pub fn on_gradient(
        &self,
        hook: impl Fn(&Tensor) -> Result<Tensor> + MaybeShared + 'static,
    ) -> Result<()> {
        self.add_hook(Arc::new(move |grad: &Tensor| hook(grad).map(Some)))
    }

    /// As [`on_gradient`](Tensor::on_gradient), for a function that may take the gradient and
    /// return `None`. Then the parameter gets none, and later functions are not called.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub(crate) fn take_gradient(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + MaybeShared + 'static,
    ) -> Result<()> {
        self.add_hook(Arc::new(hook))
    }

    #[track_caller]
    fn add_hook(&self, hook: Arc<Hook>) -> Result<()> {
        const OPERATION: &str = "on_gradient";
        let Some(history) = self.history() else {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: without_history(self, Location::caller()),
            });
        };
        let node = history.node();
        if !node.layout.same_map(&self.layout) {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: format!(
                    "the tensor made at {} is a view of what has the gradient. Call it on the \
                     whole, before writes through views, or on a `copy`",
                    self.tag()
                ),
            });
        }
        node.add_hook(Arc::clone(&hook));
        let hooked = Arc::clone(&node);
        undo_later(node.id, move || hooked.remove_hook(&hook));
        Ok(())
    }
}

/// Why a tensor has no gradients.
pub(super) fn without_history(of: &Tensor, at: &Location<'_>) -> String {
    format!(
        "the tensor made at {} depends on no parameter at {}. Call `requires_grad` on the \
         parameters before the operations, and make it outside of `no_grad`",
        of.tag(),
        line(at)
    )
}
