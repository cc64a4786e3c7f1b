//! A kernel of your own: computes the Mandelbrot set in colour and saves it as a PNG.
//!
//! ```text
//! cargo run --release --example custom_kernel [-- picture.png]
//! ```
//!
//! The kernel knows nothing of lapidary: it is plain WGSL with one output and one uniform, bound by
//! name. Without a path the picture goes to `target/mandelbrot.png`.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lapidary::{DType, Gpu, Kernel, Options};

const WGSL: &str = "
struct Params {
    centre: vec2<f32>,
    // The distance from the middle of the picture to its right edge.
    reach: f32,
    steps: u32,
    size: vec2<u32>,
}

@group(0) @binding(0) var<storage, read_write> pixels: array<u32>;
@group(0) @binding(1) var<uniform> p: Params;

// How long z = z * z + c stays near: a smooth fraction of all steps; 1 if it never leaves.
fn staying(c: vec2<f32>) -> f32 {
    var z = vec2<f32>(0.0);
    for (var step = 0u; step < p.steps; step++) {
        z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        let far = dot(z, z);
        if far > 256.0 {
            return (f32(step) + 4.0 - log2(log2(far))) / f32(p.steps);
        }
    }
    return 1.0;
}

fn colour(staying: f32) -> vec3<f32> {
    let wave = 6.2831853 * (vec3<f32>(0.55, 0.63, 0.72) + 2.5 * sqrt(staying));
    return select(0.5 + 0.5 * cos(wave), vec3<f32>(0.0), staying >= 1.0);
}

@compute @workgroup_size(8, 8)
fn mandelbrot(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= p.size) { return; }
    // Four samples a pixel, for smooth edges.
    var sum = vec3<f32>(0.0);
    for (var sample = 0u; sample < 4u; sample++) {
        let inside = vec2<f32>(f32(sample & 1u), f32(sample >> 1u)) / 2.0 + 0.25;
        let at = 2.0 * (vec2<f32>(id.xy) + inside) - vec2<f32>(p.size);
        sum += colour(staying(p.centre + p.reach * at / f32(p.size.x)));
    }
    pixels[id.y * p.size.x + id.x] = pack4x8unorm(vec4<f32>(sum / 4.0, 1.0));
}
";

/// The same layout as `struct Params` in the text.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Params {
    centre: [f32; 2],
    reach: f32,
    steps: u32,
    size: [u32; 2],
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| "target/mandelbrot.png".into());
    let gpu = Gpu::open(Options::from_env()?)?;
    let kernel = Kernel::new(&gpu, WGSL)?;

    let (width, height) = (960, 640);
    let started = Instant::now();
    let picture = kernel
        .call()
        .out("pixels", &[height, width], DType::U32)
        .params(&Params {
            centre: [-0.7435, 0.1314],
            reach: 0.006,
            steps: 1000,
            size: [width as u32, height as u32],
        })
        .groups([width.div_ceil(8) as u32, height.div_ceil(8) as u32, 1])
        .run_one()?
        .named("picture");
    let pixels = picture.to_vec::<u32>()?;
    let took = started.elapsed();
    save(&path, width, height, &pixels)?;

    println!("{}", gpu.memory().stats());
    println!(
        "{width} x {height} pixels in {:.0} ms on {}: {}",
        took.as_secs_f64() * 1e3,
        gpu.caps().name,
        path.display()
    );
    Ok(())
}

/// Writes pixels of four bytes: red, green, blue, opacity.
fn save(path: &Path, width: usize, height: usize, pixels: &[u32]) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let bytes: Vec<u8> = pixels
        .iter()
        .flat_map(|pixel| pixel.to_le_bytes())
        .collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    writer.finish()?;
    Ok(())
}
