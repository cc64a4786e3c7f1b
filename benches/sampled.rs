//! The cases of the table, sampled by criterion: their spread, and changes since a baseline.
//!
//! ```text
//! cargo xtask bench sampled
//! cargo bench --features sim --bench sampled -- [FILTER] [--save-baseline NAME | --baseline NAME]
//! ```
//!
//! The table is for ratios, because its rounds alternate with those of the other side. This bench
//! shows how much one case varies. Only the table measures starts of processes.

#[path = "table/churn.rs"]
mod churn;
#[path = "table/ours.rs"]
mod ours;

use std::time::Duration;

use criterion::Criterion;
use lapidary_harness::{CASES, Subject, Work};

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let ours = ours::Ours::open().expect("an adapter");
    for (name, work) in CASES {
        let is_here = match work {
            Work::Start { .. } => false,
            Work::Upload { way, .. } | Work::Write { way, .. } | Work::Download { way, .. } => {
                ours.by(way).expect("a device").is_some()
            }
            _ => true,
        };
        if !is_here {
            continue;
        }
        // Only cases that the filter selects are brought to the device.
        criterion.bench_function(name, |bencher| {
            let inputs = work.inputs();
            let prepared = ours.prepare(&work, &inputs).expect("its inputs fit");
            let mut timed = prepared.expect("lapidary does all of it");
            bencher.iter(|| timed.run().expect("it ran before"));
        });
    }
    criterion.final_summary();
}
