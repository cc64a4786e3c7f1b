//! A long job whose device is lost in the middle. Its result must equal that of an uninterrupted
//! job, bit for bit.
//!
//! ```text
//! cargo run --release --example survive_loss
//! ```
//!
//! A healthy machine loses no device on demand. So the example does it in two ways. The app
//! destroys a device that it opened itself: everything there is really gone, and the job continues
//! on another one (`readopt`). A device that lapidary opened is only declared lost. From then on
//! nothing reaches it, and `reopen` replaces it, as after a crash of a driver. Then the example
//! shows which evicted tensors outlive a device. The last line is for programs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lapidary::interop::wanted_features;
use lapidary::units::Bytes;
use lapidary::{DType, Gpu, Options, Source, Tensor, stats::Recovered, wgpu};

/// The training data: number of examples, and numbers per example.
const EXAMPLES: usize = 512;
const INPUTS: usize = 128;
const HIDDEN: usize = 256;
const OUTPUTS: usize = 32;

const STEPS: u32 = 60;
/// Steps between two saved states.
const SAVE_EVERY: u32 = 20;
/// The step in which the device is lost. Steps since the last saved state are repeated.
const LOST_IN: u32 = 34;

const RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

fn main() -> ExitCode {
    survive_loss().unwrap_or_else(|error| {
        eprintln!("survive_loss: failed: {error}");
        ExitCode::FAILURE
    })
}

fn survive_loss() -> Result<ExitCode, Box<dyn Error>> {
    let folder = Folder::new()?;
    let (mut losses, mut is_equal) = (Vec::new(), true);
    for is_apps in [false, true] {
        let mut host = Host::open(is_apps)?;
        let caps = host.gpu().caps();
        let whose = if is_apps { "the app's" } else { "our own" };
        println!("{whose} device, {} ({})", caps.name, caps.backend);

        let expected = run(&mut host, &folder, None, &mut losses)?;
        println!("  never interrupted: {}", expected.error);
        let learned = run(&mut host, &folder, Some(LOST_IN), &mut losses)?;
        let same = if learned == expected {
            "the same"
        } else {
            "NOT the same"
        };
        println!("  interrupted: {}, all weights {same}\n", learned.error);
        is_equal &= learned == expected;
    }
    show_heap()?;
    let kept_bytes: u64 = losses.iter().map(|loss| loss.kept_bytes).sum();
    let gone = losses.iter().flat_map(|loss| &loss.gone);
    let gone_bytes: u64 = gone.map(|(_, bytes)| bytes).sum();
    println!(
        "survive_loss: equal={is_equal} losses={} kept_bytes={kept_bytes} gone_bytes={gone_bytes}",
        losses.len()
    );
    Ok(match is_equal && losses.len() == 2 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Shows what `Options::host_heap` means for an evicted tensor whose device is lost.
fn show_heap() -> lapidary::Result<()> {
    println!("an evicted tensor of 64 KiB, and a lost device");
    for host_heap in [false, true] {
        let gpu = Gpu::open(Options {
            host_heap: Some(host_heap),
            ..Options::from_env()?
        })?;
        let tensor = gpu.rand_normal(&[1 << 14], 0.0, 1.0, 1, DType::F32)?;
        tensor.evict()?;
        gpu.notify_lost("this example says so");
        let recovered = gpu.reopen()?;
        let outcome = match recovered.gone_with_heap_bytes {
            0 => "it is there".to_owned(),
            bytes => format!("{} are gone with the device's heap", Bytes(bytes)),
        };
        println!("  host_heap {host_heap}: {outcome}");
    }
    println!();
    Ok(())
}

/// Runs the job to its end, also if the device is lost in one of its steps. Adds what each recovery
/// found to `losses`.
fn run(
    host: &mut Host,
    folder: &Folder,
    mut lost_in: Option<u32>,
    losses: &mut Vec<Recovered>,
) -> Result<Learned, Box<dyn Error>> {
    let gpu = host.gpu().clone();
    let path = folder.0.join(format!("lost_in_{lost_in:?}.state"));
    let mut job = Job::new(&gpu, &folder.examples())?;
    while job.step < STEPS {
        if lost_in == Some(job.step) {
            lost_in = None;
            host.lose();
        }
        match job.advance(&gpu, &path) {
            Ok(()) => {}
            Err(lapidary::Error::DeviceLost { reason }) => {
                println!("  step {}: the device is lost: {reason}", job.step);
                let recovered = host.renew()?;
                print_recovered(&recovered);
                job.restore(&gpu, &path)?;
                println!("    on from step {}, which the state file has", job.step);
                losses.push(recovered);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(job.learned()?)
}

fn print_recovered(recovered: &Recovered) {
    let kept_bytes = Bytes(recovered.kept_bytes);
    println!(
        "    {} tensors are kept elsewhere ({kept_bytes})",
        recovered.kept
    );
    println!("    {} were only on the device:", recovered.gone.len());
    for (made_at, bytes) in &recovered.gone {
        println!("      {:>9}  {made_at}", Bytes(*bytes).to_string());
    }
}

/// A network of two layers that learns a teacher's answers by gradient descent.
struct Job {
    examples: Tensor,
    /// The teacher's answers.
    targets: Tensor,
    weights: [Tensor; 2],
    /// The momentum of the weights.
    velocities: [Tensor; 2],
    step: u32,
}

impl Job {
    fn new(gpu: &Gpu, path: &Path) -> Result<Job, Box<dyn Error>> {
        // The file gives these again, as often as needed.
        let source = Source::file(path, 0)?;
        let examples = gpu.backed(source, &[EXAMPLES, INPUTS], DType::F32)?;

        // These are computed once and only read afterwards. So a copy elsewhere stays valid, and
        // they can be restored from it.
        let teacher = gpu.rand_normal(&[INPUTS, OUTPUTS], 0.0, 0.1, 1, DType::F32)?;
        let targets = examples.matmul(&teacher)?.tanh()?;
        targets.evict()?;

        // These change in every step. They are on the device only, and are saved from time to time.
        let shapes = [[INPUTS, HIDDEN], [HIDDEN, OUTPUTS]];
        let weight = |at: usize| gpu.rand_normal(&shapes[at], 0.0, 0.05, at as u64, DType::F32);
        let velocity = |at: usize| gpu.zeros(&shapes[at], DType::F32);
        Ok(Job {
            examples: examples.named("examples"),
            targets: targets.named("targets"),
            weights: [weight(0)?.named("weight 0"), weight(1)?.named("weight 1")],
            velocities: [
                velocity(0)?.named("velocity 0"),
                velocity(1)?.named("velocity 1"),
            ],
            step: 0,
        })
    }

    /// One step, and a saved state after some.
    fn advance(&mut self, gpu: &Gpu, path: &Path) -> lapidary::Result<()> {
        let hidden = self.examples.matmul(&self.weights[0])?.tanh()?;
        let excess = (hidden.matmul(&self.weights[1])? - &self.targets)?;

        // The gradients of the squared excess, summed over the outputs, by hand.
        let excess = (excess * (2.0 / EXAMPLES as f32))?;
        let slope = ((&hidden * &hidden)? * -1.0)? + 1.0;
        let behind = (excess.matmul(&self.weights[1].t()?)? * slope?)?;
        let gradients = [
            self.examples.t()?.matmul(&behind)?,
            hidden.t()?.matmul(&excess)?,
        ];
        for (at, gradient) in gradients.iter().enumerate() {
            self.velocities[at].mul_(MOMENTUM)?;
            self.velocities[at].add_(gradient)?;
            self.weights[at].sub_(&(&self.velocities[at] * RATE)?)?;
        }
        gpu.flush()?;
        self.step += 1;
        if self.step.is_multiple_of(SAVE_EVERY) {
            self.save(gpu, path)?;
        }
        Ok(())
    }

    fn save(&self, gpu: &Gpu, path: &Path) -> lapidary::Result<()> {
        let step = gpu.scalar(self.step)?;
        let ([weight_0, weight_1], [velocity_0, velocity_1]) = (&self.weights, &self.velocities);
        let tensors = [
            ("step", &step),
            ("weight 0", weight_0),
            ("weight 1", weight_1),
            ("velocity 0", velocity_0),
            ("velocity 1", velocity_1),
        ];
        gpu.files().save_state(path, &tensors)
    }

    /// Restores the saved tensors; lapidary restores the others by itself.
    fn restore(&mut self, gpu: &Gpu, path: &Path) -> lapidary::Result<()> {
        let state = gpu.files().load_state(path)?;
        self.weights = [state.get("weight 0")?, state.get("weight 1")?];
        self.velocities = [state.get("velocity 0")?, state.get("velocity 1")?];
        self.step = state.get("step")?.item()?;
        Ok(())
    }

    fn learned(&self) -> lapidary::Result<Learned> {
        let hidden = self.examples.matmul(&self.weights[0])?.tanh()?;
        let excess = (hidden.matmul(&self.weights[1])? - &self.targets)?;
        let error = (&excess * &excess)?.mean(&[0, 1])?.item::<f32>()?;
        let mut weights = Vec::new();
        for weight in &self.weights {
            weights.extend(weight.to_vec::<f32>()?.into_iter().map(f32::to_bits));
        }
        Ok(Learned {
            weights,
            error: format!("a mean squared error of {error:.3e}"),
        })
    }
}

/// The result of a job.
#[derive(PartialEq)]
struct Learned {
    /// All weights, as bits.
    weights: Vec<u32>,
    error: String,
}

/// A device that can be lost, and the way to replace it.
enum Host {
    /// One that lapidary opened.
    Ours(Gpu),
    /// One that the app opened.
    Apps { gpu: Gpu, device: wgpu::Device },
}

impl Host {
    fn open(is_apps: bool) -> Result<Host, Box<dyn Error>> {
        // What is evicted has to outlive the device.
        let options = Options {
            host_heap: Some(false),
            ..Options::from_env()?
        };
        if !is_apps {
            return Ok(Host::Ours(Gpu::open(options)?));
        }
        let (adapter, device, queue) = pollster::block_on(open_apps())?;
        let gpu = Gpu::adopt_with(&adapter, &device, &queue, options)?;
        Ok(Host::Apps { gpu, device })
    }

    fn gpu(&self) -> &Gpu {
        match self {
            Host::Ours(gpu) | Host::Apps { gpu, .. } => gpu,
        }
    }

    fn lose(&self) {
        match self {
            Host::Ours(gpu) => gpu.notify_lost("this example says so"),
            Host::Apps { device, .. } => device.destroy(),
        }
    }

    /// Replaces the device of the same `Gpu`.
    fn renew(&mut self) -> Result<Recovered, Box<dyn Error>> {
        match self {
            Host::Ours(gpu) => Ok(gpu.reopen()?),
            Host::Apps { gpu, device } => {
                let (adapter, another, queue) = pollster::block_on(open_apps())?;
                let recovered = gpu.readopt(&adapter, &another, &queue)?;
                *device = another;
                Ok(recovered)
            }
        }
    }
}

/// Opens a device as an app does; `WGPU_ADAPTER_NAME` chooses the adapter.
async fn open_apps() -> Result<(wgpu::Adapter, wgpu::Device, wgpu::Queue), Box<dyn Error>> {
    let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    let instance = wgpu::Instance::new(desc);
    let adapter = wgpu::util::initialize_adapter_from_env_or_default(&instance, None).await?;
    let desc = wgpu::DeviceDescriptor {
        label: Some("app"),
        required_features: wanted_features(&adapter),
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let (device, queue) = adapter.request_device(&desc).await?;
    Ok((adapter, device, queue))
}

/// A new temporary folder with the examples in it; removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let name = format!("lapidary-survive-loss-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Another process's folder of this name is an error, and stays.
        std::fs::create_dir(&path)?;
        let folder = Folder(path);
        let mut random = fastrand::Rng::with_seed(5);
        let examples = (0..EXAMPLES * INPUTS).map(|_| 2.0 * random.f32() - 1.0);
        let bytes: Vec<u8> = examples.flat_map(f32::to_ne_bytes).collect();
        std::fs::write(folder.examples(), bytes)?;
        Ok(folder)
    }

    fn examples(&self) -> PathBuf {
        self.0.join("examples.bin")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
