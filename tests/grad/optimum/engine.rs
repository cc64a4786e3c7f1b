//! The same step on the engine, on a simulated device without contents.

use lapidary::operations::{Activation, Epilogue};
use lapidary::sim::{SimHandle, SimMode, SimOptions, Speed};
use lapidary::{Budget, DType, Gpu, Result, Tensor};

use super::graph::{Graph, ROWS, download_ns, upload_ns};

/// What a step took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// All kernels, transfers, copies and submissions, one after the other.
    pub(crate) ns: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) recomputed_bytes: u64,
}

/// Runs a step of a perceptron, in this much memory if it is given.
pub(crate) fn step(graph: Graph, speed: Speed, budget_bytes: Option<u64>) -> Result<Taken> {
    step_of(graph, speed, budget_bytes, |mut h, weights| {
        for weight in weights {
            h = layer(&h, weight)?;
        }
        Ok(h)
    })
}

/// The most bytes that the engine takes for the gradient of a layer's weights, beside operands and
/// result: the sums of a product in parts.
pub(crate) fn workspace_bytes(graph: Graph, speed: Speed) -> Result<u64> {
    let of_layer = |layer: usize| {
        let (gpu, _sim) = simulated(speed)?;
        let activation = |index: usize| gpu.zeros(&[ROWS, graph.widths[index]], DType::F32);
        let (input, gradient) = (activation(layer)?, activation(layer + 1)?);
        gpu.finish()?;
        let operands_bytes = gpu.memory().stats().live_bytes.now;
        let _product = input.t()?.matmul(&gradient)?;
        // As in a backward, where nothing else needs them.
        drop((input, gradient));
        gpu.finish()?;
        let taken_bytes = gpu.memory().stats().live_bytes.peak - operands_bytes;
        Ok(taken_bytes.saturating_sub(graph.weight_bytes(layer)))
    };
    (0..graph.layers()).try_fold(0, |most: u64, layer| Ok(most.max(of_layer(layer)?)))
}

/// Does the device address a heap in the host's memory?
pub(crate) fn has_heap(speed: Speed) -> Result<bool> {
    Ok(simulated(speed)?.0.caps().host_heap)
}

fn simulated(speed: Speed) -> Result<(Gpu, SimHandle)> {
    Gpu::simulated(SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 4 << 30,
        speed: Some(speed),
        ..SimOptions::default()
    })
}

/// A product and its activation.
pub(crate) fn layer(h: &Tensor, weight: &Tensor) -> Result<Tensor> {
    h.matmul_with(weight, &Epilogue::new().activation(Activation::Relu))
}

/// Runs a step of a network with these widths, in this much memory if it is given.
pub(crate) fn step_of(
    graph: Graph,
    speed: Speed,
    budget_bytes: Option<u64>,
    forward: impl Fn(Tensor, &[Tensor]) -> Result<Tensor>,
) -> Result<Taken> {
    let (gpu, sim) = simulated(speed)?;
    let weight = |layer: usize| -> Result<Tensor> {
        let shape = [graph.widths[layer], graph.widths[layer + 1]];
        gpu.zeros(&shape, DType::F32)?.requires_grad()
    };
    let weights: Vec<Tensor> = (0..graph.layers()).map(weight).collect::<Result<_>>()?;
    let x = gpu.zeros(&[ROWS, graph.widths[0]], DType::F32)?;
    gpu.finish()?;
    if let Some(budget_bytes) = budget_bytes {
        let staging_bytes = 64 << 20;
        gpu.memory().set_budget(Budget {
            staging_bytes: Some(staging_bytes),
            ..Budget::device(budget_bytes + staging_bytes)
        })?;
    }
    let (before, counted) = (gpu.memory().stats(), sim.counters());
    let h = forward(x, &weights)?;
    // A training program reads a number, or its queue gets long.
    gpu.flush()?;
    let gradients = h.sum_all()?.backward()?;
    drop(h);
    gpu.finish()?;
    drop(gradients);
    let stats = gpu.memory().stats();
    let counters = sim.counters();
    let copies = counters.copies - counted.copies;
    let submissions = counters.submissions - counted.submissions;
    let ns = [
        stats.kernels_ns - before.kernels_ns,
        download_ns(stats.evicted_bytes, speed),
        upload_ns(stats.restored_bytes, speed),
        copies * u64::from(speed.copy_ns),
        submissions * u64::from(speed.submission_ns),
    ];
    Ok(Taken {
        ns: ns.iter().sum(),
        peak_bytes: stats.live_bytes.peak,
        evicted_bytes: stats.evicted_bytes,
        recomputed_bytes: stats.recomputed_bytes,
    })
}
