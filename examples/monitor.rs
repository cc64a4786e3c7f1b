//! A network that learns in too little memory, and the monitor that shows it: in this process, or
//! through `lapidary top` in another.
//!
//! ```text
//! cargo run --release --example monitor
//! cargo run --release --example monitor -- --serve
//! ```
//!
//! Without a terminal it makes a few steps and prints the memory report.

use std::error::Error;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapidary::units::MIB;
use lapidary::{Budget, DType, Gpu, Options, Result, Tensor};
use lapidary_tools::monitor::Monitor;

const BUDGET_BYTES: u64 = 24 * MIB;
const LAYERS: usize = 10;
const WIDTH: usize = 512;

/// Number of steps without a viewer.
const STEPS: usize = 8;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let gpu = Gpu::open(Options {
        budget: Some(Budget::device(BUDGET_BYTES)),
        ..Options::from_env()?
    })?;
    let served = std::env::args().any(|arg| arg == "--serve");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let learning = scope.spawn(|| learn(&gpu, &is_over));
        let shown = match (served, std::io::stdout().is_terminal()) {
            (true, _) => serve(&gpu, &learning),
            (false, true) => Monitor::new().run(Duration::from_millis(100), || {
                match learning.is_finished() {
                    true => Err("the example has failed".into()),
                    false => Ok(gpu.memory().stats()),
                }
            }),
            // The worker ends by itself.
            (false, false) => Ok(()),
        };
        if served || std::io::stdout().is_terminal() {
            is_over.store(true, Ordering::Relaxed);
        }
        let steps = learning.join().map_err(|_| "the worker has failed")??;
        shown?;
        let stats = gpu.memory().stats();
        let peak_bytes = stats.device_bytes.peak;
        println!("{stats}");
        println!(
            "monitor: steps={steps} peak_device_bytes={peak_bytes} budget_bytes={BUDGET_BYTES}"
        );
        Ok(())
    })
}

/// Waits while `lapidary top` can watch.
#[cfg(unix)]
fn serve<T>(gpu: &Gpu, worker: &std::thread::ScopedJoinHandle<'_, T>) -> std::io::Result<()> {
    let served = lapidary_tools::socket::serve(gpu, None).map_err(std::io::Error::other)?;
    println!("lapidary top {}", served.path().display());
    while !worker.is_finished() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[cfg(not(unix))]
fn serve<T>(_: &Gpu, _: &std::thread::ScopedJoinHandle<'_, T>) -> std::io::Result<()> {
    Err(std::io::Error::other("sockets of this kind are Unix's"))
}

struct Layer {
    weight: Tensor,
    velocity: Tensor,
}

/// Trains an autoencoder until the viewer quits; with `--serve`, until the process is ended.
/// Returns the number of steps.
fn learn(gpu: &Gpu, is_over: &AtomicBool) -> Result<usize> {
    let is_watched =
        std::env::args().any(|arg| arg == "--serve") || std::io::stdout().is_terminal();
    let std = (2.0 / WIDTH as f32).sqrt();
    let layers = (0..LAYERS as u64).map(|seed| {
        let shape = [WIDTH, WIDTH];
        Ok(Layer {
            weight: gpu
                .rand_normal(&shape, 0.0, std, seed, DType::F32)?
                .named("weights"),
            velocity: gpu.zeros(&shape, DType::F32)?.named("momentum"),
        })
    });
    let layers = layers.collect::<Result<Vec<Layer>>>()?;
    let mut steps = 0;
    while !is_over.load(Ordering::Relaxed) && (is_watched || steps < STEPS) {
        // Batches of varying sizes, as text would have.
        let rows = [128, 384, 256, 640, 96][steps % 5];
        let _step = gpu.scope("step");
        let shown = gpu.rand_normal(&[rows, WIDTH], 0.0, 1.0, steps as u64, DType::F32)?;
        step(gpu, &layers, shown.named("batch"))?;
        gpu.finish()?;
        steps += 1;
    }
    Ok(steps)
}

fn step(gpu: &Gpu, layers: &[Layer], shown: Tensor) -> Result<()> {
    let mut kept = vec![shown];
    {
        let _forward = gpu.scope("forward");
        for layer in layers {
            let x = kept[kept.len() - 1].matmul(&layer.weight)?.relu()?;
            kept.push(x.named("activations"));
        }
    }
    let _backward = gpu.scope("backward");
    let per_element = 2.0 / (kept[0].len() as f32);
    let mut gradient = ((&kept[layers.len()] - &kept[0])? * per_element)?;
    for layer in layers.iter().rev() {
        let Some(y) = kept.pop() else { break };
        let passed = (gradient * y.gt(0.0)?.cast(DType::F32)?)?;
        let x = &kept[kept.len() - 1];
        let of_weight = x.t()?.matmul(&passed)?.named("gradients");
        gradient = passed.matmul(&layer.weight.t()?)?.named("gradients");
        layer.velocity.mul_(0.9)?;
        layer.velocity.add_(&of_weight)?;
        layer.weight.sub_(&(&layer.velocity * 0.01)?)?;
    }
    Ok(())
}
