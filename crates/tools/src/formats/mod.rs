//! Snapshots in the formats of other tools, each written from the value alone: a pickle for
//! PyTorch's viewer of memory, a trace for Perfetto, a log of RMM's. Such logs are read, too.

mod memory_viz;
mod pickle;
mod places;
mod rmm;
mod trace;

use lapidary_core::stats::Snapshot;

pub use memory_viz::write_pickle;
pub use rmm::{RmmEvent, RmmRow, read_rmm, write_rmm};
pub use trace::write_trace;

/// A time of `moments` in microseconds since 1970, as far as that is known.
fn unix_us(snapshot: &Snapshot, at_ns: u64) -> u64 {
    let taken_us = snapshot.taken_unix_ms.saturating_mul(1000);
    let before_us = snapshot.taken_at_ns.saturating_sub(at_ns) / 1000;
    taken_us.saturating_sub(before_us)
}
