//! Gradients of kernels of users.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::Kernel;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save, is_paused, line};
use lapidary_core::internal::MaybeShared;
use lapidary_core::{Error, Result};

/// Gradients by the names of bindings.
type Named = Vec<(&'static str, Tensor)>;

/// The backward of a kernel: the bindings that it needs, and the function.
pub(super) struct KernelRule {
    saves: Vec<String>,
    function: Box<dyn Function>,
}

trait Function: Fn(&KernelBackward<'_>) -> Result<Named> + MaybeShared {}
impl<F: Fn(&KernelBackward<'_>) -> Result<Named> + MaybeShared> Function for F {}

/// A backward of one call of a kernel: see [`Kernel::with_backward`].
#[derive(Debug)]
pub struct KernelBackward<'a> {
    output: &'a str,
    gradient: &'a Tensor,
    saved: Vec<(&'a str, &'a Tensor)>,
    wanted: Vec<&'a str>,
    params: &'a [u8],
}

impl KernelBackward<'_> {
    /// The gradient of this new tensor. A kernel with several new tensors goes backward once for
    /// each, so the gradients of the others are `None`.
    pub fn gradient(&self, name: &str) -> Option<&Tensor> {
        (name == self.output).then_some(self.gradient)
    }

    /// A tensor that the call bound or made.
    ///
    /// # Errors
    ///
    /// [`Error::Gradient`] unless `with_backward` named the binding, and a tensor was bound.
    pub fn saved(&self, name: &str) -> Result<&Tensor> {
        let mut saved = self.saved.iter();
        let found = saved.find(|(saved, _)| *saved == name);
        found
            .map(|(_, tensor)| *tensor)
            .ok_or_else(|| Error::Gradient {
                operation: "with_backward",
                reason: format!(
                    "`{name}` was not saved. Name it in `with_backward`, and bind a tensor to it"
                ),
            })
    }

    /// Whether this binding needs a gradient. A gradient that is given for another one is ignored.
    pub fn needs(&self, name: &str) -> bool {
        self.wanted.contains(&name)
    }

    /// The bytes of the call's uniform.
    pub fn params(&self) -> &[u8] {
        self.params
    }
}

impl Kernel {
    /// Sets the function that makes the gradients of the operands. It gets the gradient of a new
    /// tensor of the call, and the bindings that `saves` names. It returns gradients by the names
    /// of the operands. If it is made of operations that have gradients, there are gradients of
    /// gradients too. One that depends on another new tensor of the call is an error: use the
    /// operands instead.
    ///
    /// ```no_run
    /// # fn demo(saxpy: lapidary::Kernel) {
    /// // z = 3 x + y
    /// let saxpy = saxpy.with_backward(&[], |call| {
    ///     let Some(by_z) = call.gradient("z") else { return Ok(vec![]) };
    ///     Ok(vec![("x", (by_z * 3.0)?), ("y", by_z.clone())])
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn with_backward(
        self,
        saves: &[&str],
        backward: impl Fn(&KernelBackward<'_>) -> Result<Named> + MaybeShared + 'static,
    ) -> Kernel {
        Kernel {
            backward: Some(Arc::new(KernelRule {
                saves: saves.iter().map(|name| (*name).to_owned()).collect(),
                function: Box::new(backward),
            })),
            ..self
        }
    }
}

/// What a gradient needs of a call.
#[derive(Clone)]
pub(super) struct Bound {
    kernel: Kernel,
    tensors: Vec<(String, Tensor)>,
    outputs: Vec<String>,
    params: Vec<u8>,
}

impl Bound {
    pub(super) fn new(kernel: &Kernel) -> Self {
        Bound {
            kernel: kernel.clone(),
            tensors: Vec::new(),
            outputs: Vec::new(),
            params: Vec::new(),
        }
    }

    pub(super) fn tensor(&mut self, name: &str, tensor: &Tensor) {
        self.tensors.push((name.to_owned(), tensor.clone()));
    }

    pub(super) fn output(&mut self, name: &str) {
        self.outputs.push(name.to_owned());
    }

    pub(super) fn params(&mut self, bytes: &[u8]) {
        self.params = bytes.to_vec();
    }

    fn is_tracked(&self) -> bool {
        self.tensors.iter().any(|(_, tensor)| tensor.is_tracked())
    }

    /// A kernel that writes its operand in place has no gradient, so the write would be lost.
    #[track_caller]
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_tracked() {
            return Ok(());
        }
        let mut tensors = self.tensors.iter();
        let Some((name, _)) = tensors.find(|(name, _)| self.kernel.kernel.writes(name)) else {
            return Ok(());
        };
        Err(Error::Gradient {
            operation: "a kernel",
            reason: format!(
                "`{}` at {} writes `{name}` in place, which is not recorded. Use `out` for a new \
                 tensor, or call it within `no_grad`",
                self.kernel.entry(),
                line(Location::caller())
            ),
        })
    }

    /// One of the new tensors, with its history.
    #[track_caller]
    pub(super) fn recorded(&self, index: usize, outputs: &[Tensor]) -> Tensor {
        let output = outputs[index].clone();
        if !output.dtype.is_float() || !self.is_tracked() {
            return output;
        }
        let operands: Vec<&Tensor> = self.tensors.iter().map(|(_, tensor)| tensor).collect();
        let names: Vec<String> = self.tensors.iter().map(|(name, _)| name.clone()).collect();
        let (entry, name) = (self.kernel.entry().to_owned(), self.outputs[index].clone());
        let Some(rule) = self.kernel.backward.clone() else {
            return output.recorded_as("a kernel", &operands, &[], move |_| without_rule(&entry));
        };
        let save = |saved: &String| {
            let operand = names.iter().position(|name| name == saved);
            let output = || self.outputs.iter().position(|name| name == saved);
            match (operand, output()) {
                (Some(operand), _) => Some((saved.clone(), Save::Operand(operand))),
                (None, Some(at)) if at == index => Some((saved.clone(), Save::Result)),
                (None, Some(at)) => Some((saved.clone(), Save::Other(&outputs[at]))),
                (None, None) => None,
            }
        };
        let others: Vec<String> = (self.outputs.iter().enumerate())
            .filter(|(at, name)| *at != index && !names.contains(name))
            .map(|(_, name)| name.clone())
            .collect();
        let (saved, saves): (Vec<String>, Vec<Save<'_>>) =
            rule.saves.iter().filter_map(save).unzip();
        let params = self.params.clone();
        output.recorded_by_app_as("a kernel", &operands, &saves, move |b: &Backward| {
            let wanted = names.iter().enumerate();
            let wanted = wanted.filter(|(index, _)| b.needs(*index));
            let tensors = saved.iter().zip(&b.saved);
            let tensors = tensors.map(|(name, tensor)| match others.contains(name) {
                true => other_result(&entry, name, tensor),
                false => tensor.clone(),
            });
            let tensors: Vec<Tensor> = tensors.collect();
            let call = KernelBackward {
                output: &name,
                gradient: &b.grad,
                saved: saved.iter().map(String::as_str).zip(&tensors).collect(),
                wanted: wanted.map(|(_, name)| name.as_str()).collect(),
                params: &params,
            };
            in_order(&names, (rule.function)(&call)?, b)
        })
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").finish_non_exhaustive()
    }
}

/// Another result of the call, for a gradient of this one. Its own gradient is not known here: if a
/// backward is recorded, and a gradient of gradients depends on it, that is an error.
fn other_result(entry: &str, name: &str, tensor: &Tensor) -> Tensor {
    if is_paused() || !tensor.dtype.is_float() {
        return tensor.clone();
    }
    let (entry, name) = (entry.to_owned(), name.to_owned());
    (tensor.clone()).recorded_as("a kernel", &[], &[], move |_| {
        Err(Error::Gradient {
            operation: "backward",
            reason: format!(
                "a gradient of gradients depends on `{name}`, another result of the kernel \
                 `{entry}`, and would lack that part. Save the operands in `with_backward`, and \
                 compute `{name}` of them there"
            ),
        })
    })
}

fn without_rule(entry: &str) -> Result<Grads> {
    Err(Error::Gradient {
        operation: "backward",
        reason: format!("the kernel `{entry}` has no gradient: set one by `Kernel::with_backward`"),
    })
}

/// The gradients in the order of the operands. Those of one operand add up.
fn in_order(names: &[String], given: Named, b: &Backward) -> Result<Grads> {
    let mut grads: Grads = names.iter().map(|_| None).collect();
    for (name, gradient) in given {
        let Some(index) = names.iter().position(|operand| operand == name) else {
            return Err(Error::Gradient {
                operation: "with_backward",
                reason: format!("there is no operand `{name}` to have a gradient"),
            });
        };
        if !b.needs(index) {
            continue;
        }
        grads[index] = Some(match grads[index].take() {
            Some(sum) => (sum + gradient)?,
            None => gradient,
        });
    }
    Ok(grads)
}
