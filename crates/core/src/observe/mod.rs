//! What happened and what is there, for people: it reads, and changes nothing but that what is gone
//! already is freed first.

mod advice;
#[cfg(feature = "snapshot")]
mod formats;
mod history;
#[cfg(feature = "snapshot")]
mod json;
mod map;
mod measure;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(feature = "monitor", not(target_arch = "wasm32")))]
pub(crate) mod monitor;
#[cfg(feature = "snapshot")]
mod page;
#[cfg(feature = "serde")]
mod rows;
mod snapshot;
#[cfg(all(feature = "serve", unix))]
pub(crate) mod socket;
mod stats;

pub use advice::{Suggestion, Topic};
#[cfg(feature = "snapshot")]
pub use formats::{RmmEvent, RmmRow, read_rmm};
pub use history::History;
pub use map::Picture;
pub use measure::{Measure, Measured};
pub use snapshot::Snapshot;
pub use stats::MemoryStats;
