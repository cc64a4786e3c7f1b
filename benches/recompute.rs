//! Evicting and recomputing in small graphs, beside the best that is possible.
//!
//! ```text
//! cargo bench --bench recompute
//! cargo bench --bench recompute -- halves    # seven graphs in half the memory
//! ```
//!
//! A training step of a perceptron on simulated devices, in part of the memory that it wants. The
//! best time comes from a search over all states. Times are those of the model of costs. The search
//! knows nothing of workspaces: the parts of products with long sums. So the engine also runs with
//! that much more memory.

#[path = "../tests/grad/optimum/best.rs"]
mod best;
#[path = "../tests/grad/optimum/engine.rs"]
mod engine;
#[path = "../tests/grad/optimum/graph.rs"]
mod graph;

use best::Search;
use engine::{Taken, has_heap, layer, step, step_of, workspace_bytes};
use graph::{Graph, HALVED, devices};
use lapidary::sim::Speed;
use lapidary::{Result, Tensor};

const GRAPHS: [(&str, Graph); 4] = [
    (
        "mixed layers",
        Graph {
            widths: &[256, 512, 128, 512, 256, 640, 192, 256],
        },
    ),
    (
        "mixed layers, the last one narrow",
        Graph {
            widths: &[256, 512, 128, 512, 256, 640, 192],
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

/// Networks with sums, whose states are too many for the search.
const SUMS: [(&str, Graph, Forward); 2] = [
    ("residual", Graph { widths: &[256; 9] }, residual),
    (
        "U-net",
        Graph {
            widths: &[256, 512, 384, 256, 128, 256, 384, 512, 256],
        },
        u_net,
    ),
];

type Forward = fn(Tensor, &[Tensor]) -> Result<Tensor>;

fn residual(mut h: Tensor, weights: &[Tensor]) -> Result<Tensor> {
    for weight in weights {
        h = (&h + layer(&h, weight)?)?;
    }
    Ok(h)
}

/// The second half adds what the first half computed, the last value first.
fn u_net(mut h: Tensor, weights: &[Tensor]) -> Result<Tensor> {
    let (down, up) = weights.split_at(weights.len() / 2);
    let mut skips = Vec::new();
    for weight in down {
        let below = layer(&h, weight)?;
        skips.push(std::mem::replace(&mut h, below));
    }
    for weight in up {
        h = layer(&h, weight)?;
        if let Some(skip) = skips.pop() {
            h = (h + skip)?;
        }
    }
    Ok(h)
}

const PERCENTAGES: [u64; 4] = [70, 50, 40, 30];

fn main() -> Result<()> {
    if std::env::args().any(|word| word == "halves") {
        return halves();
    }
    for (name, graph) in GRAPHS {
        for (device, speed) in devices() {
            let all = step(graph, speed, None)?;
            println!("{name}, {device}: peak {} MiB", all.peak_bytes >> 20);
            let workspace_bytes = workspace_bytes(graph, speed)?;
            for percentage in PERCENTAGES {
                let room_bytes = room_bytes(graph, all, percentage);
                let budget_bytes = graph.weights_bytes() + room_bytes;
                let taken = step(graph, speed, Some(budget_bytes))?;
                let search = Search {
                    graph,
                    speed,
                    room_bytes,
                };
                let best = match search.more_ns() {
                    Some(ns) => {
                        let beside = step(graph, speed, Some(budget_bytes + workspace_bytes))?;
                        let best = (all.ns + ns) as f64;
                        let [taken, beside] = [taken, beside].map(|taken| taken.ns as f64 / best);
                        format!("{taken:.2} x the best; {beside:.2} x with the workspace beside")
                    }
                    None => "too little for the model".into(),
                };
                report(percentage, taken, all, &best);
            }
        }
    }
    for (name, graph, forward) in SUMS {
        for (device, speed) in devices() {
            let all = step_of(graph, speed, None, forward)?;
            println!("{name}, {device}: peak {} MiB", all.peak_bytes >> 20);
            for percentage in PERCENTAGES {
                let budget_bytes = graph.weights_bytes() + room_bytes(graph, all, percentage);
                let taken = step_of(graph, speed, Some(budget_bytes), forward)?;
                report(percentage, taken, all, "not searched");
            }
        }
    }
    Ok(())
}

fn room_bytes(graph: Graph, all: Taken, percentage: u64) -> u64 {
    (all.peak_bytes - graph.weights_bytes()) * percentage / 100
}

fn report(percentage: u64, taken: Taken, all: Taken, best: &str) {
    println!(
        "  {percentage} %: {:>7.2} x all memory, {best}; evicted {} MiB, recomputed {} MiB",
        taken.ns as f64 / all.ns as f64,
        taken.evicted_bytes >> 20,
        taken.recomputed_bytes >> 20,
    );
}

/// Seven graphs in half the memory. Here a card's copies and submissions cost time of their own.
fn halves() -> Result<()> {
    let [(_, fast_link), (_, pcie), _] = devices();
    let card = Speed {
        memory_bytes_per_s: pcie.memory_bytes_per_s,
        multiply_adds_per_s: pcie.multiply_adds_per_s,
        ..Speed::default()
    };
    for (name, speed) in [("fast link", fast_link), ("PCIe with costs", card)] {
        let heap = if has_heap(speed)? { "a" } else { "no" };
        println!(
            "{name}, {heap} heap in the host's memory: time in half the memory / the best; with \
             the workspace beside"
        );
        let mut all = [Vec::new(), Vec::new()];
        for widths in HALVED {
            let ratios = halved(Graph { widths }, speed)?;
            println!("  {:.2} {:.2}  {widths:?}", ratios[0], ratios[1]);
            for (all, ratio) in all.iter_mut().zip(ratios) {
                all.push(ratio);
            }
        }
        let count = HALVED.len() as f64;
        let geometric = |all: &Vec<f64>| (all.iter().map(|x| x.ln()).sum::<f64>() / count).exp();
        let worst = |all: &Vec<f64>| all.iter().copied().fold(0.0, f64::max);
        let [means, worst] = [all.each_ref().map(geometric), all.each_ref().map(worst)];
        println!("  {:.2} {:.2}  geometric mean", means[0], means[1]);
        println!("  {:.2} {:.2}  the worst", worst[0], worst[1]);
    }
    Ok(())
}

/// The times of a step in half the memory, and in the workspace beside it, ÷ the best without it.
fn halved(graph: Graph, speed: Speed) -> Result<[f64; 2]> {
    let all = step(graph, speed, None)?;
    let room_bytes = room_bytes(graph, all, 50);
    let search = Search {
        graph,
        speed,
        room_bytes,
    };
    let more_ns = search.more_ns().unwrap_or(u64::MAX);
    let best = all.ns as f64 + more_ns as f64;
    let budget_bytes = graph.weights_bytes() + room_bytes;
    let ratio = |more_bytes: u64| -> Result<f64> {
        let taken = step(graph, speed, Some(budget_bytes + more_bytes))?;
        Ok(taken.ns as f64 / best)
    };
    Ok([ratio(0)?, ratio(workspace_bytes(graph, speed)?)?])
}
