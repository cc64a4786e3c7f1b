//! Writes in place to tensors that are tracked, or of values that are.
//!
//! The write becomes a node: its result is the whole storage, its operands are what the storage was
//! before and what is written. All handles and views of the storage then have the new history.

use std::panic::Location;

use super::fill;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, line};
use crate::tensor::layout::Layout;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

impl Tensor {
    /// Is a write of `values` through `self` recorded? Through a detached handle it is not.
    #[inline]
    pub(super) fn records_write(&self, values: &[&Tensor]) -> bool {
        self.is_tracked() || !self.is_detached() && values.iter().any(|value| value.is_tracked())
    }

    /// A copy of the elements, for an operation in place to compute of: what it saves of them for
    /// its backward stays as it is. The caller assigns the result.
    #[track_caller]
    pub(super) fn elements_before(&self, operation: &'static str) -> Result<Tensor> {
        self.check_writable(operation)?;
        self.check_is_no_leaf(operation)?;
        self.copy()
    }

    /// Writes a value that broadcasts to the shape of `self`.
    #[track_caller]
    pub(super) fn assign(&self, operation: &'static str, value: &Tensor) -> Result<()> {
        self.check_is_no_leaf(operation)?;
        self.check_is_not_saved(operation)?;
        let _line = MadeFor::caller();
        self.untracked().copy_(&value.untracked())?;
        let elements = (self.storage.len_bytes() / self.dtype.size_bytes()) as usize;
        let is_whole = self.layout.is_contiguous() && self.layout.len() == elements;
        let layout = match is_whole {
            true => self.layout.clone(),
            false => Layout::contiguous(&[elements]),
        };
        let whole = self.untracked().view(layout);
        let (written, shape) = (self.layout.clone(), value.layout.shape.clone());
        let rule = move |b: &Backward| through_write(b, &written, &shape);
        // Its history may be the one that is replaced, which is locked meanwhile.
        let value = match value.tracked_edge() {
            Some(edge) => value.untracked().made_by(edge.node),
            None => value.untracked(),
        };
        self.replace_history(|before| {
            // What a write replaces as a whole, nothing depends on any more.
            let old = match before.filter(|_| !is_whole) {
                Some(node) => whole.clone().made_by(node),
                None => whole.clone(),
            };
            whole.node(operation, &[&old, &value], &[], rule)
        });
        Ok(())
    }

    /// A storage must not hold, through its history, a node that holds it: it would never be freed.
    #[track_caller]
    fn check_is_not_saved(&self, operation: &'static str) -> Result<()> {
        if !(self.storage.here().is_saved() && self.has_history_of_storage()) {
            return Ok(());
        }
        Err(Error::Gradient {
            operation,
            reason: format!(
                "a backward needs the tensor made at {} as it was before this write at {}. Write to \
                 a copy, after that backward, or within `no_grad`",
                self.tag(),
                line(Location::caller())
            ),
        })
    }

    /// A parameter has no operation that made it, so a recorded write to it has no meaning.
    #[track_caller]
    fn check_is_no_leaf(&self, operation: &'static str) -> Result<()> {
        let is_leaf = self
            .history()
            .is_some_and(|history| history.node().is_leaf());
        if !(is_leaf && self.is_tracked()) {
            return Ok(());
        }
        Err(Error::Gradient {
            operation,
            reason: format!(
                "the parameter made at {} cannot be written at {} while its gradient is \
                 recorded. Write within `no_grad`, or to a `copy`",
                self.tag(),
                line(Location::caller())
            ),
        })
    }
}

/// The gradients of what was there before, and of what was written through a view.
#[track_caller]
fn through_write(b: &Backward, written: &Layout, shape: &[usize]) -> Result<Grads> {
    let after = elements_of(&b.grad)?;
    let mut grads = Grads::new();
    grads.push(match b.needs(0) {
        true => {
            let before = after.copy()?;
            before
                .view(written.clone())
                .fill_(fill::zero_of(after.dtype))?;
            Some(before)
        }
        false => None,
    });
    grads.push(match b.needs(1) {
        true => Some(after.view(written.clone()).sum_to(shape)?),
        false => None,
    });
    Ok(grads)
}

/// A gradient as the elements of the storage that it belongs to, from the first one on.
#[track_caller]
fn elements_of(grad: &Tensor) -> Result<Tensor> {
    let grad = grad.contiguous()?;
    match grad.layout.offset {
        0 => Ok(grad),
        _ => grad.copy(),
    }
}
