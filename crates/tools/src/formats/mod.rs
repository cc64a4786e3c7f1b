//! Snapshots in the formats of other tools: a pickle for PyTorch's memory viewer, a trace for
//! Perfetto, a log in RMM's format. The last can also be read.

mod lines;
mod memory_viz;
mod pickle;
mod places;
mod rmm;
mod trace;

use lapidary_core::stats::Snapshot;

#[cfg(feature = "replay")]
pub(crate) use lines::Lines;
pub use memory_viz::write_pickle;
pub use rmm::{RmmEvent, RmmRow, read_rmm, write_rmm};
pub use trace::write_trace;

/// The last time that is written, in the year 2255. A viewer counts to 2^53, and a clock may be
/// wrong.
const LAST_US: u64 = 1 << 53;

/// A time of `moments` in microseconds since 1970, if it is known.
fn unix_us(snapshot: &Snapshot, at_ns: u64) -> u64 {
    let taken_us = snapshot.taken_unix_ms.saturating_mul(1000);
    let before_us = snapshot.taken_at_ns.saturating_sub(at_ns) / 1000;
    taken_us.saturating_sub(before_us).min(LAST_US)
}
