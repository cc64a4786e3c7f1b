//! What the engine evicts and recomputes in a small graph, beside the best that is possible. Times
//! are those of the model of costs, so they are the same in every run.

mod best;
mod engine;
mod graph;

use best::Search;
use engine::step;
use graph::{Graph, devices};

const GRAPH: Graph = Graph {
    widths: &[256, 512, 128, 512, 256, 640, 192],
};

/// The most time beside the best.
const MOST: f64 = 1.25;

/// The same, on average.
const MOST_MEAN: f64 = 1.08;

#[test]
fn a_step_takes_little_longer_than_the_best_one() {
    let mut ratios = Vec::new();
    for (device, speed) in devices() {
        let all = step(GRAPH, speed, None).unwrap();
        let weights_bytes = GRAPH.weights_bytes();
        for percentage in [70, 50] {
            let room_bytes = (all.peak_bytes - weights_bytes) * percentage / 100;
            let taken = step(GRAPH, speed, Some(weights_bytes + room_bytes)).unwrap();
            let search = Search {
                graph: GRAPH,
                speed,
                room_bytes,
            };
            let more_ns = search.more_ns().expect("there is room for each operation");
            let ratio = taken.ns as f64 / (all.ns + more_ns) as f64;
            println!("{device}, {percentage} %: {ratio:.2}, {taken:?}");
            let is_short = taken.evicted_bytes + taken.recomputed_bytes > 0;
            assert!(is_short, "{device}, {percentage} %: it had room");
            assert!(
                ratio <= MOST,
                "{device}, {percentage} %: {ratio:.2}, {taken:?}"
            );
            assert!(
                ratio >= 0.97,
                "the model of costs is not the engine's: {ratio}"
            );
            ratios.push(ratio);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean <= MOST_MEAN, "{mean:.2}: {ratios:.2?}");
}
