//! Statistics, snapshots and history for people. This module changes nothing, except that it first
//! frees storages without holders. The crate `lapidary-tools` shows its values.

mod advice;
mod dry_run;
#[cfg(feature = "snapshot")]
mod json;
mod map;
mod measure;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "serde")]
mod rows;
mod sampler;
mod snapshot;
mod stats;

pub use advice::{Suggestion, Topic};
pub use dry_run::{DryRun, Fit};
#[cfg(feature = "snapshot")]
pub use json::{OLDEST_SNAPSHOT_VERSION, SNAPSHOT_FORMAT, SNAPSHOT_VERSION};
pub use map::Picture;
pub use measure::{Measure, Measured};
#[cfg(feature = "serde")]
pub use rows::EVENT_KINDS;
pub use sampler::Sampler;
pub use snapshot::Snapshot;
pub use stats::Counted;
