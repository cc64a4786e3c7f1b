//! A cache of 10,000 tiles within 64 MiB. Each tile has a source, so the budget decides which tiles
//! are resident.
//!
//! ```text
//! cargo run --release --package lapidary-core --example cache
//! ```
//!
//! The tiles have 640 MiB together. The program has no replacement policy: a kernel sums up the
//! tiles that a walker over the map sees. The sources supply the missing tiles, and the engine
//! evicts the coldest ones. Evicting a tile costs nothing, because its source can give it again.
//! The last line reports the result.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lapidary_core::{Budget, Buffer, Gpu, Kernel, Options, Source};

/// Tiles on each side of the square map.
const SIDE: usize = 100;

const TILE_BYTES: u64 = 64 << 10;
const BUDGET_BYTES: u64 = 64 << 20;

/// Tiles on each side of the square that the walker sees.
const VIEW: usize = 5;

const STEPS: usize = 400;

const WGSL: &str = "
@group(0) @binding(0) var<storage, read> tile: array<u32>;
@group(0) @binding(1) var<storage, read_write> sum: array<atomic<u32>>;

@compute @workgroup_size(64)
fn add_up(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&tile) { atomicAdd(&sum[0], tile[id.x]); }
}
";

fn main() -> Result<(), Box<dyn Error>> {
    let gpu = Gpu::open(Options {
        budget: Some(Budget::device(BUDGET_BYTES)),
        ..Options::from_env()?
    })?;
    let asked = Arc::new(AtomicU64::new(0));
    let tiles = (0..SIDE * SIDE).map(|number| {
        let asked = asked.clone();
        let source = Source::reader(move |_, bytes| {
            asked.fetch_add(1, Ordering::Relaxed);
            // A real program would read a file or run a decoder here.
            let words = bytes.chunks_exact_mut(4);
            words.for_each(|word| word.copy_from_slice(&(number as u32).to_le_bytes()));
            Ok(())
        });
        gpu.buffer_backed(source, TILE_BYTES)
    });
    let tiles = tiles.collect::<lapidary_core::Result<Vec<Buffer>>>()?;
    let kernel = Kernel::new(&gpu, WGSL)?;
    let sum = gpu.buffer_zeroed(4)?.named("sum");

    let (start, mut expected, mut looked_at) = (Instant::now(), 0_u32, 0);
    for step in 0..STEPS {
        let (left, top) = place(step);
        for (row, column) in (0..VIEW * VIEW).map(|k| (top + k / VIEW, left + k % VIEW)) {
            let number = row * SIDE + column;
            let groups = (TILE_BYTES / 4).div_ceil(64) as u32;
            kernel
                .call()
                .bind("tile", &tiles[number])
                .bind("sum", &sum)
                .groups([groups, 1, 1])
                .run()?;
            expected = expected.wrapping_add(number as u32 * (TILE_BYTES / 4) as u32);
            looked_at += 1;
        }
    }
    let total = sum.to_vec::<u32>()?[0];
    let seconds = start.elapsed().as_secs_f64();
    let memory = gpu.memory().stats();
    println!("{memory}");
    println!(
        "{looked_at} looks at {} tiles in {seconds:.1} s; {} came from their sources",
        tiles.len(),
        asked.load(Ordering::Relaxed)
    );
    assert_eq!(total, expected, "a tile was wrong");
    assert!(memory.device_bytes.peak <= BUDGET_BYTES);
    println!(
        "cache: right=yes peak_bytes={} budget_bytes={BUDGET_BYTES}",
        memory.device_bytes.peak
    );
    Ok(())
}

/// The walker circles the middle of the map, and returns to earlier places.
fn place(step: usize) -> (usize, usize) {
    let angle = step as f32 / STEPS as f32 * std::f32::consts::TAU * 3.0;
    let middle = (SIDE - VIEW) as f32 / 2.0;
    let reach = 0.4 * SIDE as f32;
    let along = |x: f32| (middle + reach * x) as usize;
    (along(angle.cos()), along(angle.sin()))
}
