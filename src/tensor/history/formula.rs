//! Values that a backward computes again instead of keeping them.
//!
//! ```text
//!   h = x·a      saves x, a
//!   y = gelu(h)  saves h; its formula: h ↦ gelu(h)
//!   z = y·b      saves the formula instead of y, and b
//! ```
//!
//! The operation that made the value keeps its operands anyhow, until its own backward, which comes
//! later. So the value takes no memory meanwhile. Computing it costs one launch that is no product.
//! Compilers choose likewise (PyTorch's min-cut partitioner; Chen et al., *Training Deep Nets with
//! Sublinear Memory Cost*, 2016).

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use smallvec::SmallVec;

use super::lesser::Lesser;
use super::node::Again;
use super::saved::Saved;
use super::{dry, number};
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::Result;
use lapidary_core::internal::{Engine, Handle, MadeFor};

/// Most operations one after another: a long chain of operations keeps one value in three.
const MOST_STEPS: u32 = 2;

/// Smaller values are kept: a launch takes longer than their bytes are worth.
pub(crate) const LEAST_BYTES: u64 = 64 << 10;

/// What a node keeps of a tensor.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// Its elements.
    Elements(Saved),
    /// Its elements, or less of them later.
    Lesser(Arc<Lesser>),
    /// How they are computed again.
    Formula(View),
}

/// How a value is computed again, out of what its operation saved.
pub(super) struct Formula {
    again: Box<Again>,
    saved: SmallVec<[Kept; 3]>,
    /// The writes to the value's storage before. After another one it holds another value.
    version: u64,
    /// The number of the node that made the value, or a lower one that is as old.
    node: u64,
    /// The operations that it takes.
    steps: u32,
    operation: &'static str,
    recorded_at: &'static Location<'static>,
    /// The value, while other operations wait for it.
    value: Mutex<Option<Saved>>,
}

/// A view of a value that is computed again.
#[derive(Clone)]
pub(super) struct View {
    formula: Arc<Formula>,
    layout: Layout,
}

impl Kept {
    /// The operations that it takes to have it.
    fn steps(&self) -> u32 {
        match self {
            Kept::Elements(_) | Kept::Lesser(_) => 0,
            Kept::Formula(view) => view.formula.steps,
        }
    }

    /// The tensor, for the backward of an operation.
    pub(super) fn get(
        &self,
        engine: &Handle<Engine>,
        operation: &'static str,
        recorded_at: &'static Location<'static>,
    ) -> Result<Tensor> {
        match self {
            Kept::Elements(saved) => saved.get(engine, operation, recorded_at),
            Kept::Lesser(lesser) => lesser.get(engine, operation, recorded_at),
            Kept::Formula(view) => view.get(engine),
        }
    }
}

impl Formula {
    /// The formula of a new result. `None` if the result is better kept.
    pub(super) fn new(
        result: &Tensor,
        saved: &[Kept],
        again: Box<Again>,
        (operation, recorded_at): (&'static str, &'static Location<'static>),
    ) -> Option<Arc<Formula>> {
        let steps = 1 + saved.iter().map(Kept::steps).max().unwrap_or(0);
        let is_worth_it = steps <= MOST_STEPS && result.size_bytes() >= LEAST_BYTES;
        is_worth_it.then(|| {
            Arc::new(Formula {
                again,
                saved: saved.iter().cloned().collect(),
                version: result.storage.own().version(),
                node: number::next(),
                steps,
                operation,
                recorded_at,
                value: Mutex::default(),
            })
        })
    }

    /// Does the storage of this handle still hold the value? It is asked itself and not its fake in
    /// a dry run, whose writes are counted from 0.
    pub(super) fn is_value_of(&self, handle: &Tensor) -> bool {
        handle.storage.own().version() == self.version
    }

    /// This view of the value, for another operation to keep.
    pub(super) fn view(self: Arc<Self>, of: &Tensor) -> View {
        View {
            formula: self,
            layout: of.layout.clone(),
        }
    }

    fn compute(&self, engine: &Handle<Engine>) -> Result<Tensor> {
        let _line = MadeFor::line(self.recorded_at);
        let saved = self.saved.iter();
        let saved = saved.map(|one| one.get(engine, self.operation, self.recorded_at));
        let saved: SmallVec<[Tensor; 3]> = saved.collect::<Result<_>>()?;
        (self.again)(&saved)
    }

    fn value(&self) -> MutexGuard<'_, Option<Saved>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn get(&self, engine: &Handle<Engine>) -> Result<Tensor> {
        let formula = &self.formula;
        // Nothing is computed under the lock.
        let held = formula.value().clone();
        let whole = match held {
            Some(held) => held.get(engine, formula.operation, formula.recorded_at)?,
            None => formula.compute(engine)?,
        };
        // Beside this view, the operation that made the value has the formula.
        let is_last = Arc::strong_count(formula) <= 2;
        // A value of a dry run is no value for the time after it.
        if !dry::is_from_before(formula.node) {
            let value = (!is_last).then(|| whole.saved());
            if value.is_some() {
                note(formula);
            }
            *formula.value() = value;
        }
        Ok(whole.view(self.layout.clone()))
    }
}

thread_local! {
    /// The formulas that got a value in the backward of this thread, or the innermost one.
    static WITH_VALUE: RefCell<Vec<Weak<Formula>>> = const { RefCell::new(Vec::new()) };
}

fn note(formula: &Arc<Formula>) {
    WITH_VALUE.with_borrow_mut(|formulas| formulas.push(Arc::downgrade(formula)));
}

/// The values of formulas while a backward runs. At its end no operation waits for them, but a
/// history that is kept would hold them.
pub(crate) struct Values {
    /// Those of the backward whose function began this one.
    outer: Vec<Weak<Formula>>,
}

impl Values {
    pub(crate) fn of_backward() -> Self {
        Values {
            outer: WITH_VALUE.take(),
        }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        let formulas = WITH_VALUE.replace(std::mem::take(&mut self.outer));
        for formula in formulas.iter().filter_map(Weak::upgrade) {
            let value = formula.value().take();
            // Not under the lock.
            drop(value);
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("operation", &self.formula.operation)
            .finish_non_exhaustive()
    }
}
