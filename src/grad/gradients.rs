//! What a backward gives.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::Result;

/// The gradients of one backward, by parameter.
#[derive(Debug, Default)]
pub struct Gradients {
    by_leaf: HashMap<u64, (Layout, Tensor)>,
    /// The addresses of the storages of all gradients, and of the seed.
    storages: HashSet<usize>,
}

impl Gradients {
    /// Adds a gradient. No two share memory, and each can be written in place.
    pub(super) fn insert(&mut self, leaf: u64, layout: Layout, grad: Tensor) -> Result<()> {
        let is_shared = !self.storages.insert(Arc::as_ptr(&grad.storage) as usize);
        let grad = match is_shared || grad.layout.has_overlap() {
            true => grad.copy()?,
            false => grad,
        };
        self.by_leaf.insert(leaf, (layout, grad));
        Ok(())
    }

    /// A tensor of the caller's, with which no gradient may share memory.
    pub(super) fn keep_apart(&mut self, tensor: &Tensor) {
        self.storages.insert(Arc::as_ptr(&tensor.storage) as usize);
    }

    /// The gradient of a parameter, in its shape and type. `None` if it is no parameter, or if the
    /// value that went backward does not depend on it.
    ///
    /// A parameter is a tensor that [`requires_grad`](Tensor::requires_grad). For a view of one it
    /// is `None`, except for a view with the same shape and strides.
    pub fn get(&self, parameter: &Tensor) -> Option<Tensor> {
        let node = parameter.history()?.node();
        let (layout, grad) = self.by_leaf.get(&node.id)?;
        layout.same_map(&parameter.layout).then(|| grad.clone())
    }

    /// The number of parameters that have a gradient.
    pub fn len(&self) -> usize {
        self.by_leaf.len()
    }

    /// Has no parameter a gradient?
    pub fn is_empty(&self) -> bool {
        self.by_leaf.is_empty()
    }
}
