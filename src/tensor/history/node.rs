//! A recorded operation.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::formula::{Formula, Kept};
use super::record::Backward;
use super::{Grads, dry, number};
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::internal::MaybeShared;
use lapidary_core::{DType, Result};

/// An operation that made a tensor, or a leaf.
pub(crate) struct Node {
    /// Grows with every node of the process, so an operand's number is lower.
    pub(crate) id: u64,
    pub(crate) operation: &'static str,
    pub(crate) recorded_at: &'static Location<'static>,
    /// The result: its layout, its type, the elements of its storage. A node holds no device, which
    /// may hold the node: a queued command has a storage, and that a leaf.
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
    kind: Kind,
    hooks: Mutex<Vec<Arc<Hook>>>,
}

enum Kind {
    Leaf,
    /// The body is gone after a backward.
    Operation(Mutex<Option<Arc<Body>>>),
}

/// What a backward needs.
pub(crate) struct Body {
    /// One for each operand; `None` if the operand is not tracked.
    pub(crate) edges: SmallVec<[Option<Edge>; 3]>,
    pub(super) saved: SmallVec<[(Kept, Source); 3]>,
    /// How the result is computed again, if others need not keep it.
    pub(super) formula: Option<Arc<Formula>>,
    pub(crate) work: Work,
}

/// What the backward does.
pub(crate) enum Work {
    /// Makes the gradients of the operands.
    Rule(Box<Rule>),
    /// A function of the app makes them. It may still hold what it returns.
    OfApp(Box<Rule>),
    /// Computes the result again of the saved operands, now recorded, and goes back through that.
    Again(Box<Again>),
}

/// Where a saved tensor comes from. This gives it its history again, for gradients of gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Operand(usize),
    Result,
    Elsewhere,
}

/// An operand: the node that made its value, and its layout.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) layout: Layout,
}

/// Makes the gradients of the operands.
pub(crate) type Rule = dyn RuleFn;
pub(crate) trait RuleFn: Fn(&Backward) -> Result<Grads> + MaybeShared {}
impl<F: Fn(&Backward) -> Result<Grads> + MaybeShared> RuleFn for F {}

/// Computes a result of its operands.
pub(crate) type Again = dyn AgainFn;
pub(crate) trait AgainFn: Fn(&[Tensor]) -> Result<Tensor> + MaybeShared {}
impl<F: Fn(&[Tensor]) -> Result<Tensor> + MaybeShared> AgainFn for F {}

/// A function that sees a gradient. It returns the one that goes on, or `None` if it has taken it.
pub(crate) type Hook = dyn HookFn;
pub(crate) trait HookFn: Fn(&Tensor) -> Result<Option<Tensor>> + MaybeShared {}
impl<F: Fn(&Tensor) -> Result<Option<Tensor>> + MaybeShared> HookFn for F {}

impl Node {
    /// A tensor whose gradient is wanted.
    pub(crate) fn leaf(of: &Tensor, at: &'static Location<'static>) -> Node {
        Node::new(of, "a leaf", at, Kind::Leaf)
    }

    /// An operation that made this tensor.
    pub(super) fn operation(
        made: &Tensor,
        operation: &'static str,
        at: &'static Location<'static>,
        body: Body,
    ) -> Node {
        let kind = Kind::Operation(Mutex::new(Some(Arc::new(body))));
        Node::new(made, operation, at, kind)
    }

    fn new(
        of: &Tensor,
        operation: &'static str,
        recorded_at: &'static Location<'static>,
        kind: Kind,
    ) -> Node {
        debug_assert!(
            !of.layout.has_overlap(),
            "`{operation}` at {recorded_at} has one gradient for several indices"
        );
        Node {
            id: number::take(),
            operation,
            recorded_at,
            layout: of.layout.clone(),
            dtype: of.dtype,
            elements: (of.storage.len_bytes() / of.dtype.size_bytes()) as usize,
            kind,
            hooks: Mutex::default(),
        }
    }

    pub(crate) fn is_leaf(&self) -> bool {
        matches!(self.kind, Kind::Leaf)
    }

    /// What its backward needs, unless a backward has freed that.
    pub(crate) fn body(&self) -> Option<Arc<Body>> {
        self.lock_body()?.clone()
    }

    /// How its result is computed again, if operations on it need not keep it.
    pub(super) fn formula(&self) -> Option<Arc<Formula>> {
        self.body()?.formula.clone()
    }

    /// Frees what its backward needs. A dry run leaves nodes from before it as they are.
    pub(crate) fn free_body(&self) {
        if dry::is_from_before(self.id) {
            return;
        }
        let body = self.lock_body().and_then(|mut body| body.take());
        if let Some(body) = body {
            discard(Remains {
                _body: Some(body),
                _hooks: Vec::new(),
            });
        }
    }

    fn lock_body(&self) -> Option<MutexGuard<'_, Option<Arc<Body>>>> {
        match &self.kind {
            Kind::Leaf => None,
            Kind::Operation(body) => Some(body.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub(crate) fn add_hook(&self, hook: Arc<Hook>) {
        self.lock_hooks().push(hook);
    }

    pub(crate) fn remove_hook(&self, hook: &Arc<Hook>) {
        self.lock_hooks().retain(|one| !Arc::ptr_eq(one, hook));
    }

    pub(crate) fn hooks(&self) -> Vec<Arc<Hook>> {
        self.lock_hooks().clone()
    }

    fn lock_hooks(&self) -> MutexGuard<'_, Vec<Arc<Hook>>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let body = match &mut self.kind {
            Kind::Leaf => None,
            Kind::Operation(body) => body
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        };
        let hooks = self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let hooks = std::mem::take(hooks);
        if body.is_some() || !hooks.is_empty() {
            discard(Remains {
                _body: body,
                _hooks: hooks,
            });
        }
    }
}

/// What of a node leads to other nodes.
struct Remains {
    _body: Option<Arc<Body>>,
    _hooks: Vec<Arc<Hook>>,
}

/// What a thread has yet to drop.
struct Discarded {
    is_under_way: bool,
    remains: Vec<Remains>,
}

thread_local! {
    static DISCARDED: RefCell<Discarded> = const {
        RefCell::new(Discarded {
            is_under_way: false,
            remains: Vec::new(),
        })
    };
}

/// Drops what remains of a node, and the nodes behind it in a loop. A chain of them may be longer
/// than the stack is deep. It may go by operands, by saved values, or by values that functions of
/// the app hold.
fn discard(remains: Remains) {
    let mut next = Some(remains);
    let is_outermost = DISCARDED.try_with(|discarded| {
        let mut discarded = discarded.borrow_mut();
        if discarded.is_under_way {
            discarded.remains.extend(next.take());
        }
        !std::mem::replace(&mut discarded.is_under_way, true)
    });
    // A thread that ends has no list any more.
    if is_outermost != Ok(true) {
        return;
    }
    let _end = Discarding;
    while let Some(remains) = next {
        drop(remains);
        next = DISCARDED.with_borrow_mut(|discarded| discarded.remains.pop());
    }
}

/// Ends it, also if a function of the app panics as it is dropped.
struct Discarding;

impl Drop for Discarding {
    fn drop(&mut self) {
        DISCARDED.with_borrow_mut(|discarded| discarded.is_under_way = false);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("operation", &self.operation)
            .field("recorded_at", &format_args!("{}", self.recorded_at))
            .finish_non_exhaustive()
    }
}
