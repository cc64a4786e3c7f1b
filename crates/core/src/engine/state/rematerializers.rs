//! The rematerializers.

use std::sync::Arc;

use super::lineage::Made;
use crate::error::Result;
use crate::memory::Storage;
use crate::number_map::NumberMap;

/// Records the commands that compute a storage again from its inputs, and returns the storage of
/// their result. It holds no storage itself: the inputs live as long as the engine needs them.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Rematerializer = Arc<dyn Fn(&[Arc<Storage>]) -> Result<Arc<Storage>> + Send + Sync>;
/// Records the commands that compute a storage again from its inputs, and returns the storage of
/// their result. It holds no storage itself: the inputs live as long as the engine needs them.
#[cfg(target_arch = "wasm32")]
pub(crate) type Rematerializer = Arc<dyn Fn(&[Arc<Storage>]) -> Result<Arc<Storage>>>;

/// A way to compute a storage again.
#[derive(Clone)]
pub(crate) enum Way {
    /// A function of the app.
    Function(Rematerializer),
    /// The launches that made it.
    Lineage(Made),
}

/// The ways to compute storages again.
#[derive(Default)]
pub(crate) struct Rematerializers {
    by_id: NumberMap<Way>,
    next_id: u64,
    /// How many of them are lineages.
    lineages: usize,
    /// Rematerializers whose storages are gone. They hold values of the app, so they must be
    /// dropped outside the lock.
    pub(crate) dropped: Vec<Rematerializer>,
}

impl Rematerializers {
    /// Adds a function of the app, or the lineage of a storage that is about to be dropped. Returns
    /// its id.
    pub(crate) fn enter(&mut self, way: Way) -> u64 {
        self.lineages += usize::from(matches!(way, Way::Lineage(_)));
        let id = self.next_id;
        self.next_id += 1;
        self.by_id.insert(id, way);
        id
    }

    pub(crate) fn get(&self, id: u64) -> Option<Way> {
        self.by_id.get(&id).cloned()
    }

    /// Removes a rematerializer whose storage is gone.
    pub(crate) fn forget(&mut self, id: u64) {
        match self.by_id.swap_remove(&id) {
            Some(Way::Function(function)) => self.dropped.push(function),
            Some(Way::Lineage(_)) => self.lineages -= 1,
            None => {}
        }
    }

    /// Was a storage dropped whose lineage gives its bytes again?
    #[inline]
    pub(crate) fn has_lineages(&self) -> bool {
        self.lineages > 0
    }

    /// Did the app register functions?
    pub(crate) fn has_functions(&self) -> bool {
        self.by_id.len() > self.lineages
    }
}
