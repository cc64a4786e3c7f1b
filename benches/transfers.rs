//! Uploads and downloads, beside hand-written ones and beside memcpy.
//!
//! ```text
//! cargo bench --bench transfers [-- --small]
//! ```
//!
//! `--small` measures only the two smallest sizes, to test that everything works.
//!
//! The hand-written side uses `Queue::write_buffer` into an existing buffer, and a new read-back
//! buffer for each download. Beside `upload_with` it uses one mapped buffer repeatedly, and a copy
//! from it. The three alternate in blocks of rounds, so other load of the machine affects all. The
//! best round counts; the share is relative to memcpy in the same run. `look` is `read_with` of a
//! function that sums, beside the same sum over a hand-written download.
//!
//! `to_vec` returns a vector in memory that the system must first provide. So it is compared with
//! `Vec::clone`, which needs the same.
//!
//! The last case is 4 KiB, which the host accesses in place if it can, beside a hand-written
//! mapping.

use std::hint::black_box;
use std::time::Instant;

use lapidary::{Error, Gpu, Options, Result, Tensor, wgpu};

const SIZES: [usize; 5] = [64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];

/// Rounds in sequence. The first only warms the caches.
const BLOCK_ROUNDS: usize = 6;

type Case<'a> = &'a mut dyn FnMut() -> Result<()>;

/// The best time of each case. The cases alternate.
fn best_us<const N: usize>(bytes: usize, mut cases: [Case<'_>; N]) -> Result<[f64; N]> {
    let mut best = [f64::INFINITY; N];
    for _ in 0..((256 << 20) / bytes).clamp(4, 40) {
        for (case, best) in cases.iter_mut().zip(&mut best) {
            for round in 0..BLOCK_ROUNDS {
                let start = Instant::now();
                case()?;
                if round > 0 {
                    *best = best.min(start.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    Ok(best)
}

/// The app's own device, which both sides use.
async fn device() -> Option<(wgpu::Adapter, wgpu::Device, wgpu::Queue)> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = instance
        .request_adapter(&wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        })
        .await
        .ok()?;
    let wanted = wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP;
    let descriptor = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        required_features: adapter.features() & wanted,
        ..Default::default()
    };
    let (device, queue) = adapter.request_device(&descriptor).await.ok()?;
    Some((adapter, device, queue))
}

struct ByHand {
    device: wgpu::Device,
    queue: wgpu::Queue,
    buffer: wgpu::Buffer,
    /// Is mapped between uploads.
    staging: wgpu::Buffer,
}

impl ByHand {
    fn new(device: &wgpu::Device, queue: &wgpu::Queue, bytes: usize) -> Self {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        ByHand {
            device: device.clone(),
            queue: queue.clone(),
            buffer,
            staging,
        }
    }

    fn wait(&self) -> Result<()> {
        let waited = self.device.poll(wgpu::PollType::wait_indefinitely());
        waited.map(|_| ()).map_err(|error| Error::DeviceLost {
            reason: error.to_string(),
        })
    }

    fn upload(&self, data: &[u8]) -> Result<()> {
        self.queue.write_buffer(&self.buffer, 0, data);
        self.queue.submit([]);
        self.wait()
    }

    /// Uploads through the staging buffer.
    fn upload_staged(&self, data: &[u8]) -> Result<()> {
        if let Ok(mut view) = self.staging.get_mapped_range_mut(..) {
            view.copy_from_slice(data);
        }
        self.staging.unmap();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.staging, 0, &self.buffer, 0, self.buffer.size());
        self.queue.submit([encoder.finish()]);
        self.staging.map_async(wgpu::MapMode::Write, .., |_| {});
        self.wait()
    }

    fn download(&self, into: &mut Vec<u8>) -> Result<()> {
        let readback = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: self.buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.buffer, 0, &readback, 0, self.buffer.size());
        self.queue.submit([encoder.finish()]);
        readback.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait()?;
        if let Ok(view) = readback.get_mapped_range(..) {
            into.clear();
            into.extend_from_slice(&view);
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let Some((adapter, device, queue)) = pollster::block_on(device()) else {
        return Err(Gpu::open(Options::from_env().unwrap())
            .err()
            .unwrap_or(Error::DeviceLost {
                reason: "the adapter gave no device".into(),
            }));
    };
    let opened = Gpu::open(Options::from_env()?)?;
    let adopted = Gpu::adopt(&adapter, &device, &queue)?;
    println!("{} ({})", opened.caps().name, opened.caps().backend);
    println!("GB/s, and share of memcpy: by hand | own device | adopted device");
    let is_small = std::env::args().any(|arg| arg == "--small");
    for bytes in SIZES
        .into_iter()
        .take(if is_small { 2 } else { SIZES.len() })
    {
        let data: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        let mut copy = vec![0_u8; bytes];
        let [memcpy] = best_us(
            bytes,
            [&mut || {
                black_box(&mut copy).copy_from_slice(black_box(&data));
                Ok(())
            }],
        )?;
        let by_hand = ByHand::new(&device, &queue, bytes);
        let up = best_us(
            bytes,
            [
                &mut || by_hand.upload(&data),
                &mut || upload(&opened, &data),
                &mut || upload(&adopted, &data),
            ],
        )?;
        let with = best_us(
            bytes,
            [
                &mut || by_hand.upload_staged(&data),
                &mut || upload_with(&opened, &data),
                &mut || upload_with(&adopted, &data),
            ],
        )?;
        let (own, app) = (
            opened.tensor(&data, &[bytes])?,
            adopted.tensor(&data, &[bytes])?,
        );
        let mut downloaded = [(); 3].map(|()| Vec::with_capacity(bytes));
        let [into_hand, into_own, into_app] = &mut downloaded;
        let down = best_us(
            bytes,
            [
                &mut || by_hand.download(into_hand),
                &mut || own.read_into(into_own),
                &mut || app.read_into(into_app),
            ],
        )?;
        let rate = |us: f64| bytes as f64 / us / 1e3;
        let look = best_us(
            bytes,
            [
                &mut || {
                    by_hand.download(into_hand)?;
                    black_box(sum(into_hand));
                    Ok(())
                },
                &mut || {
                    own.read_with(|bytes| {
                        black_box(sum(bytes));
                    })
                },
                &mut || {
                    app.read_with(|bytes| {
                        black_box(sum(bytes));
                    })
                },
            ],
        )?;
        for (what, times) in [("up  ", up), ("with", with), ("down", down), ("look", look)] {
            let cells =
                times.map(|us| format!("{:>6.2} ({:>3.0} %)", rate(us), 100.0 * memcpy / us));
            println!(
                "{what} {:>8} KiB  {}  memcpy {:.1}",
                bytes >> 10,
                cells.join(" | "),
                rate(memcpy)
            );
        }
    }
    new_vectors(&opened, &adopted, if is_small { 1 << 20 } else { 64 << 20 })?;
    small(&adapter, &opened)
}

/// `to_vec` beside cloning a vector of the same elements.
fn new_vectors(opened: &Gpu, adopted: &Gpu, bytes: usize) -> Result<()> {
    let data: Vec<f32> = (0..bytes / 4).map(|index| index as f32).collect();
    let own = opened.tensor(&data, &[data.len()])?;
    let app = adopted.tensor(&data, &[data.len()])?;
    let to_vec = |tensor: &Tensor| tensor.to_vec::<f32>().map(|made| drop(black_box(made)));
    let times = best_us(
        bytes,
        [
            &mut || {
                drop(black_box(black_box(&data).clone()));
                Ok(())
            },
            &mut || to_vec(&own),
            &mut || to_vec(&app),
        ],
    )?;
    let names = ["Vec::clone", "to_vec, own device", "to_vec, adopted device"];
    for (name, us) in names.iter().zip(times) {
        let (rate, share) = (bytes as f64 / us / 1e3, times[0] / us);
        println!(
            "{} KiB {name:<22} {rate:>6.2} GB/s, {share:.2} of a clone's",
            bytes >> 10
        );
    }
    Ok(())
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

/// 4 KiB on an idle device.
fn small(adapter: &wgpu::Adapter, gpu: &Gpu) -> Result<()> {
    const BYTES: usize = 4 << 10;
    const CALLS: usize = 1000;
    let mappable = wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
    if !gpu.caps().maps_slabs || !adapter.features().contains(mappable) {
        return Ok(());
    }
    let descriptor = wgpu::DeviceDescriptor {
        required_features: mappable,
        ..Default::default()
    };
    let device = pollster::block_on(adapter.request_device(&descriptor));
    let (device, _queue) = device.map_err(|error| Error::DeviceLost {
        reason: error.to_string(),
    })?;
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: BYTES as u64,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::MAP_WRITE,
        mapped_at_creation: false,
    });
    let data = vec![7_u8; BYTES];
    let tensor = gpu.tensor(&data, &[BYTES])?;
    let mut into: Vec<u8> = Vec::new();
    let many = |call: &mut dyn FnMut() -> Result<()>| (0..CALLS).try_for_each(|_| call());
    let times = best_us(
        BYTES,
        [
            &mut || {
                many(&mut || {
                    buffer.map_async(wgpu::MapMode::Write, .., |_| {});
                    drop(device.poll(wgpu::PollType::Poll));
                    if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
                        view.copy_from_slice(&data);
                    }
                    buffer.unmap();
                    Ok(())
                })
            },
            &mut || many(&mut || tensor.write(&data)),
            &mut || many(&mut || gpu.tensor(&data, &[BYTES]).map(drop)),
            &mut || many(&mut || tensor.read_into(&mut into)),
            &mut || many(&mut || tensor.read_with(|bytes: &[u8]| bytes[7]).map(drop)),
        ],
    )?;
    let names = [
        "mapping by hand",
        "write",
        "tensor",
        "read_into",
        "read_with",
    ];
    for (name, us) in names.iter().zip(times) {
        let (us, by_hand) = (us / CALLS as f64, times[0] / CALLS as f64);
        println!(
            "4 KiB {name:<16} {us:>6.2} us, {:.1} x by hand",
            us / by_hand
        );
    }
    Ok(())
}

/// Creates a tensor and waits until the device has its bytes.
fn upload(gpu: &Gpu, data: &[u8]) -> Result<()> {
    let tensor = gpu.tensor(data, &[data.len()])?;
    gpu.finish()?;
    drop(tensor);
    Ok(())
}

/// As [`upload`], written by a function in parts of a million elements.
fn upload_with(gpu: &Gpu, data: &[u8]) -> Result<()> {
    let tensor = gpu.upload_with(&[data.len()], |out| {
        data.chunks(1 << 20)
            .for_each(|part| out.extend_from_slice(part));
    })?;
    gpu.finish()?;
    drop(tensor);
    Ok(())
}
