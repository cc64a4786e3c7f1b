//! Evicting and recomputing in small graphs, beside the best that is possible.
//!
//! ```text
//! cargo bench --bench recompute --features sim
//! ```
//!
//! A training step of a perceptron on simulated devices, in part of the memory that it wants. The
//! best time comes from a search over all states. Times are those of the model of costs.

#[path = "../tests/grad/optimum/best.rs"]
mod best;
#[path = "../tests/grad/optimum/engine.rs"]
mod engine;
#[path = "../tests/grad/optimum/graph.rs"]
mod graph;

use best::Search;
use engine::step;
use graph::{Graph, devices};
use lapidary::Result;

const GRAPHS: [(&str, Graph); 3] = [
    (
        "mixed layers",
        Graph {
            widths: &[256, 512, 128, 512, 256, 640, 192, 256],
        },
    ),
    ("equal layers", Graph { widths: &[256; 9] }),
    (
        "wide and narrow",
        Graph {
            widths: &[64, 512, 64, 512, 64, 512, 64, 512, 64],
        },
    ),
];

fn main() -> Result<()> {
    for (name, graph) in GRAPHS {
        for (device, speed) in devices() {
            let all = step(graph, speed, None)?;
            println!("{name}, {device}: peak {} MiB", all.peak_bytes >> 20);
            for percentage in [70, 50, 40, 30] {
                let beside_bytes = all.peak_bytes - graph.weights_bytes();
                let room_bytes = beside_bytes * percentage / 100;
                let taken = step(graph, speed, Some(graph.weights_bytes() + room_bytes))?;
                let search = Search {
                    graph,
                    speed,
                    room_bytes,
                };
                let best = match search.least_ns() {
                    Some(ns) => format!("{:.2} x the best", taken.ns as f64 / ns as f64),
                    None => "too little for the model".into(),
                };
                println!(
                    "  {percentage} %: {:>7.2} x all memory, {best}; evicted {} MiB, recomputed {} \
                     MiB",
                    taken.ns as f64 / all.ns as f64,
                    taken.evicted_bytes >> 20,
                    taken.recomputed_bytes >> 20,
                );
            }
        }
    }
    Ok(())
}
