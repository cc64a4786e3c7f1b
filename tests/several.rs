//! Several devices: copies between them, collective operations, training on all of them. On devices
//! whose memory the host sees, on devices whose memory it does not see, and on the simulation.

mod collectives;
mod copies;
mod refuses;
mod replicas;

use lapidary::Gpu;

use super::app::App;
use super::gpu;

/// Groups of `count` devices, each with a name for messages.
fn groups(count: usize) -> Vec<(&'static str, Vec<Gpu>)> {
    vec![
        ("opened", (0..count).map(|_| gpu()).collect()),
        ("adopted", (0..count).map(|_| App::open().gpu()).collect()),
        // Bytes go from one kind to the other.
        (
            "mixed",
            (0..count)
                .map(|index| match index % 2 {
                    0 => App::open().gpu(),
                    _ => gpu(),
                })
                .collect(),
        ),
        #[cfg(feature = "sim")]
        ("simulated", (0..count).map(simulated).collect()),
    ]
}

#[cfg(feature = "sim")]
fn simulated(index: usize) -> Gpu {
    use lapidary::sim::{SimOptions, Speed};

    let speed = Speed {
        upload_bytes_per_s: 10_000_000_000,
        download_bytes_per_s: 10_000_000_000,
        memory_bytes_per_s: 100_000_000_000,
        multiply_adds_per_s: 1_000_000_000_000,
        copy_ns: 0,
        submission_ns: 0,
    };
    let options = SimOptions {
        dirty: true,
        // The first does not end its work before its time.
        speed: (index == 0).then_some(speed),
        keeps_time: index == 0,
        maps_slabs: index % 2 == 1,
        jitter: true,
        seed: index as u64,
        ..Default::default()
    };
    Gpu::simulated(options).expect("these options can be").0
}
