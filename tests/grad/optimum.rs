//! What the engine evicts and recomputes in a small graph, beside the best that is possible. Times
//! are those of the model of costs, so they are the same in every run.

mod best;
mod engine;
mod graph;

use best::Search;
use engine::{step, workspace_bytes};
use graph::{Graph, devices};
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

/// The most time beside the best. Behind PCIe the workspace of products takes a part of the memory,
/// which the search does not know.
const MOST: f64 = 1.25;

/// The same, with the workspace beside the percentage.
const MOST_BESIDE_WORKSPACE: f64 = 1.15;

/// The same, on average.
const MOST_MEAN: f64 = 1.08;

#[test]
fn a_step_takes_little_longer_than_the_best_one() {
    let mut ratios = Vec::new();
    for (graph, percentages) in CASES {
        for (device, speed) in devices() {
            for &percentage in percentages {
                let ratio = ratio(graph, device, speed, percentage, 0);
                assert!(
                    ratio >= 0.97,
                    "{ratio:.2}: the model of costs is not the engine's"
                );
                ratios.push(ratio);
            }
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean <= MOST_MEAN, "{mean:.2}: {ratios:.2?}");
}

/// The search knows no workspace, so products in parts need more memory than it thinks.
#[test]
fn half_the_memory_beside_the_workspace_is_enough_behind_a_slow_link() {
    let (device, speed) = devices()[1];
    let graphs: [&'static [usize]; 5] = [
        &[256; 7],
        &[256; 9],
        CASES[0].0.widths,
        &[512, 256, 512, 256, 512, 256],
        &[512, 384, 256, 128, 256, 384, 512],
    ];
    for widths in graphs {
        let graph = Graph { widths };
        let workspace_bytes = workspace_bytes(graph, speed).unwrap();
        let ratio = ratio(graph, device, speed, 50, workspace_bytes);
        assert!(ratio <= MOST_BESIDE_WORKSPACE, "{widths:?}: {ratio:.2}");
    }
}

/// The time of a step in part of the memory, and this much beside it, ÷ the best without it.
fn ratio(graph: Graph, device: &str, speed: Speed, percentage: u64, more_bytes: u64) -> f64 {
    let all = step(graph, speed, None).unwrap();
    let weights_bytes = graph.weights_bytes();
    let room_bytes = (all.peak_bytes - weights_bytes) * percentage / 100;
    let budget_bytes = weights_bytes + room_bytes + more_bytes;
    let taken = step(graph, speed, Some(budget_bytes)).unwrap();
    let search = Search {
        graph,
        speed,
        room_bytes,
    };
    let more_ns = search.more_ns().expect("there is room for each operation");
    let ratio = taken.ns as f64 / (all.ns + more_ns) as f64;
    let case = format!("{graph:?}, {device}, {percentage} %: {ratio:.2}, {taken:?}");
    println!("{case}");
    assert!(
        taken.evicted_bytes + taken.recomputed_bytes > 0,
        "{case}: it had room"
    );
    assert!(ratio <= MOST, "{case}");
    ratio
}
