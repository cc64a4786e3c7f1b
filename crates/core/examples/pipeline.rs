//! Three of the app's kernels in a row for each frame, with read-backs under way.
//!
//! ```text
//! cargo run --release --package lapidary-core --example pipeline
//! ```
//!
//! The kernels blur frames of noise, find the edges, and count the edges by brightness. The program
//! records the next frames while earlier counts are still on their way. A read is queued when it is
//! called; the program waits for it four frames later. The last line reports the result.

use std::collections::VecDeque;
use std::error::Error;
use std::time::Instant;

use lapidary_core::{Gpu, Kernel, Options};

const WIDTH: u32 = 512;
const HEIGHT: u32 = 256;
const FRAMES: u32 = 60;
const BINS: usize = 16;

/// Most frames whose counts are on their way at once.
const IN_FLIGHT: usize = 4;

const WGSL: &str = "
struct Frame { width: u32, height: u32, number: u32 }

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
@group(0) @binding(2) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> frame: Frame;

fn at(x: i32, y: i32) -> f32 {
    let size = vec2<i32>(i32(frame.width), i32(frame.height));
    let near = clamp(vec2<i32>(x, y), vec2<i32>(0), size - 1);
    return source[near.y * size.x + near.x];
}

@compute @workgroup_size(8, 8)
fn blur(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= frame.width || id.y >= frame.height { return; }
    var sum = 0.0;
    for (var k = 0; k < 9; k++) { sum += at(i32(id.x) + k % 3 - 1, i32(id.y) + k / 3 - 1); }
    result[id.y * frame.width + id.x] = sum / 9.0;
}

@compute @workgroup_size(8, 8)
fn edges(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= frame.width || id.y >= frame.height { return; }
    let x = i32(id.x);
    let y = i32(id.y);
    let slope = vec2<f32>(at(x + 1, y) - at(x - 1, y), at(x, y + 1) - at(x, y - 1));
    result[id.y * frame.width + id.x] = length(slope);
}

@compute @workgroup_size(64)
fn count(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&source) { return; }
    let bin = min(u32(source[id.x] * f32(arrayLength(&bins))), arrayLength(&bins) - 1u);
    atomicAdd(&bins[bin], 1u);
}
";

fn main() -> Result<(), Box<dyn Error>> {
    let gpu = Gpu::open(Options::from_env()?)?;
    let [blur, edges, count] =
        ["blur", "edges", "count"].map(|entry| Kernel::with_entry(&gpu, WGSL, entry));
    let (blur, edges, count) = (blur?, edges?, count?);
    let pixels = (WIDTH * HEIGHT) as usize;
    let picture_bytes = 4 * pixels as u64;
    let tiles = [WIDTH.div_ceil(8), HEIGHT.div_ceil(8), 1];

    let start = Instant::now();
    let mut in_flight = VecDeque::new();
    let mut counts: Vec<Vec<u32>> = Vec::new();
    for number in 0..FRAMES {
        let frame = [WIDTH, HEIGHT, number];
        let noise = gpu.buffer_from(&noise(pixels, number))?.named("noise");
        let blurred = blur
            .call()
            .bind("source", &noise)
            .out("result", picture_bytes)
            .params(&frame)
            .groups(tiles)
            .run_one()?;
        let outlined = edges
            .call()
            .bind("source", &blurred)
            .out("result", picture_bytes)
            .params(&frame)
            .groups(tiles)
            .run_one()?;
        let counted = count
            .call()
            .bind("source", &outlined)
            .out("bins", 4 * BINS as u64)
            .groups([(pixels as u32).div_ceil(64), 1, 1])
            .run_one()?;
        // The device starts while the host prepares the next frame.
        gpu.flush()?;
        in_flight.push_back(counted.to_vec_async::<u32>());
        if in_flight.len() > IN_FLIGHT {
            let oldest = in_flight.pop_front().ok_or("a frame is in flight")?;
            counts.push(pollster::block_on(oldest)?);
        }
    }
    for rest in in_flight {
        counts.push(pollster::block_on(rest)?);
    }
    let seconds = start.elapsed().as_secs_f64();
    let last = counts.last().ok_or("there are frames")?;
    println!("edges of the last frame, by brightness: {last:?}");
    let is_whole = |bins: &Vec<u32>| bins.iter().sum::<u32>() as usize == pixels;
    assert!(counts.iter().all(is_whole), "a pixel was lost");
    println!(
        "pipeline: right=yes frames={} frames_per_second={:.0} buffers_created={}",
        counts.len(),
        f64::from(FRAMES) / seconds,
        gpu.memory().stats().slabs_created
    );
    Ok(())
}

/// The same frames on every machine.
fn noise(pixels: usize, number: u32) -> Vec<f32> {
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32
    };
    (0..pixels).map(next).collect()
}
