//! The limits of a card: measured with plain wgpu and kernels that do nothing else, and as its
//! maker prints them.

use std::num::NonZero;

use lapidary::wgpu;

/// Too many bytes for any cache.
const COPIED_BYTES: u64 = 256 << 20;

/// Threads of multiply-adds and the work of each. They take some milliseconds on the largest card,
/// and in software.
const GROUPS: u32 = 4096;
const FEW_GROUPS: u32 = 16;
const GROUP_THREADS: u32 = 256;
const STEPS: u64 = 1024;

/// Unrolled steps of all chains, so the cost of the loop, and of what wgpu adds to each iteration,
/// is small.
const UNROLLED: u64 = 16;

/// Eight chains for each thread hide the latency of a step.
const CHAINS: u64 = 8;

/// Figures of the makers by the end of the adapter's name, from data sheets. The first is TFLOPS in
/// f32 without matrix units. The second is TFLOPS with matrix units and without sparsity, from f16
/// summed in f32. The third is GB/s. Add your card after measuring it.
const PRINTED: &[(&str, [f64; 3])] = &[
    (" H100 80GB HBM3", [66.9, 989.4, 3352.0]),
    (" H100 PCIe", [51.2, 756.0, 2039.0]),
    (" H200", [66.9, 989.4, 4800.0]),
    (" A100-SXM4-80GB", [19.5, 312.0, 2039.0]),
    (" RTX 4090", [82.6, 165.2, 1008.0]),
];

/// A limit in operations or bytes per second.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    Singles,
    Halves,
    Memory,
}

impl Limit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Limit::Singles => "f32",
            Limit::Halves => "f16 by matrix units",
            Limit::Memory => "memory",
        }
    }

    /// The maker's figure for this adapter.
    pub(crate) fn printed(self, adapter: &str) -> Option<f64> {
        let (_, rates) = PRINTED.iter().find(|(name, _)| adapter.ends_with(name))?;
        Some(match self {
            Limit::Singles => rates[0] * 1e12,
            Limit::Halves => rates[1] * 1e12,
            Limit::Memory => rates[2] * 1e9,
        })
    }
}

/// A device of plain wgpu with its kernels.
pub(crate) struct Probe {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    buffers: [wgpu::Buffer; 2],
    groups: u32,
}

impl Probe {
    /// Opens the adapter with this name and backend.
    pub(crate) async fn open(
        [name, backend]: [&str; 2],
        is_small: bool,
    ) -> Result<Probe, Box<dyn std::error::Error>> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
        let mut adapters = adapters.into_iter();
        let is_meant =
            |info: wgpu::AdapterInfo| info.name == name && info.backend.to_str() == backend;
        let adapter = adapters.find(|adapter| is_meant(adapter.get_info()));
        let adapter = adapter.ok_or("the adapter is not there a second time")?;
        let descriptor = wgpu::DeviceDescriptor {
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = adapter.request_device(&descriptor).await?;
        let groups = if is_small { FEW_GROUPS } else { GROUPS };
        let buffers = [(); 2].map(|()| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: COPIED_BYTES,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("chains of multiply-adds"),
            source: wgpu::ShaderSource::Wgsl(chains().into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &buffers[0],
                    offset: 0,
                    size: NonZero::new(u64::from(groups * GROUP_THREADS) * 4),
                }),
            }],
        });
        Ok(Probe {
            device,
            queue,
            pipeline,
            group,
            buffers,
            groups,
        })
    }

    /// Runs multiply-adds in registers and returns the number of operations.
    pub(crate) fn compute(&self) -> f64 {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.group, &[]);
            pass.dispatch_workgroups(self.groups, 1, 1);
        }
        self.run(encoder);
        let threads = u64::from(self.groups * GROUP_THREADS);
        (2 * threads * STEPS * UNROLLED * CHAINS) as f64
    }

    /// Copies one buffer to another and returns the number of bytes read and written.
    pub(crate) fn copy(&self) -> f64 {
        const TIMES: u64 = 8;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let [from, to] = &self.buffers;
        for _ in 0..TIMES {
            encoder.copy_buffer_to_buffer(from, 0, to, 0, COPIED_BYTES);
        }
        self.run(encoder);
        (2 * TIMES * COPIED_BYTES) as f64
    }

    fn run(&self, encoder: wgpu::CommandEncoder) {
        self.queue.submit([encoder.finish()]);
        if let Err(error) = self.device.poll(wgpu::PollType::wait_indefinitely()) {
            eprintln!("the probe's device: {error}");
        }
    }
}

/// A kernel of multiply-adds, each of which needs the previous one of its chain.
fn chains() -> String {
    let each = |line: fn(u64) -> String| (0..CHAINS).map(line).collect::<Vec<_>>().join("\n");
    let begin = each(|chain| format!("    var x{chain} = start + {chain}.0;"));
    let step = each(|chain| format!("        x{chain} = fma(x{chain}, 0.999, start);"));
    let steps = vec![step; UNROLLED as usize].join("\n");
    let sum = each(|chain| format!("    sum += x{chain};"));
    format!(
        "@group(0) @binding(0) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size({GROUP_THREADS})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let start = f32(id.x) * 1e-9;
{begin}
    for (var step = 0u; step < {STEPS}u; step++) {{
{steps}
    }}
    var sum = 0.0;
{sum}
    sums[id.x] = sum;
}}
"
    )
}
