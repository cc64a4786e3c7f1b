//! Two users of one device: an app opens it and draws, lapidary computes on it, and no byte is
//! copied between them. Waves run through two slits; the app's render pass reads them in place.
//!
//! ```text
//! cargo run --release --example adopt_device -- [PICTURE.png]
//! ```
//!
//! The picture goes to `target/adopt_device.png` by default.

mod app;

use std::error::Error;
use std::f32::consts::TAU;
use std::path::PathBuf;

use app::App;
use lapidary::interop::Access;
use lapidary::{DType, Gpu, Tensor};

/// A multiple of 64, so that the rows of the picture need no padding when they are read back.
const WIDTH: usize = 640;
const HEIGHT: usize = 384;
const STEPS: usize = 760;
/// (Speed × time ÷ distance)² of a step: stable up to 0.5.
const COURANT: f32 = 0.4;
/// The column that moves up and down, which makes straight waves, and its period in steps.
const PADDLE: usize = 80;
const PERIOD: f32 = 32.0;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| "target/adopt_device.png".into());

    // The app has its device, and a buffer with its own map.
    let app = App::new(WIDTH as u32, HEIGHT as u32)?;
    let map = app.buffer(&map());

    // lapidary adopts the device, and the map becomes a tensor.
    let gpu = Gpu::adopt(&app.adapter, &app.device, &app.queue)?;
    let open = gpu.import(&map, 0..map.size(), &[HEIGHT, WIDTH], DType::F32)?;
    let waves = simulate(&gpu, &open)?;

    // The app's own commands read the tensor from its range.
    gpu.with_bound(&[(&waves, Access::Read)], |bound| {
        vec![app.draw(bound[0].binding(), map.as_entire_binding())]
    })?;
    app.save(&path)?;

    println!("{}", gpu.memory().stats());
    println!("adopt_device: the picture is {}", path.display());
    Ok(())
}

/// The wave speed factor of each point: 1 in open water, 0 in the wall with its two slits. At the
/// border it is a little below 1, which absorbs waves instead of reflecting them.
fn map() -> Vec<f32> {
    const WALL: std::ops::Range<usize> = 170..178;
    const SLITS: [std::ops::Range<usize>; 2] = [140..156, 228..244];
    const BORDER: usize = 64;
    let mut map = Vec::with_capacity(WIDTH * HEIGHT);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let in_slit = SLITS.iter().any(|slit| slit.contains(&y));
            let to_border = x.min(y).min(WIDTH - 1 - x).min(HEIGHT - 1 - y);
            let depth = BORDER.saturating_sub(to_border) as f32 / BORDER as f32;
            map.push(match WALL.contains(&x) && !in_slit {
                true => 0.0,
                false => 1.0 - 0.08 * depth * depth * depth,
            });
        }
    }
    map
}

/// The wave equation, by finite differences: the height of the water after the last step.
fn simulate(gpu: &Gpu, open: &Tensor) -> lapidary::Result<Tensor> {
    let mut now = gpu.zeros(&[HEIGHT, WIDTH], DType::F32)?.named("now");
    let mut before = gpu.zeros(&[HEIGHT, WIDTH], DType::F32)?.named("before");
    let open = shifted(open, 0)?;
    for step in 0..STEPS {
        let push = 0.15 * (TAU * step as f32 / PERIOD).cos();
        now.narrow(1, PADDLE, 1)?.add_(push)?;

        // The four neighbours of all points: views of the same memory, shifted by an element or a
        // row.
        let (left, right) = (shifted(&now, -1)?, shifted(&now, 1)?);
        let (above, below) = (
            shifted(&now, -(WIDTH as isize))?,
            shifted(&now, WIDTH as isize)?,
        );
        let neighbours = ((left + right)? + (above + below)?)?;
        let momentum = (shifted(&now, 0)? * (2.0 - 4.0 * COURANT))?;
        let next = ((neighbours * COURANT)? + momentum)?;

        // The next state overwrites the state before the current one.
        let old = shifted(&before, 0)?;
        old.copy_(&((next - &old)? * &open)?)?;
        std::mem::swap(&mut now, &mut before);
    }
    Ok(now)
}

/// All points except those of the first and the last row, shifted by `by` elements in memory. At
/// the end of a row that reaches the next row, as on a cylinder.
fn shifted(field: &Tensor, by: isize) -> lapidary::Result<Tensor> {
    let flat = field.view_as(&[HEIGHT * WIDTH])?;
    flat.narrow(0, WIDTH.saturating_add_signed(by), (HEIGHT - 2) * WIDTH)
}
