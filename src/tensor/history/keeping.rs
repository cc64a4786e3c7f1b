//! Whether an operation keeps its operand, or less of it.

use std::sync::Arc;

use super::dry;
use super::formula::{Kept, LEAST_BYTES};
use super::lesser::Lesser;
use super::node::Node;
use crate::tensor::Tensor;
use lapidary_core::Result;

impl Tensor {
    /// Should an operation on it keep less than its elements? Not if they are few, or kept anyhow:
    /// as a parameter, for another operation, or as a formula.
    pub(crate) fn is_better_reduced(&self) -> bool {
        if self.size_bytes() < LEAST_BYTES {
            return false;
        }
        let saves = self.storage.here().saves();
        let Some(node) = self.tracked_edge().map(|edge| edge.node) else {
            return saves == 0;
        };
        if node.is_leaf() || self.formula(&node).is_some() {
            return false;
        }
        // The operation that made it would keep less too.
        saves <= u32::from(self.lesser(&node).is_some())
    }

    /// An operation that does not need the elements says so. If the one that made them keeps them
    /// for itself alone, it keeps what it needs of them.
    #[track_caller]
    pub(crate) fn keep_less(&self) -> Result<()> {
        let Some(node) = self.tracked_edge().map(|edge| edge.node) else {
            return Ok(());
        };
        match self.lesser(&node) {
            Some(lesser) if !dry::is_from_before(node.id) => {
                lesser.keep_less(&self.engine, node.operation, node.recorded_at)
            }
            _ => Ok(()),
        }
    }

    /// Its whole elements, as the node that made it keeps them and can keep less.
    fn lesser(&self, node: &Node) -> Option<Arc<Lesser>> {
        let body = node.body()?;
        let storage = self.storage.here();
        body.saved.iter().find_map(|(kept, _)| match kept {
            Kept::Lesser(lesser) if lesser.is_whole(&storage) => Some(Arc::clone(lesser)),
            _ => None,
        })
    }
}
