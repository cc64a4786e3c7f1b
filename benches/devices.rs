//! Several devices: copies between them, sums over them, and training on all of them.
//!
//! ```text
//! cargo bench --bench devices
//! ```
//!
//! Copies and sums run on two devices of the default adapter. On opened devices the host sees the
//! memory, if it can; on adopted ones the bytes go through staging and read-back buffers. The
//! reference is memcpy on one thread, in the same run, whose rounds alternate with the others'. An
//! all-reduce over two devices reads all bytes of both and writes all bytes to both, which is at
//! least the work of two copies.
//!
//! Training runs on simulated devices that keep time: kernels and transfers take as long as their
//! bytes take at a fixed rate. The ratios of computing to gradients, and of the rates, are those of
//! ResNet-50 on a V100 behind PCIe 3. Size and speed are a tenth. Each device has a batch of its
//! own. The efficiency is the time of a step on one device, divided by that on several.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lapidary::devices::{Balance, Group, Reduce, Replica, Replicas, ReplicasOptions};
use lapidary::optim::{Sgd, SgdOptions};
use lapidary::sim::{SimMode, SimOptions, Speed};
use lapidary::{DType, Error, Gpu, Options, Result, Tensor, wgpu};

const SIZES_BYTES: [usize; 3] = [1 << 20, 16 << 20, 64 << 20];
const ROUNDS: usize = 12;

/// Layers of the perceptron, and their width.
const LAYERS: usize = 8;
const WIDTH: usize = 512;
const ROWS: usize = 1024;
const STEPS: usize = 7;
/// About a tenth of PyTorch's 25 MiB.
const BUCKET_BYTES: u64 = 2 << 20;

type Case<'a> = &'a mut dyn FnMut() -> Result<()>;

fn main() -> Result<()> {
    let opened = [
        Gpu::open(Options::from_env()?)?,
        Gpu::open(Options::from_env()?)?,
    ];
    println!("on two devices of {}", opened[0].caps().name);
    let adopted = [adopt()?, adopt()?];
    for bytes in SIZES_BYTES {
        transfers(bytes, &opened, &adopted)?;
    }
    println!("training on simulated devices of a fixed rate");
    let alone = step_time(&simulated(&[1.0])?)?;
    println!("  1 device: {:>6.1} ms a step", ms(alone));
    for count in [2, 4, 8] {
        let taken = step_time(&simulated(&vec![1.0; count])?)?;
        let efficiency = alone.as_secs_f64() / taken.as_secs_f64();
        println!(
            "  {count} devices: {:>6.1} ms a step, efficiency {efficiency:.2}",
            ms(taken)
        );
    }
    balance()
}

/// Copies and sums of `bytes` bytes. Prints the best time of each, and its share of the rate of
/// memcpy.
fn transfers(bytes: usize, opened: &[Gpu; 2], adopted: &[Gpu; 2]) -> Result<()> {
    let (from, mut to) = (vec![7_u8; bytes], vec![0_u8; bytes]);
    let mut memcpy = || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        Ok(())
    };
    let all = [opened, adopted].map(|gpus| Pair::new(gpus, bytes));
    let [opened, adopted] = all;
    let (opened, adopted) = (opened?, adopted?);
    let mut cases: [(&str, u32, Case<'_>); 5] = [
        ("memcpy", 1, &mut memcpy),
        ("to, opened devices", 1, &mut || opened.copy()),
        ("to, adopted devices", 1, &mut || adopted.copy()),
        ("all_reduce, opened devices", 2, &mut || opened.sum()),
        ("all_reduce, adopted devices", 2, &mut || adopted.sum()),
    ];
    let mut best = [Duration::MAX; 5];
    for round in 0..ROUNDS {
        for ((_, _, case), best) in cases.iter_mut().zip(&mut best) {
            let start = Instant::now();
            case()?;
            if round > 0 {
                *best = start.elapsed().min(*best);
            }
        }
    }
    println!("  {} MiB", bytes >> 20);
    for ((name, copies, _), taken) in cases.iter().zip(best) {
        let share = 100.0 * ms(*copies * best[0]) / ms(taken);
        println!(
            "    {name:<28} {:>8.3} ms, {share:>4.0} % of memcpy",
            ms(taken)
        );
    }
    Ok(())
}

/// Two devices with a tensor each.
struct Pair {
    group: Group,
    tensors: Vec<Tensor>,
}

impl Pair {
    fn new(gpus: &[Gpu; 2], bytes: usize) -> Result<Self> {
        let ones = |gpu: &Gpu| gpu.ones(&[bytes / 4], DType::F32);
        Ok(Pair {
            group: Group::new(gpus)?,
            tensors: gpus.iter().map(ones).collect::<Result<_>>()?,
        })
    }

    /// Until the bytes are there.
    fn copy(&self) -> Result<()> {
        let there = &self.group.gpus()[1];
        let copy = self.tensors[0].to(there)?;
        there.finish()?;
        drop(copy);
        Ok(())
    }

    fn sum(&self) -> Result<()> {
        let sums = self.group.all_reduce(&self.tensors, Reduce::Sum)?;
        self.group.gpus().iter().try_for_each(|gpu| gpu.finish())?;
        drop(sums);
        Ok(())
    }
}

/// A device on which the host sees no memory.
fn adopt() -> Result<Gpu> {
    let failed = |error: String| Error::NoAdapter {
        reason: error,
        hint: "This bench needs an adapter".into(),
    };
    let instance =
        wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default()));
    let adapter = adapter.map_err(|error| failed(error.to_string()))?;
    let wanted = wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP;
    let descriptor = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        required_features: adapter.features() & wanted,
        ..Default::default()
    };
    let device = pollster::block_on(adapter.request_device(&descriptor));
    let (device, queue) = device.map_err(|error| failed(error.to_string()))?;
    Gpu::adopt(&adapter, &device, &queue)
}

/// Simulated devices of these speeds.
fn simulated(speeds: &[f64]) -> Result<Vec<Gpu>> {
    let device = |speed: &f64| {
        let options = SimOptions {
            mode: SimMode::SizesOnly,
            memory_bytes: 4 << 30,
            speed: Some(Speed {
                upload_bytes_per_s: 1_200_000_000,
                download_bytes_per_s: 1_200_000_000,
                memory_bytes_per_s: (1e9 * speed) as u64,
                multiply_adds_per_s: 1 << 40,
                copy_ns: 0,
                submission_ns: 0,
            }),
            keeps_time: true,
            lag_submissions: 0,
            ..SimOptions::default()
        };
        Ok(Gpu::simulated(options)?.0)
    };
    speeds.iter().map(device).collect()
}

/// A perceptron on several devices.
struct Model {
    replicas: Replicas,
    sgds: Vec<Sgd>,
    inputs: Vec<Tensor>,
}

impl Model {
    fn new(gpus: &[Gpu], rows: &[usize]) -> Result<Self> {
        let weight = |_| gpus[0].zeros(&[WIDTH, WIDTH], DType::F32);
        let weights: Vec<Tensor> = (0..LAYERS).map(weight).collect::<Result<_>>()?;
        let all: Vec<&Tensor> = weights.iter().collect();
        let options = ReplicasOptions {
            bucket_bytes: BUCKET_BYTES,
            ..ReplicasOptions::default()
        };
        let replicas = Replicas::new(&Group::new(gpus)?, &all, options)?;
        let input = |(gpu, rows): (&Gpu, &usize)| gpu.zeros(&[*rows, WIDTH], DType::F32);
        Ok(Model {
            sgds: replicas.each(|own| Sgd::new(own, SgdOptions::default()))?,
            replicas,
            inputs: gpus.iter().zip(rows).map(input).collect::<Result<_>>()?,
        })
    }

    fn loss(own: Replica<'_>, inputs: &[Tensor]) -> Result<Tensor> {
        let mut h = inputs[own.index()].clone();
        for weight in own.parameters() {
            h = h.matmul(weight)?.relu()?;
        }
        h.mean_all()
    }

    /// The time of a step, until all devices have done it.
    fn step(&mut self) -> Result<Duration> {
        let (inputs, start) = (&self.inputs, Instant::now());
        let loss_of = |own: Replica<'_>| Self::loss(own, inputs);
        self.replicas.step(&mut self.sgds, loss_of)?;
        let gpus = self.replicas.group().gpus();
        gpus.iter().try_for_each(|gpu| gpu.finish())?;
        Ok(start.elapsed())
    }

    /// The time of each device's part of a step.
    fn part_times(&mut self) -> Result<Vec<Duration>> {
        let inputs = &self.inputs;
        let backward = self.replicas.backward(|own| Self::loss(own, inputs))?;
        Ok(backward.times)
    }
}

/// The median time of a step with a batch for each device.
fn step_time(gpus: &[Gpu]) -> Result<Duration> {
    let mut model = Model::new(gpus, &vec![ROWS; gpus.len()])?;
    model.step()?;
    let steps = (0..STEPS).map(|_| model.step());
    let mut times: Vec<Duration> = steps.collect::<Result<_>>()?;
    times.sort_unstable();
    Ok(times[STEPS / 2])
}

/// One batch on a fast device and one of a third of its speed.
fn balance() -> Result<()> {
    let gpus = simulated(&[1.0, 1.0 / 3.0])?;
    let mut balance = Balance::new(gpus.len());
    for round in 0..6 {
        let rows = balance.rows(2 * ROWS)?;
        let mut model = Model::new(&gpus, &rows)?;
        model.step()?;
        let taken = model.step()?;
        balance.note(&rows, &model.part_times()?)?;
        if round == 0 || round == 5 {
            println!(
                "  speeds 3 : 1, rows {rows:?}: {:>6.1} ms a step",
                ms(taken)
            );
        }
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}
