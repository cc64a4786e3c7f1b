//! Memory on a real adapter: the cost of moving tensors beside bare copies, and the bytes that the
//! driver holds beside live bytes.
//!
//! ```text
//! cargo bench --bench memory -- [FILE...]
//! ```
//!
//! FILEs are recorded traces, such as those of the bench `traces`. They are scaled down to a peak
//! of 256 MiB and run on the device that `Gpu::open` finds. The bytes of the driver come from
//! wgpu's report of its allocator, taken after every allocation. Released slabs count as reserved
//! until the device has finished with them.

use lapidary_tools::replay::trace;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lapidary::units::{Bytes, KIB, MIB};
use lapidary::{DType, Gpu, Options, Tensor, wgpu};
use lapidary_tools::replay::trace::{Event, Trace};

const PASS_BYTES: u64 = 8 * MIB;
/// Twice the bytes that are moved; every second block is dropped.
const FILLED_BYTES: u64 = 64 * MIB;
const ROUNDS: usize = 40;

const PEAK_BYTES: u64 = 256 * MIB;

fn main() -> ExitCode {
    // `cargo test --benches` only checks that the bench starts.
    if std::env::args().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), Box<dyn Error>> {
    let (adapter, device, queue) = pollster::block_on(device())?;
    let gpu = Gpu::adopt(&adapter, &device, &queue)?;
    println!("{} ({})", gpu.caps().name, gpu.caps().backend);
    println!(
        "  {:<46} {:>10} {:>10} {:>10} {:>6}",
        format!("compact({})", Bytes(PASS_BYTES)),
        "returns us",
        "done us",
        "copies us",
        "ratio"
    );
    for block_bytes in [16 * KIB, 64 * KIB, 256 * KIB, MIB] {
        compaction(&gpu, &device, &queue, block_bytes)?;
    }
    drop((gpu, device, queue));

    let files = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let mut ratios = Vec::new();
    for file in files {
        let trace = trace::read(file.as_ref()).map_err(|error| format!("{file}: {error}"))?;
        if ratios.is_empty() {
            println!(
                "\n  {:<34} {:>10} {:>14} {:>14} {:>10} {:>8}",
                "trace, peaks", "live", "reserved", "driver", "", "seconds"
            );
        }
        ratios.push(driver_share(&trace)?);
    }
    if !ratios.is_empty() {
        let logs = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>();
        let mean = (logs / ratios.len() as f64).exp();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        println!("  driver / live: geo-mean {mean:.4}, worst {worst:.4}");
    }
    Ok(())
}

/// The app's own device, which both sides use.
async fn device() -> Result<(wgpu::Adapter, wgpu::Device, wgpu::Queue), Box<dyn Error>> {
    let instance =
        wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let adapter = wgpu::util::initialize_adapter_from_env_or_default(&instance, None).await?;
    let wanted = wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP;
    let descriptor = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        required_features: adapter.features() & wanted,
        ..Default::default()
    };
    let (device, queue) = adapter.request_device(&descriptor).await?;
    Ok((adapter, device, queue))
}

/// One pass over half-empty slabs, beside the same copies recorded and submitted by hand. The sides
/// alternate, and the best round counts.
fn compaction(
    gpu: &Gpu,
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    block_bytes: u64,
) -> Result<(), Box<dyn Error>> {
    let by_hand = [(); 2].map(|()| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 2 * PASS_BYTES,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    });
    let (mut best, mut best_copies) = (Duration::MAX, Duration::MAX);
    let mut best_host = Duration::MAX;
    let mut moved_bytes = 0;
    for _ in 0..ROUNDS {
        let blocks = (0..FILLED_BYTES / block_bytes)
            .map(|_| gpu.ones(&[block_bytes as usize / 4], DType::F32));
        let blocks: Vec<Tensor> = blocks.collect::<Result<_, _>>()?;
        gpu.finish()?;
        // Drops every second block, so the rest is scattered.
        let mut odd = false;
        let _kept: Vec<Tensor> = blocks
            .into_iter()
            .filter(|_| {
                odd = !odd;
                odd
            })
            .collect();
        gpu.finish()?;

        let start = Instant::now();
        let compacted = gpu.memory().compact(PASS_BYTES)?;
        best_host = best_host.min(start.elapsed());
        gpu.finish()?;
        best = best.min(start.elapsed());
        moved_bytes = compacted.moved_bytes;

        let start = Instant::now();
        let mut encoder = device.create_command_encoder(&Default::default());
        for number in 0..moved_bytes / block_bytes {
            let (from, to) = (2 * number * block_bytes, number * block_bytes);
            encoder.copy_buffer_to_buffer(&by_hand[0], from, &by_hand[1], to, block_bytes);
        }
        queue.submit([encoder.finish()]);
        device.poll(wgpu::PollType::wait_indefinitely())?;
        best_copies = best_copies.min(start.elapsed());
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "  {:<46} {:>10.0} {:>10.0} {:>10.0} {:>6.2}",
        format!(
            "blocks of {}, {} moved",
            Bytes(block_bytes),
            Bytes(moved_bytes)
        ),
        us(best_host),
        us(best),
        us(best_copies),
        us(best) / us(best_copies),
    );
    Ok(())
}

/// Replays a trace on its own device. Returns the driver's peak relative to the live peak.
fn driver_share(trace: &Trace) -> Result<f64, Box<dyn Error>> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let held_at_first = gpu
        .memory()
        .stats()
        .driver_bytes
        .map_or(0, |level| level.now);
    let scale = (PEAK_BYTES as f64 / trace.peak_live_bytes as f64).min(1.0);
    let mut sizes = vec![0; trace.storages];
    let mut held: Vec<Option<Tensor>> = (0..trace.storages).map(|_| None).collect();
    let (mut live_bytes, mut peak_live_bytes, mut peak_driver_bytes) = (0, 0, 0);
    let start = Instant::now();
    for event in &trace.events {
        match *event {
            Event::Alloc { id, bytes } => {
                sizes[id] = ((bytes as f64 * scale) as u64).max(1);
                let tensor = gpu.zeros(&[sizes[id] as usize], DType::U8)?;
                tensor.force()?;
                held[id] = Some(tensor);
                live_bytes += sizes[id];
                peak_live_bytes = peak_live_bytes.max(live_bytes);
                let driver_bytes = gpu.memory().stats().driver_bytes;
                let driver_bytes = driver_bytes.ok_or("the driver does not tell")?;
                peak_driver_bytes = peak_driver_bytes.max(driver_bytes.now);
            }
            Event::Free { id } => {
                held[id] = None;
                live_bytes -= sizes[id];
            }
            // Reads of operators have no effect here.
            Event::Run { .. } => {}
        }
    }
    let memory = gpu.memory().stats();
    let ratio = |bytes: u64| bytes as f64 / peak_live_bytes.max(1) as f64;
    println!(
        "  {:<34} {:>10} {:>14} {:>6.3} {:>14} {:>6.3} {:>8.1}   {} of it before the first tensor",
        trace.name,
        Bytes(peak_live_bytes).to_string(),
        Bytes(memory.reserved_bytes.peak).to_string(),
        ratio(memory.reserved_bytes.peak),
        Bytes(peak_driver_bytes).to_string(),
        ratio(peak_driver_bytes),
        start.elapsed().as_secs_f64(),
        Bytes(held_at_first),
    );
    Ok(ratio(peak_driver_bytes))
}
