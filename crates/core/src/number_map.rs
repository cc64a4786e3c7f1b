//! Maps whose keys are numbers, such as addresses.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// A map from numbers to values. It iterates, and drops, in the order of insertion, until an entry
/// is removed: addresses differ from run to run, and results must not.
pub(crate) type NumberMap<V> = IndexMap<u64, V, FxBuildHasher>;
