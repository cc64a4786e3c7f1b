//! The ping-pong of the guide "embed in your app", at sizes that share a slab and at others.

use lapidary::DType;

use super::app::App;
use super::{floats, ramp};

const GUIDE: &str = include_str!("../../src/guides/embed_in_your_app.md");
const HERE: &str = include_str!("ping_pong.rs");

#[test]
fn the_guides_ping_pong_gives_what_the_host_computes() -> lapidary::Result<()> {
    let app = App::open();
    let gpu = app.gpu();
    let pipeline = app.compute(STEP);
    for len in [4, 1000, 16 << 10, 512 << 10, 3 << 20] {
        let mut values = ramp(0, len);
        let (a, b) = (gpu.tensor(&values, &[len])?, gpu.zeros(&[len], DType::F32)?);
        for _ in 0..5 {
            values = (0..len)
                .map(|i| (values[i] + values[(i + 1) % len]) / 2.0)
                .collect();
        }
        let last = ping_pong(&gpu, &app.device, &pipeline, [a, b], 5)?;
        assert_eq!(floats(&last), values, "{len}");
    }
    Ok(())
}

#[test]
fn the_guide_has_this_program() {
    let shown = HERE
        .split("// The guide shows the rest.\n\n")
        .nth(1)
        .unwrap();
    assert!(GUIDE.contains(shown), "the guide lacks:\n{shown}");
}

// The guide shows the rest.

use lapidary::interop::Access;
use lapidary::{Gpu, Tensor, wgpu};

/// Each element becomes its mean with the next one.
const STEP: &str = "
@group(0) @binding(0) var<storage, read> now: array<f32>;
@group(0) @binding(1) var<storage, read_write> next: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let len = arrayLength(&now);
    for (var i = id.x; i < len; i += 64 * n.x) {
        next[i] = (now[i] + now[(i + 1) % len]) / 2;
    }
}";

/// Runs steps of the app, each from one tensor to the other. Returns the one with the last values.
fn ping_pong(
    gpu: &Gpu,
    device: &wgpu::Device,
    pipeline: &wgpu::ComputePipeline,
    [mut now, mut next]: [Tensor; 2],
    steps: usize,
) -> lapidary::Result<Tensor> {
    for _ in 0..steps {
        gpu.with_bound(&[(&now, Access::Read), (&next, Access::Write)], |bound| {
            let entries = [0, 1].map(|index| wgpu::BindGroupEntry {
                binding: index,
                resource: bound[index as usize].binding(),
            });
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            });
            let mut encoder = device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(256, 1, 1);
            drop(pass);
            vec![encoder.finish()]
        })?;
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}
