//! From a tensor to its history.

use std::any::Any;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

use super::mode::records_one;
use super::node::{Edge, Node};
use super::undo_later;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::internal::{Companion, Storage};
use lapidary_core::{DType, Error, Result};

/// Where a handle finds the history of its value.
#[derive(Clone, Debug, Default)]
pub(crate) enum Link {
    /// At the storage, if that has one.
    #[default]
    Storage,
    /// Nowhere: the handle is detached.
    Nowhere,
    /// Here.
    Own(Arc<History>),
}

/// The node that made the current value of a storage. An operation in place replaces it, for all
/// handles and views.
#[derive(Debug)]
pub(crate) struct History {
    node: Mutex<Arc<Node>>,
    /// The type of the value. A handle of another type for the same memory has no gradient.
    dtype: DType,
}

/// A history that belongs to a storage.
struct Attached(Arc<History>);

impl Companion for Attached {
    fn of_fake(&self) -> Arc<dyn Companion> {
        Arc::new(Attached(History::new(self.0.node())))
    }
}

impl History {
    pub(crate) fn new(node: Arc<Node>) -> Arc<Self> {
        Arc::new(History {
            dtype: node.dtype,
            node: Mutex::new(node),
        })
    }

    pub(crate) fn node(&self) -> Arc<Node> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&node)
    }

    fn replace(self: &Arc<Self>, make: impl FnOnce(Arc<Node>) -> Node) {
        let mut slot = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let node = Arc::new(make(Arc::clone(&slot)));
        // The old node may hold a long chain, which ends outside of the lock.
        let old = std::mem::replace(&mut *slot, node);
        drop(slot);
        let history = Arc::clone(self);
        undo_later(old.id, move || history.set(old));
    }

    fn set(&self, node: Arc<Node>) {
        let mut slot = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *slot, node);
        drop(slot);
        drop(old);
    }

    /// The history of a storage, for a handle of this type.
    #[inline]
    fn attached(storage: &Storage, dtype: DType) -> Option<&Arc<History>> {
        let companion: &dyn Any = &**storage.companion()?;
        let Attached(history) = companion.downcast_ref()?;
        (history.dtype == dtype).then_some(history)
    }
}

impl Tensor {
    /// Is an operation on it recorded? This is all that operations on other tensors pay.
    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        let has_history = match self.link {
            Link::Storage => History::attached(&self.storage.here(), self.dtype).is_some(),
            Link::Nowhere => false,
            Link::Own(_) => true,
        };
        has_history && records_one()
    }

    /// Refuses a write that is not recorded.
    pub(crate) fn check_untracked(&self, operation: &'static str) -> Result<()> {
        if !self.is_tracked() {
            return Ok(());
        }
        Err(Error::Gradient {
            operation,
            reason: format!(
                "a write to the tensor made at {} is not recorded for gradients. Write within \
                 `no_grad`, or by `copy_`",
                self.tag()
            ),
        })
    }

    /// Has this handle no history, whatever its memory has?
    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.link, Link::Nowhere)
    }

    /// Is its history, if it gets one, that of its memory?
    pub(crate) fn has_history_of_storage(&self) -> bool {
        matches!(self.link, Link::Storage)
    }

    /// Its history, whether or not this thread records.
    pub(crate) fn history(&self) -> Option<Arc<History>> {
        match &self.link {
            Link::Storage => History::attached(&self.storage.here(), self.dtype).cloned(),
            Link::Nowhere => None,
            Link::Own(history) => Some(Arc::clone(history)),
        }
    }

    /// The same elements without a history.
    #[inline]
    pub(crate) fn untracked(&self) -> Tensor {
        Tensor {
            engine: self.engine.clone(),
            storage: self.storage.clone(),
            layout: self.layout.clone(),
            dtype: self.dtype,
            link: Link::Nowhere,
        }
    }

    /// As [`untracked`](Self::untracked), of a handle that nobody else needs.
    pub(crate) fn detached(mut self) -> Tensor {
        self.link = Link::Nowhere;
        self
    }

    /// The same elements with a history of their own.
    pub(crate) fn made_by(mut self, node: Arc<Node>) -> Tensor {
        self.link = Link::Own(History::new(node));
        self
    }

    /// The edge to the node that made its value, if it is tracked.
    pub(crate) fn tracked_edge(&self) -> Option<Edge> {
        let node = self.is_tracked().then(|| self.history())??.node();
        Some(Edge {
            node,
            layout: self.layout.clone(),
        })
    }

    /// Makes it a leaf: a tensor whose gradient `backward` returns. Not if it depends on one, or if
    /// its memory is another leaf: then returns the layout of that.
    #[track_caller]
    pub(crate) fn made_leaf(self) -> Result<Tensor, Layout> {
        let at = Location::caller();
        let leaf = || Arc::new(Node::leaf(&self, at));
        match &self.link {
            // A detached handle is a parameter of its own.
            Link::Nowhere => {
                let leaf = leaf();
                return Ok(self.made_by(leaf));
            }
            Link::Own(_) => {}
            Link::Storage => {
                let history = Attached(History::new(leaf()));
                self.storage.here().attach(Arc::new(history));
            }
        }
        match self.history().map(|history| history.node()) {
            Some(node) if node.is_leaf() && !node.layout.same_map(&self.layout) => {
                Err(node.layout.clone())
            }
            _ => Ok(self),
        }
    }

    /// From now on, the node that `make` gives has made the value of its storage. It gets the one
    /// that has made it so far.
    pub(crate) fn replace_history(&self, make: impl FnOnce(Option<Arc<Node>>) -> Node) {
        match &self.link {
            Link::Nowhere => {}
            Link::Own(history) => history.replace(|node| make(Some(node))),
            Link::Storage => match self.history() {
                Some(history) => history.replace(|node| make(Some(node))),
                None => {
                    let history = Attached(History::new(Arc::new(make(None))));
                    self.storage.here().attach(Arc::new(history));
                }
            },
        }
    }
}
