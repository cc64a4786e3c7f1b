//! What the engine evicts and recomputes in a small graph, beside the best that is possible. Times
//! are those of the model of costs, so they are the same in every run.

mod best;
mod engine;
mod graph;

use best::Search;
use engine::{has_heap, step, workspace_bytes};
use graph::{Graph, HALVED, devices};
use lapidary::sim::Speed;

/// Graphs, and the percentages of the memory that a step wants beside its weights. The narrow
/// layers of the first have no way in 30 %.
const CASES: [(Graph, &[u64]); 2] = [
    (
        Graph {
            widths: &[256, 512, 128, 512, 256, 640, 192],
        },
        &[70, 50],
    ),
    (Graph { widths: &[256; 9] }, &[30]),
];

/// The most time beside the best, ...
const MOST: f64 = 1.25;

/// ... and with a heap in the host's memory (`LAPIDARY_HOST_HEAP=on`): there nothing is copied
/// ahead of need, which one graph in 30 % would use.
const MOST_WITH_HEAP: f64 = 1.28;

/// The same, on average.
const MOST_MEAN: f64 = 1.08;

#[test]
fn a_step_takes_little_longer_than_the_best_one() {
    let mut ratios = Vec::new();
    for (graph, percentages) in CASES {
        for (device, speed) in devices() {
            let most = match has_heap(speed).unwrap() {
                true => MOST_WITH_HEAP,
                false => MOST,
            };
            for &percentage in percentages {
                let [ratio] = compared(graph, device, speed, percentage, [0]);
                assert!(
                    ratio >= 0.97,
                    "{ratio:.2}: the model of costs is not the engine's"
                );
                assert!(ratio <= most, "{ratio:.2}");
                ratios.push(ratio);
            }
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean <= MOST_MEAN, "{mean:.2}: {ratios:.2?}");
}

/// For each graph of [`HALVED`], the most time in half the memory behind PCIe: without the
/// workspace of products in parts, and with it. The search knows no workspace, so products in parts
/// need more memory than it thinks. The target is 1.15, which four graphs miss without the
/// workspace.
const MOST_HALVED: [(f64, f64); 7] = [
    (TARGET, TARGET),
    (TARGET, TARGET),
    (TARGET, TARGET),
    (1.22, TARGET),
    (1.25, TARGET),
    (1.29, 1.05),
    (1.31, 1.05),
];

const TARGET: f64 = 1.15;

#[test]
fn half_the_memory_is_nearly_enough_behind_a_slow_link() {
    let (device, speed) = devices()[1];
    for (widths, (most, most_beside)) in HALVED.into_iter().zip(MOST_HALVED) {
        let graph = Graph { widths };
        let workspace_bytes = workspace_bytes(graph, speed).unwrap();
        let [without, beside] = compared(graph, device, speed, 50, [0, workspace_bytes]);
        assert!(without <= most, "{widths:?}: {without:.2}");
        assert!(beside <= most_beside, "{widths:?}: {beside:.2}");
    }
}

/// The times of steps in part of the memory, and this much beside it, ÷ the best without it.
fn compared<const N: usize>(
    graph: Graph,
    device: &str,
    speed: Speed,
    percentage: u64,
    more_bytes: [u64; N],
) -> [f64; N] {
    let all = step(graph, speed, None).unwrap();
    let weights_bytes = graph.weights_bytes();
    let room_bytes = (all.peak_bytes - weights_bytes) * percentage / 100;
    let search = Search {
        graph,
        speed,
        room_bytes,
    };
    let more_ns = search.more_ns().expect("there is room for each operation");
    more_bytes.map(|more_bytes| {
        let budget_bytes = weights_bytes + room_bytes + more_bytes;
        let taken = step(graph, speed, Some(budget_bytes)).unwrap();
        let ratio = taken.ns as f64 / (all.ns + more_ns) as f64;
        let case = format!("{graph:?}, {device}, {percentage} %: {ratio:.2}, {taken:?}");
        println!("{case}");
        assert!(
            taken.evicted_bytes + taken.recomputed_bytes > 0,
            "{case}: it had room"
        );
        ratio
    })
}
