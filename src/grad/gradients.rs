//! What a backward gives.

use std::collections::{BTreeMap, HashMap, HashSet, btree_map};
use std::sync::{Arc, Weak};

use crate::ops::clip;
use crate::tensor::Tensor;
use crate::tensor::history::{self, Node};
use crate::tensor::layout::Layout;
use lapidary_core::internal::{MadeFor, Storage};
use lapidary_core::{Error, Result};

/// The gradients of one backward, or the sums of those of several, by parameter.
///
/// `Gradients::default()` has none yet: [`Backprop::add_to`](super::Backprop::add_to) adds to it.
#[derive(Debug)]
pub struct Gradients {
    /// In the order in which the parameters were marked, so that sums have one order.
    by_leaf: BTreeMap<u64, (Layout, Tensor)>,
    /// Have they been divided by the scale of the loss?
    is_unscaled: bool,
    /// The number of the dry run that made it, if one did.
    made_in: Option<u64>,
}

impl Default for Gradients {
    fn default() -> Self {
        Gradients {
            by_leaf: BTreeMap::new(),
            is_unscaled: false,
            made_in: history::run(),
        }
    }
}

/// The storages with which no new gradient may share memory, by their addresses: gradients, and
/// what a function of the app may still hold. While one is known here, no other gets its address.
#[derive(Debug, Default)]
pub(super) struct Apart {
    storages: HashMap<usize, Weak<Storage>>,
    /// Those of the sums that this backward adds to.
    sums: HashSet<usize>,
}

impl Apart {
    /// Was it not there before?
    fn insert(&mut self, tensor: &Tensor) -> bool {
        let storage = tensor.storage.here();
        let known = (self.storages).insert(address(tensor), Arc::downgrade(&storage));
        known.is_none()
    }

    /// A gradient of the app, which may still hold it. The result stays as it is while the backward
    /// writes to the sums: of a sum it is a copy.
    #[track_caller]
    pub(super) fn of_app(&mut self, grad: Tensor) -> Result<Tensor> {
        if self.sums.contains(&address(&grad)) {
            return grad.copy();
        }
        self.insert(&grad);
        Ok(grad)
    }
}

fn address(tensor: &Tensor) -> usize {
    Arc::as_ptr(&tensor.storage.here()) as usize
}

impl Gradients {
    /// The gradient of a parameter, in its shape and type. `None` if it is no parameter, or if the
    /// value that went backward does not depend on it.
    ///
    /// `None` too if a value depends on it only through operations that are constant piece by
    /// piece. Such are `floor`, `sign`, `norm(0.0, …)` and a `fill_` of the whole. PyTorch gives
    /// zeros there. An optimizer then leaves the parameter alone, without weight decay.
    ///
    /// A parameter is a tensor that [`requires_grad`](Tensor::requires_grad). For a view of one it
    /// is `None`, except for a view with the same shape and strides.
    pub fn get(&self, parameter: &Tensor) -> Option<Tensor> {
        let node = parameter.history()?.node();
        let (layout, grad) = self.by_leaf.get(&node.id)?;
        layout.same_map(&parameter.layout).then(|| grad.clone())
    }

    /// The gradient of a parameter, which leaves the collection: [`get`](Self::get) then gives
    /// `None`. A dry run leaves it there, if it was made outside.
    ///
    /// ```no_run
    /// # fn demo(loss: &lapidary::Tensor, w: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let mut gradients = loss.backward()?;
    /// let of_w = gradients.take(w).expect("the loss depends on it");
    /// # Ok(()) }
    /// ```
    pub fn take(&mut self, parameter: &Tensor) -> Option<Tensor> {
        let gradient = self.get(parameter)?;
        if self.check_changeable("take").is_ok() {
            self.by_leaf.remove(&parameter.history()?.node().id);
        }
        Some(gradient)
    }

    /// The gradients, in the order in which their parameters were marked.
    ///
    /// ```no_run
    /// # fn demo(loss: &lapidary::Tensor) -> lapidary::Result<()> {
    /// for gradient in &loss.backward()? {
    ///     println!("{:?}", gradient.norm_all(2.0)?.item::<f32>()?);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.by_leaf.values())
    }

    /// Takes a gradient for a parameter, in the place of one that it may have.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn set(&mut self, parameter: &Tensor, gradient: Tensor) {
        if let Some(history) = parameter.history() {
            let leaf = (parameter.layout.clone(), gradient);
            self.by_leaf.insert(history.node().id, leaf);
        }
    }

    /// The number of parameters that have a gradient.
    pub fn len(&self) -> usize {
        self.by_leaf.len()
    }

    /// Whether no parameter has a gradient.
    pub fn is_empty(&self) -> bool {
        self.by_leaf.is_empty()
    }

    /// Makes the norm of all gradients together at most `max_norm`, in place, and returns the norm
    /// that they had: an f32 of shape `[]`. It waits for nothing.
    ///
    /// The norm is the root of the sum of all squares. Each gradient is multiplied by
    /// `max_norm / (norm + 1e-6)`, if that is less than 1, as `torch.nn.utils.clip_grad_norm_`
    /// does. (Pascanu, Mikolov and Bengio, *On the difficulty of training recurrent neural
    /// networks*, 2013.) With `f64::INFINITY` it only measures. A launch takes several gradients.
    /// Squares are summed in f32: elements beyond about 1e19 make the norm infinite.
    ///
    /// ```no_run
    /// # fn demo(loss: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let mut gradients = loss.backward()?;
    /// let norm = gradients.clip_global_norm(1.0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a negative number or NaN. [`Error::Gradient`] if there are no
    /// gradients, or if they were recorded: for those use operations.
    #[track_caller]
    pub fn clip_global_norm(&mut self, max_norm: f64) -> Result<Tensor> {
        const OPERATION: &str = "clip_global_norm";
        let _method = MadeFor::method(OPERATION);
        if max_norm.is_nan() || max_norm < 0.0 {
            return Err(Error::Option {
                option: "max_norm",
                reason: format!("{max_norm} is no norm: it must be 0 or more"),
            });
        }
        let gradients = self.for_writing(OPERATION)?;
        let gradients: Vec<&Tensor> = gradients.iter().filter(|grad| !grad.is_empty()).collect();
        if gradients.is_empty() {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: "there are no gradients with elements, so they have no norm".into(),
            });
        }
        let norm = clip::norm(&gradients)?;
        if max_norm.is_finite() {
            clip::clip(&gradients, &norm, max_norm as f32)?;
        }
        Ok(norm)
    }

    /// Refuses to change, in a dry run, gradients from outside. Nothing could undo that.
    pub(super) fn check_changeable(&self, operation: &'static str) -> Result<()> {
        match history::run() {
            Some(run) if self.made_in != Some(run) => Err(Error::Gradient {
                operation,
                reason: "what was made outside of the dry run cannot change in it: make it inside"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Handles of all gradients, each a whole storage that nobody needs as it is.
    #[track_caller]
    pub(crate) fn for_writing(&mut self, operation: &'static str) -> Result<Vec<Tensor>> {
        self.check_changeable(operation)?;
        if self.by_leaf.values().any(|(_, grad)| grad.has_grad()) {
            return Err(Error::Gradient {
                operation,
                reason: format!(
                    "some of the {} gradients were recorded by `backprop().record()`, so they \
                     cannot be changed in place. Use operations",
                    self.len()
                ),
            });
        }
        let mut gradients = Vec::with_capacity(self.len());
        for (_, grad) in self.by_leaf.values_mut() {
            if !grad.is_whole_storage() {
                *grad = grad.copy()?;
            }
            gradients.push(grad.clone());
        }
        Ok(gradients)
    }

    /// Handles of all gradients, each a whole storage.
    #[track_caller]
    pub(crate) fn for_reading(&self) -> Result<Vec<Tensor>> {
        let mut gradients = Vec::with_capacity(self.len());
        for (_, grad) in self.by_leaf.values() {
            gradients.push(match grad.is_whole_storage() {
                true => grad.untracked(),
                false => grad.untracked().copy()?,
            });
        }
        Ok(gradients)
    }

    /// Refuses gradients of another device than this tensor's.
    pub(crate) fn check_engine(&self, operation: &'static str, of: &Tensor) -> Result<()> {
        let mut gradients = self.by_leaf.values();
        gradients.try_for_each(|(_, grad)| of.same_engine(operation, grad))
    }

    pub(crate) fn is_unscaled(&self) -> bool {
        self.is_unscaled
    }

    pub(crate) fn set_unscaled(&mut self) {
        self.is_unscaled = true;
    }

    /// The gradient of a leaf so far, if more may be added to it in place, in any order.
    pub(super) fn total(&self, node: &Node) -> Option<&Tensor> {
        if !node.is_leaf() || !node.hooks().is_empty() {
            return None;
        }
        let (_, total) = self.by_leaf.get(&node.id)?;
        (!total.has_grad()).then_some(total)
    }

    /// With which storages a new gradient may not share memory.
    pub(super) fn apart(&self) -> Apart {
        let mut apart = Apart::default();
        for (_, grad) in self.by_leaf.values() {
            apart.insert(grad);
            apart.sums.insert(address(grad));
        }
        apart
    }

    /// Adds a gradient to that of its parameter, or keeps it as the first. No two share memory, and
    /// each can be written in place.
    #[track_caller]
    pub(super) fn add(
        &mut self,
        leaf: u64,
        layout: Layout,
        grad: Tensor,
        apart: &mut Apart,
        is_recorded: bool,
    ) -> Result<()> {
        if let Some((_, sum)) = self.by_leaf.get_mut(&leaf) {
            if is_recorded || sum.has_grad() {
                *sum = (&*sum + grad)?;
                return Ok(());
            }
            // The new gradient is freed as soon as this is done.
            return sum.add_(&grad);
        }
        let is_shared = !apart.insert(&grad);
        let grad = match is_shared || grad.layout.has_overlap() {
            true => grad.copy()?,
            false => grad,
        };
        self.by_leaf.insert(leaf, (layout, grad));
        Ok(())
    }
}

/// The gradients of [`Gradients::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a>(btree_map::Values<'a, u64, (Layout, Tensor)>);

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Tensor;

    fn next(&mut self) -> Option<&'a Tensor> {
        self.0.next().map(|(_, gradient)| gradient)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Gradients {
    type Item = &'a Tensor;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The gradients of a [`Gradients`] that was consumed.
#[derive(Debug)]
pub struct IntoIter(btree_map::IntoValues<u64, (Layout, Tensor)>);

impl Iterator for IntoIter {
    type Item = Tensor;

    fn next(&mut self) -> Option<Tensor> {
        self.0.next().map(|(_, gradient)| gradient)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for IntoIter {}

impl IntoIterator for Gradients {
    type Item = Tensor;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter(self.by_leaf.into_values())
    }
}
