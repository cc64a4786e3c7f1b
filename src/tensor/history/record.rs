//! Recording an operation, and what its rule gets at the backward.

use std::panic::Location;
use std::sync::Arc;

use smallvec::SmallVec;

use super::formula::{Formula, Kept};
use super::lesser::{Lesser, MakeLesser};
use super::node::{Again, AgainFn, Body, Node, RuleFn, Source, Work};
use crate::tensor::Tensor;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

/// The gradients of the operands, in their order. `None` where none is wanted, or where it is 0.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 3]>;

/// The gradients of a rule. An expression for an operand that needs none is not evaluated.
macro_rules! grads {
    ($backward:expr; $($gradient:expr),+ $(,)?) => {{
        let mut grads = $crate::tensor::history::Grads::new();
        $(
            grads.push(match $backward.needs(grads.len()) {
                true => Some($gradient),
                false => None,
            });
        )+
        Ok(grads)
    }};
}
pub(crate) use grads;

/// A tensor to keep for the backward.
#[derive(Clone, Copy)]
pub(crate) enum Save<'a> {
    /// An operand, by its number.
    Operand(usize),
    /// The result.
    Result,
    /// The result, or what this function makes of it. It makes that once another operation says
    /// that it does not need the result, if no other one keeps it.
    Lesser(&'a Arc<MakeLesser>),
    /// A tensor that has no gradient, such as indices.
    Other(&'a Tensor),
}

/// A backward at one node.
pub(crate) struct Backward {
    /// The gradient of the result, in its shape and type.
    pub(crate) grad: Tensor,
    /// What was saved, in that order.
    pub(crate) saved: SmallVec<[Tensor; 3]>,
    /// Which operands need a gradient.
    pub(crate) wanted: SmallVec<[bool; 4]>,
}

impl Save<'static> {
    /// What the gradients of a product of two operands need: for each the other one. A frozen
    /// weight thus keeps no input.
    pub(crate) fn factors(first: &Tensor, second: &Tensor) -> SmallVec<[Self; 2]> {
        let others = [(first, Save::Operand(1)), (second, Save::Operand(0))];
        let needed = others.into_iter().filter(|(factor, _)| factor.is_tracked());
        needed.map(|(_, other)| other).collect()
    }
}

impl Backward {
    /// Does this operand need a gradient?
    pub(crate) fn needs(&self, operand: usize) -> bool {
        self.wanted.get(operand).copied().unwrap_or(false)
    }

    /// The factor of the first operand of a product that saved its [`factors`](Save::factors), if
    /// that operand needs a gradient.
    pub(crate) fn factor_of_first(&self) -> &Tensor {
        &self.saved[0]
    }

    /// The factor of the second operand, likewise.
    pub(crate) fn factor_of_second(&self) -> &Tensor {
        &self.saved[self.saved.len() - 1]
    }
}

/// The error of a rule for an operation without one.
pub(crate) fn without_gradient(operation: &str) -> Error {
    Error::Gradient {
        operation: "backward",
        reason: format!("`{operation}` has no gradient"),
    }
}

impl Tensor {
    /// Attaches to this new tensor how its gradient becomes those of the operands. The operation
    /// has computed it with detached operands.
    #[track_caller]
    pub(crate) fn recorded_as(
        self,
        operation: &'static str,
        operands: &[&Tensor],
        saves: &[Save<'_>],
        rule: impl RuleFn + 'static,
    ) -> Tensor {
        let work = Work::Rule(Box::new(rule));
        self.recorded_with(operation, operands, saves, (work, None))
    }

    /// As [`recorded_as`](Self::recorded_as), with a rule that calls a function of the app.
    #[track_caller]
    pub(crate) fn recorded_by_app_as(
        self,
        operation: &'static str,
        operands: &[&Tensor],
        saves: &[Save<'_>],
        rule: impl RuleFn + 'static,
    ) -> Tensor {
        let work = Work::OfApp(Box::new(rule));
        self.recorded_with(operation, operands, saves, (work, None))
    }

    /// As [`recorded_as`](Self::recorded_as), for an operation that takes little time. `again`
    /// computes it out of what is saved, so operations on the result need not keep it.
    #[track_caller]
    pub(crate) fn recorded_cheap_as(
        self,
        operation: &'static str,
        operands: &[&Tensor],
        saves: &[Save<'_>],
        again: impl AgainFn + 'static,
        rule: impl RuleFn + 'static,
    ) -> Tensor {
        let again: Box<Again> = Box::new(again);
        let work = Work::Rule(Box::new(rule));
        self.recorded_with(operation, operands, saves, (work, Some(again)))
    }

    #[track_caller]
    pub(crate) fn node(
        &self,
        operation: &'static str,
        operands: &[&Tensor],
        saves: &[Save<'_>],
        rule: impl RuleFn + 'static,
    ) -> Node {
        let work = Work::Rule(Box::new(rule));
        self.node_of(operation, operands, saves, (work, None))
    }

    /// Attaches to this new tensor that it is to be computed again at the backward.
    #[track_caller]
    pub(crate) fn computed_again_as(
        self,
        operation: &'static str,
        operands: &[&Tensor],
        again: impl AgainFn + 'static,
    ) -> Tensor {
        let saves: Vec<Save<'_>> = (0..operands.len()).map(Save::Operand).collect();
        let work = Work::Again(Box::new(again));
        self.recorded_with(operation, operands, &saves, (work, None))
    }

    #[track_caller]
    fn recorded_with(
        self,
        operation: &'static str,
        operands: &[&Tensor],
        saves: &[Save<'_>],
        work: (Work, Option<Box<Again>>),
    ) -> Tensor {
        let node = self.node_of(operation, operands, saves, work);
        self.made_by(Arc::new(node))
    }

    #[track_caller]
    fn node_of(
        &self,
        operation: &'static str,
        operands: &[&Tensor],
        saves: &[Save<'_>],
        (work, again): (Work, Option<Box<Again>>),
    ) -> Node {
        let at = MadeFor::or(Location::caller());
        let edges = operands
            .iter()
            .map(|operand| operand.tracked_edge())
            .collect();
        let elements = |tensor: &Tensor| Kept::Elements(tensor.saved());
        let kept = saves.iter().map(|save| match *save {
            Save::Operand(index) => operands[index].kept(),
            Save::Result => elements(self),
            Save::Lesser(reduce) => Kept::Lesser(Lesser::new(self, reduce)),
            Save::Other(tensor) => elements(tensor),
        });
        let kept: SmallVec<[Kept; 3]> = kept.collect();
        let formula = again.and_then(|again| Formula::new(self, &kept, again, (operation, at)));
        let sources = saves.iter().map(|save| match *save {
            Save::Operand(index) => Source::Operand(index),
            Save::Result => Source::Result,
            Save::Lesser(_) | Save::Other(_) => Source::Elsewhere,
        });
        let body = Body {
            edges,
            saved: kept.into_iter().zip(sources).collect(),
            formula,
            work,
        };
        Node::operation(self, operation, at, body)
    }

    /// What a node keeps of an operand.
    fn kept(&self) -> Kept {
        let node = self.tracked_edge().map(|edge| edge.node);
        match node.and_then(|node| self.formula(&node)) {
            Some(formula) => Kept::Formula(formula.view(self)),
            None => Kept::Elements(self.saved()),
        }
    }

    /// How the node that made it computes it again, unless it was written since.
    pub(super) fn formula(&self, node: &Node) -> Option<Arc<Formula>> {
        // The formula gives the elements of the result in their order, which are the storage.
        let is_whole = node.layout.is_contiguous()
            && node.layout.len() == node.elements
            && node.dtype == self.dtype;
        let formula = is_whole.then(|| node.formula())??;
        formula.is_value_of(self).then_some(formula)
    }
}

impl Node {
    /// What the rule gets for this gradient. With `is_recorded` the saved tensors have their
    /// histories, so that the gradients have some too.
    #[track_caller]
    pub(crate) fn backward(
        self: &Arc<Self>,
        body: &Body,
        grad: Tensor,
        is_recorded: bool,
    ) -> Result<Backward> {
        let mut saved = SmallVec::new();
        for (one, source) in &body.saved {
            let tensor = one.get(&grad.engine, self.operation, self.recorded_at)?;
            saved.push(match source {
                _ if !is_recorded => tensor,
                Source::Operand(index) => match &body.edges[*index] {
                    Some(edge) => tensor.made_by(Arc::clone(&edge.node)),
                    None => tensor,
                },
                Source::Result => tensor.made_by(Arc::clone(self)),
                Source::Elsewhere => tensor,
            });
        }
        Ok(Backward {
            grad,
            saved,
            wanted: body.edges.iter().map(Option::is_some).collect(),
        })
    }
}
