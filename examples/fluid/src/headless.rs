//! The run without a window: the budget falls and rises while frames are drawn, and the program
//! looks back. At the end the fluid must be the same as without a budget, to the bit.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

use fluid::{Fluid, Picture, Stir};
use lapidary::units::Bytes;
use lapidary::{Gpu, Options, wgpu};

use crate::Outcome;
use crate::args::Args;
use crate::device::Device;
use crate::picture;
use crate::scene::{Scene, Target};

const SIZE: [u32; 2] = [1152, 720];
const FRAMES: u64 = 240;

/// The small budget is the large one divided by this.
const SMALLER: u64 = 4;

/// Measurements that decide whether a run passed.
#[derive(Debug, Default)]
struct Findings {
    over_budget_bytes: u64,
    peak_bytes: u64,
    losses: u64,
    stood_still: u64,
}

pub(crate) fn run(args: &Args, path: &Path) -> Outcome {
    let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    let instance = wgpu::Instance::new(desc);
    let mut device = Device::open(&instance, None)?;
    let mut picture = Picture::new(&device.device, SIZE);
    let mut scene = Scene::new(&device, Picture::FORMAT, args)?;
    let began = Instant::now();
    let mut found = Findings::default();
    let frames = args.frames.unwrap_or(FRAMES).max(1);
    let mut drawn = 0;
    while drawn < frames && args.time.is_none_or(|time| began.elapsed() < time) {
        play(&mut scene, args, drawn, frames);
        if args.lose == Some(drawn) && found.losses == 0 {
            device.device.destroy();
        }
        match draw(&mut scene, &device, &picture, drawn) {
            Ok(()) => {}
            Err(error) if device.is_lost_by(error.as_ref()) => {
                device = Device::open(&instance, None)?;
                picture = Picture::new(&device.device, SIZE);
                println!("{}", scene.readopt(&device)?);
                found.losses += 1;
                if found.losses > 1 {
                    return Err("the new device is lost as well".into());
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        found.look(&scene);
        drawn += 1;
        show_progress(drawn, frames, &scene);
    }
    let pixels = picture::read(&picture, &device)?;
    picture::save(path, SIZE, &pixels)?;
    println!("{}\n{}", scene.gpu.memory().stats(), scene.times);
    println!("the picture is {}", path.display());
    found.judge(args, &mut scene, &device, &pixels)
}

/// The events of a frame: a change of the budget, and a look back.
fn play(scene: &mut Scene, args: &Args, frame: u64, frames: u64) {
    let small_bytes = (args.budget_bytes / SMALLER).max(1);
    let eighth = frame * 8 / frames;
    scene.pace.wanted_bytes = match eighth {
        0 | 1 | 5 => args.budget_bytes,
        _ => small_bytes,
    };
    // From the newest frame to the oldest, which is not on the device any more.
    let kept = scene.fluid.history().len() as u64;
    let (from, until) = (frames / 2, frames * 5 / 8);
    scene.looks_at = (kept > 0 && (from..until).contains(&frame))
        .then(|| ((until - 1 - frame) * kept / (until - from)) as usize);
}

/// A hand that moves in a circle; its place depends only on the step.
fn hand(step: u64) -> Stir {
    let angle = |step: u64| step as f32 * 0.04;
    let at = |angle: f32| [0.5 + 0.26 * angle.cos(), 0.42 + 0.2 * (1.7 * angle).sin()];
    let (now, next) = (at(angle(step)), at(angle(step + 1)));
    Stir {
        at: now,
        by: [next[0] - now[0], next[1] - now[1]],
        dye: [0.05, 0.03, 0.006],
    }
}

fn draw(scene: &mut Scene, device: &Device, picture: &Picture, frame: u64) -> Outcome {
    let target = Target {
        view: &picture.view,
        size: picture.size,
        scale: 1.0,
    };
    let size = picture.size.map(|side| side as f32);
    let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, size.into());
    let input = egui::RawInput {
        screen_rect: Some(screen),
        time: Some(frame as f64 / 60.0),
        ..Default::default()
    };
    let stir = hand(scene.fluid.now().step());
    scene.frame(device, &target, input, Some(stir))?;
    // A window would wait for its screen here.
    scene.gpu.finish()?;
    Ok(())
}

fn show_progress(drawn: u64, frames: u64, scene: &Scene) {
    if std::io::stderr().is_terminal() {
        let (budget, held) = (
            Bytes(scene.pace.bytes),
            scene.gpu.memory().stats().device_bytes.now,
        );
        let held = Bytes(held);
        eprint!("\rframe {drawn} of {frames}, {held} of a budget of {budget}      ");
        if drawn == frames {
            eprintln!();
        }
        // A progress line that cannot be shown does not matter.
        let _ = std::io::stderr().flush();
    }
}

impl Findings {
    fn look(&mut self, scene: &Scene) {
        let held_bytes = scene.gpu.memory().stats().device_bytes.now;
        self.peak_bytes = self.peak_bytes.max(held_bytes);
        let over_bytes = held_bytes.saturating_sub(scene.pace.bytes);
        self.over_budget_bytes = self.over_budget_bytes.max(over_bytes);
        self.stood_still += u64::from(scene.trouble.is_some());
    }

    /// Prints the line for programs. A broken promise is also an error.
    fn judge(&self, args: &Args, scene: &mut Scene, device: &Device, pixels: &[u8]) -> Outcome {
        let stats = scene.gpu.memory().stats();
        let step = scene.fluid.now().step();
        let equal = alone(device, args, step)? == scene.fluid.now().dye().to_vec::<f32>()?;
        let again = rewound(scene, step)?;
        let colours = colours(pixels);
        println!(
            "fluid: frames={} steps={step} colours={colours} equal={equal} rewound={again} over_budget_bytes={} \
             peak_device_bytes={} budget_bytes={} evicted_bytes={} restored_bytes={} stood_still={} losses={}",
            scene.drawn,
            self.over_budget_bytes,
            self.peak_bytes,
            args.budget_bytes,
            stats.evicted_bytes,
            stats.restored_bytes,
            self.stood_still,
            self.losses,
        );
        // After a loss a fluid may restart with another past. Without kept frames it has none.
        let is_same = equal && (again || args.keep == 0);
        match is_same || self.losses > 0 {
            true => Ok(()),
            false => Err("the fluid differs from the one without a budget".into()),
        }
    }
}

/// The fluid's colours after the same steps on the same device without a budget.
fn alone(device: &Device, args: &Args, steps: u64) -> Outcome<Vec<f32>> {
    let (adapter, queue) = (&device.adapter, &device.queue);
    let gpu = Gpu::adopt_with(adapter, &device.device, queue, Options::from_env()?)?;
    let mut fluid = Fluid::new(&gpu, args.size)?;
    for step in 0..steps {
        fluid.step(hand(step))?;
    }
    Ok(fluid.now().dye().to_vec()?)
}

/// Does the fluid reach the same state again from the oldest kept frame?
fn rewound(scene: &mut Scene, steps: u64) -> Outcome<bool> {
    let expected = scene.fluid.now().dye().to_vec::<f32>()?;
    if !scene.fluid.go_back(0) {
        return Ok(false);
    }
    while scene.fluid.now().step() < steps {
        let stir = hand(scene.fluid.now().step());
        scene.fluid.step(stir)?;
        // Flush as a frame would: all steps at once need more memory than the budget.
        scene.gpu.flush()?;
    }
    Ok(scene.fluid.now().dye().to_vec::<f32>()? == expected)
}

/// Number of different colours, with 16 levels for each light.
fn colours(pixels: &[u8]) -> usize {
    let level = |part: u8| usize::from(part / 16);
    let mut seen = vec![false; 16 * 16 * 16];
    for pixel in pixels.chunks_exact(4) {
        seen[level(pixel[0]) * 256 + level(pixel[1]) * 16 + level(pixel[2])] = true;
    }
    seen.iter().filter(|seen| **seen).count()
}
