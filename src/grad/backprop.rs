//! The backward: from a value to the parameters, the newest operation first.
//!
//! A node's number is higher than those of its operands. So the pending operation with the highest
//! number has all of its gradients, and the loop needs no recursion and no count of uses.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Gradients;
use super::gradients::Apart;
use super::methods::without_history;
use super::view::{Sum, add_at_once};
use crate::tensor::Tensor;
use crate::tensor::history::{Edge, Node, Paused, Values, Work, line};
use lapidary_core::internal::{Engine, Handle, MadeFor, enter_scope};
use lapidary_core::{Error, Result};

/// A backward to be run: see [`Tensor::backprop`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Backprop<'a> {
    roots: SmallVec<[Root<'a>; 1]>,
    keeps_history: bool,
    is_recorded: bool,
}

/// A tensor, and the gradient of it to begin with: 1 if there is none.
type Root<'a> = (&'a Tensor, Option<&'a Tensor>);

impl<'a> Backprop<'a> {
    /// One backward from several tensors, each with the gradient to begin with. A number needs
    /// none: it begins with 1. What they share goes backward once. The result is the sum of the
    /// gradients, as of PyTorch's `torch.autograd.backward(tensors, grad_tensors)`.
    ///
    /// ```no_run
    /// # use lapidary::{Tensor, grad::Backprop};
    /// # fn demo(loss: &Tensor, hidden: &Tensor, by_hidden: &Tensor) -> lapidary::Result<()> {
    /// let gradients = Backprop::of(&[(loss, None), (hidden, Some(by_hidden))]).run()?;
    /// # Ok(()) }
    /// ```
    pub fn of(roots: &[(&'a Tensor, Option<&'a Tensor>)]) -> Self {
        Backprop {
            roots: SmallVec::from_slice(roots),
            keeps_history: false,
            is_recorded: false,
        }
    }

    /// Begins with this gradient of the tensor instead of 1, which a tensor of several elements
    /// needs. It takes the place of the gradients given before.
    pub fn seed(mut self, gradient: &'a Tensor) -> Self {
        for (_, seed) in &mut self.roots {
            *seed = Some(gradient);
        }
        self
    }

    /// Keeps the history and what was saved, for another backward.
    pub fn keep_history(mut self) -> Self {
        self.keeps_history = true;
        self
    }

    /// Records the backward itself, for gradients of gradients. The history is kept.
    pub fn record(mut self) -> Self {
        self.is_recorded = true;
        self.keep_history()
    }

    /// Records the commands of the backward.
    ///
    /// # Errors
    ///
    /// Those of [`backward`](Tensor::backward). [`Error::Shape`], [`Error::DType`] and
    /// [`Error::Foreign`] for a seed that does not fit its tensor. [`Error::Gradient`] without a
    /// tensor, and [`Error::Foreign`] for tensors of several `Gpu`s.
    #[track_caller]
    pub fn run(self) -> Result<Gradients> {
        let mut gradients = Gradients::default();
        self.add_to(&mut gradients)?;
        Ok(gradients)
    }

    /// As [`run`](Self::run), but adds each gradient to that of its parameter in `gradients`, in
    /// place, and frees it at once. So a batch can be computed in parts, and there is never a
    /// second set of gradients. The sums have the types of the gradients.
    ///
    /// ```no_run
    /// # use lapidary::{Tensor, grad::Gradients};
    /// # fn demo(parts: &[Tensor], loss_of: impl Fn(&Tensor) -> lapidary::Result<Tensor>)
    /// # -> lapidary::Result<()> {
    /// let mut gradients = Gradients::default();
    /// for part in parts {
    ///     let loss = (loss_of(part)? / parts.len() as f32)?;
    ///     loss.backprop().add_to(&mut gradients)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run). [`Error::Foreign`] for gradients of another `Gpu`.
    /// [`Error::Gradient`] for gradients that [were unscaled](crate::optim::LossScaler::unscale).
    /// After an error of an operation in the middle, or a panic in a function of the app,
    /// `gradients` is empty. Some gradients would lack a part. After any other error it is
    /// unchanged.
    #[track_caller]
    pub fn add_to(self, gradients: &mut Gradients) -> Result<()> {
        let Some(&(first, _)) = self.roots.first() else {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: "there is no tensor to go back from".into(),
            });
        };
        gradients.check_changeable(OPERATION)?;
        gradients.check_engine(OPERATION, first)?;
        if gradients.is_unscaled() {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: format!(
                    "the {} gradients to add to were divided by the scale of the loss. Call \
                     `unscale` after the last backward",
                    gradients.len()
                ),
            });
        }
        let mut begins = Vec::with_capacity(self.roots.len());
        for root in &self.roots {
            begins.push(begin_of(first, root)?);
        }
        // They stay away if a function of the app panics, as after an error.
        let mut sums = std::mem::take(gradients);
        self.go_back(&first.engine, begins, &mut sums)?;
        *gradients = sums;
        Ok(())
    }

    /// Goes back from values with these gradients.
    #[track_caller]
    fn go_back(
        &self,
        engine: &Handle<Engine>,
        begins: Vec<(Edge, Tensor)>,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let _mode = match self.is_recorded {
            true => Paused::not(),
            false => Paused::new(),
        };
        let _values = Values::of_backward();
        let mut apart = gradients.apart();
        // The app may still hold seeds.
        let mut seeds = Vec::with_capacity(begins.len());
        for ((edge, seed), (_, given)) in begins.into_iter().zip(&self.roots) {
            let seed = match given {
                Some(_) => apart.of_app(seed)?,
                None => seed,
            };
            seeds.push((edge, seed));
        }
        // Reports name the lines that recorded the operations, in this scope.
        let _scope = enter_scope(OPERATION);
        let mut pending = Pending::default();
        for (edge, seed) in seeds {
            self.hand_to(&mut pending, gradients, &edge, seed)?;
        }
        while let Some((node, sum)) = pending.next() {
            let _line = MadeFor::line(node.recorded_at);
            let grad = sum.finish(&node, engine)?;
            let Some(grad) = hooked(&node, grad, &mut apart)? else {
                continue;
            };
            if node.is_leaf() {
                let layout = node.layout.clone();
                gradients.add(node.id, layout, grad, &mut apart, self.is_recorded)?;
                continue;
            }
            for (edge, grad) in self.through(&node, grad, &mut apart)? {
                self.hand_to(&mut pending, gradients, &edge, grad)?;
            }
        }
        Ok(())
    }

    /// Hands a gradient to the node of an edge. A parameter whose gradient is there already gets it
    /// at once: its turn comes last, and until then a second set of gradients would pend.
    #[track_caller]
    fn hand_to(
        &self,
        pending: &mut Pending,
        gradients: &Gradients,
        edge: &Edge,
        grad: Tensor,
    ) -> Result<()> {
        let node = &edge.node;
        let _line = MadeFor::line(node.recorded_at);
        let total = gradients.total(node).filter(|_| !self.is_recorded);
        if let Some(total) = total {
            if add_at_once(total, node, &edge.layout, &grad)? {
                return Ok(());
            }
        }
        pending.add(edge, grad, self.is_recorded)
    }

    /// The gradients that a node hands on, and to whom.
    fn through(
        &self,
        node: &Arc<Node>,
        grad: Tensor,
        apart: &mut Apart,
    ) -> Result<Vec<(Edge, Tensor)>> {
        let Some(body) = node.body() else {
            return Err(Error::Gradient {
                operation: OPERATION,
                reason: format!(
                    "the history of `{}`, recorded at {}, was freed by a backward before. Use \
                     `backprop().keep_history()` there",
                    node.operation,
                    line(node.recorded_at)
                ),
            });
        };
        let mut handed_on: Vec<(Edge, Tensor)> = match &body.work {
            Work::Rule(rule) | Work::OfApp(rule) => {
                let backward = node.backward(&body, grad, self.is_recorded)?;
                let grads = rule(&backward).map_err(|error| with_line(node, error))?;
                let edges = body.edges.iter().cloned().zip(grads);
                edges.filter_map(|(edge, grad)| edge.zip(grad)).collect()
            }
            Work::Again(again) => {
                // The operands have their histories, which the new result leads to.
                let backward = node.backward(&body, grad, true)?;
                let result = {
                    let (_recorded, _lines) = (Paused::not(), MadeFor::callers());
                    again(&backward.saved)?
                };
                let edge = result.history().map(|history| Edge {
                    node: history.node(),
                    layout: result.layout.clone(),
                });
                edge.map(|edge| (edge, backward.grad)).into_iter().collect()
            }
        };
        let is_of_app = matches!(body.work, Work::OfApp(_));
        drop(body);
        if !self.keeps_history {
            node.free_body();
        }
        for (edge, grad) in &mut handed_on {
            check_fits(node, edge, grad, self.roots[0].0)?;
            if is_of_app {
                *grad = apart.of_app(grad.clone())?;
            }
        }
        Ok(handed_on)
    }
}

const OPERATION: &str = "backward";

/// The edge to a root's value, and the gradient to begin with. All roots are on the device of the
/// first.
#[track_caller]
fn begin_of(first: &Tensor, &(root, seed): &Root<'_>) -> Result<(Edge, Tensor)> {
    let Some(history) = root.history() else {
        return Err(Error::Gradient {
            operation: OPERATION,
            reason: without_history(root, MadeFor::or(Location::caller())),
        });
    };
    first.same_engine(OPERATION, root)?;
    let edge = Edge {
        node: history.node(),
        layout: root.layout.clone(),
    };
    Ok((edge, first_gradient(root, seed)?))
}

#[track_caller]
fn first_gradient(root: &Tensor, seed: Option<&Tensor>) -> Result<Tensor> {
    let shape_error = |reason: String| {
        Err(Error::Shape {
            operation: OPERATION,
            reason,
        })
    };
    let Some(seed) = seed else {
        if root.len() != 1 {
            return shape_error(format!(
                "a tensor of shape {:?} has no gradient by itself: use a sum or mean of it, or \
                 `backprop().seed(…)`",
                root.shape()
            ));
        }
        return root.untracked().ones_like();
    };
    root.same_engine(OPERATION, seed)?;
    if seed.shape() != root.shape() {
        return shape_error(format!(
            "the seed has shape {:?}, and the tensor {:?}",
            seed.shape(),
            root.shape()
        ));
    }
    if seed.dtype != root.dtype {
        return Err(Error::DType {
            operation: OPERATION,
            expected: root.dtype.to_string(),
            got: seed.dtype,
            hint: "Nothing is promoted: use `cast`",
            at: String::new(),
        });
    }
    Ok(seed.clone())
}

/// A function of the app may have made the gradient. It must be on the device of the root.
fn check_fits(node: &Node, edge: &Edge, grad: &Tensor, root: &Tensor) -> Result<()> {
    let expected = &edge.layout.shape;
    root.same_engine(OPERATION, grad)?;
    if grad.layout.shape == *expected && grad.dtype == edge.node.dtype {
        return Ok(());
    }
    let reason = format!(
        "`{}` gave a gradient of {}{:?} for an operand of {}{:?}",
        node.operation,
        grad.dtype,
        grad.shape(),
        edge.node.dtype,
        &expected[..]
    );
    Err(with_line(
        node,
        Error::Gradient {
            operation: OPERATION,
            reason,
        },
    ))
}

/// A rule does not know the line that recorded its operation.
fn with_line(node: &Node, error: Error) -> Error {
    match error {
        Error::Gradient { operation, reason } => Error::Gradient {
            operation,
            reason: format!(
                "{reason}. The operation was recorded at {}",
                line(node.recorded_at)
            ),
        },
        error => error,
    }
}

/// A gradient after the functions of [`on_gradient`](Tensor::on_gradient). `None` if one of them
/// has taken it.
#[track_caller]
fn hooked(node: &Node, mut grad: Tensor, apart: &mut Apart) -> Result<Option<Tensor>> {
    for hook in node.hooks() {
        let _line = MadeFor::callers();
        let Some(after) = hook(&grad)? else {
            return Ok(None);
        };
        grad = apart.of_app(checked_hook(node, &grad, after)?)?;
    }
    Ok(Some(grad))
}

fn checked_hook(node: &Node, before: &Tensor, after: Tensor) -> Result<Tensor> {
    after.same_engine("on_gradient", before)?;
    if after.shape() == before.shape() && after.dtype == before.dtype {
        return Ok(after);
    }
    Err(Error::Gradient {
        operation: "on_gradient",
        reason: format!(
            "the function for the result of `{}`, recorded at {}, got a gradient of {}{:?} and \
             gave one of {}{:?}",
            node.operation,
            line(node.recorded_at),
            before.dtype,
            before.shape(),
            after.dtype,
            after.shape()
        ),
    })
}

/// The nodes whose turn will come, with their gradients so far. Parameters come last: one that was
/// marked late has a high number, and a checkpoint may still give it a part of its gradient.
#[derive(Default)]
struct Pending(BTreeMap<(bool, u64), (Arc<Node>, Sum)>);

impl Pending {
    fn add(&mut self, edge: &Edge, grad: Tensor, is_recorded: bool) -> Result<()> {
        let entry = self.0.entry((!edge.node.is_leaf(), edge.node.id));
        let (node, sum) = entry.or_insert_with(|| (Arc::clone(&edge.node), Sum::default()));
        sum.add(node, &edge.layout, grad, is_recorded)
    }

    fn next(&mut self) -> Option<(Arc<Node>, Sum)> {
        self.0.pop_last().map(|(_, pending)| pending)
    }
}
