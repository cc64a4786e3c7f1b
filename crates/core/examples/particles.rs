//! A million particles that need twice the budget. The app's kernel moves them and the app's render
//! pass draws them, on the app's device.
//!
//! ```text
//! cargo run --release --package lapidary-core --example particles [-- picture.png]
//! ```
//!
//! The particles lie in 32 buffers of 512 KiB; the budget has room for half of them. Each step
//! moves all particles, so each step evicts and restores buffers without the program's help. For
//! the picture, `with_bound` gives the render pass one buffer after the other. Without a path the
//! picture goes to `target/particles.png`. The last line reports the result.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::Instant;

use lapidary_core::interop::{Access, wanted_features};
use lapidary_core::{Budget, Buffer, Gpu, Kernel, Options, wgpu};

const BUFFERS: usize = 32;

/// Particles per buffer, of four words each: two for the position, two for the velocity.
const PARTICLES: u32 = 32 << 10;

const BUFFER_BYTES: u64 = 16 * PARTICLES as u64;
const BUDGET_BYTES: u64 = BUFFERS as u64 * BUFFER_BYTES / 2;

const STEPS: u32 = 40;

const WIDTH: u32 = 768;
const HEIGHT: u32 = 512;

const MOVE: &str = "
@group(0) @binding(0) var<storage, read_write> particles: array<vec4<f32>>;

// Two masses attract all particles.
@compute @workgroup_size(64)
fn move_particle(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&particles) { return; }
    var one = particles[id.x];
    var pull = vec2<f32>(0.0);
    for (var k = 0; k < 2; k++) {
        let away = vec2<f32>(select(-0.4, 0.4, k == 1), 0.0) - one.xy;
        pull += away / (0.02 + dot(away, away));
    }
    let speed = one.zw + 0.0008 * pull;
    particles[id.x] = vec4<f32>(one.xy + 0.05 * speed, speed);
}
";

const DRAW: &str = "
@group(0) @binding(0) var<storage, read> particles: array<vec4<f32>>;

struct Point {
    @builtin(position) at: vec4<f32>,
    @location(0) colour: vec3<f32>,
}

@vertex
fn point(@builtin(vertex_index) index: u32) -> Point {
    let one = particles[index];
    let warm = clamp(length(one.zw) * 6.0, 0.0, 1.0);
    let colour = mix(vec3<f32>(0.02, 0.05, 0.16), vec3<f32>(0.20, 0.09, 0.03), warm);
    return Point(vec4<f32>(one.x / 1.5, one.y, 0.0, 1.0), colour);
}

@fragment
fn light(point: Point) -> @location(0) vec4<f32> { return vec4<f32>(point.colour, 1.0); }
";

fn main() -> Result<(), Box<dyn Error>> {
    let app = pollster::block_on(App::new())?;
    let options = Options {
        budget: Some(Budget::device(BUDGET_BYTES)),
        ..Options::from_env()?
    };
    let gpu = Gpu::adopt_with(&app.adapter, &app.device, &app.queue, options)?;
    let buffers = (0..BUFFERS).map(|number| {
        let buffer = gpu.buffer_from(&ring(number))?;
        Ok(buffer.named(&format!("particles {number}")))
    });
    let buffers = buffers.collect::<lapidary_core::Result<Vec<Buffer>>>()?;
    let mover = Kernel::new(&gpu, MOVE)?;

    let start = Instant::now();
    for _ in 0..STEPS {
        for particles in &buffers {
            let call = mover.call().bind("particles", particles);
            call.groups([PARTICLES / 64, 1, 1]).run()?;
        }
        // An app with a frame loop calls this once a frame.
        gpu.poll()?;
    }
    for (index, particles) in buffers.iter().enumerate() {
        gpu.with_bound(&[(particles, Access::Read)], |bound| {
            vec![app.draw(bound[0].binding(), index == 0)]
        })?;
    }
    gpu.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    let memory = gpu.memory().stats();
    println!("{memory}");

    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| "target/particles.png".into());
    let lit = app.save(&path)?;
    println!(
        "{} particles, {STEPS} steps in {seconds:.1} s; the picture is {}",
        BUFFERS as u32 * PARTICLES,
        path.display()
    );
    assert!(memory.device_bytes.peak <= BUDGET_BYTES);
    println!(
        "particles: right={} peak_bytes={} budget_bytes={BUDGET_BYTES} evicted_bytes={}",
        if lit > WIDTH * HEIGHT / 20 {
            "yes"
        } else {
            "no"
        },
        memory.device_bytes.peak,
        memory.evicted_bytes
    );
    Ok(())
}

/// Particles on a rotating ring. Each ring is a little larger than the one before.
fn ring(number: usize) -> Vec<f32> {
    let reach = 0.15 + 0.8 * number as f32 / BUFFERS as f32;
    let particle = |index: u32| {
        let angle = index as f32 / PARTICLES as f32 * std::f32::consts::TAU;
        let far = reach * (1.0 + 0.02 * (index as f32 * 0.618).fract());
        let (x, y) = (far * angle.cos(), far * angle.sin());
        [x, y, -0.12 * y / far, 0.12 * x / far]
    };
    (0..PARTICLES).flat_map(particle).collect()
}

/// The app's own objects for drawing: a device, a pipeline, and a texture.
struct App {
    adapter: wgpu::Adapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::RenderPipeline,
    texture: wgpu::Texture,
}

impl App {
    async fn new() -> Result<App, Box<dyn Error>> {
        let instance = wgpu::Instance::default();
        let adapter = instance.request_adapter(&Default::default()).await?;
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                required_features: wanted_features(&adapter),
                required_limits: adapter.limits(),
                ..Default::default()
            })
            .await?;
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("the picture"),
            size: extent(),
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba8Unorm,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let pipeline = pipeline(&device, texture.format());
        Ok(App {
            adapter,
            device,
            queue,
            pipeline,
            texture,
        })
    }

    /// A pass that draws the particles of one buffer. The first pass clears the picture.
    fn draw(&self, particles: wgpu::BindingResource<'_>, is_first: bool) -> wgpu::CommandBuffer {
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: particles,
            }],
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let view = self.texture.create_view(&Default::default());
        let load = match is_first {
            true => wgpu::LoadOp::Clear(wgpu::Color::BLACK),
            false => wgpu::LoadOp::Load,
        };
        let attachment = wgpu::RenderPassColorAttachment {
            view: &view,
            depth_slice: None,
            resolve_target: None,
            ops: wgpu::Operations {
                load,
                store: wgpu::StoreOp::Store,
            },
        };
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(attachment)],
            ..Default::default()
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.draw(0..PARTICLES, 0..1);
        drop(pass);
        encoder.finish()
    }

    /// Writes the picture to a file. Returns the number of lit pixels.
    fn save(&self, path: &PathBuf) -> Result<u32, Box<dyn Error>> {
        let copy = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: u64::from(4 * WIDTH * HEIGHT),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let layout = wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(4 * WIDTH),
            rows_per_image: None,
        };
        let to = wgpu::TexelCopyBufferInfo {
            buffer: &copy,
            layout,
        };
        encoder.copy_texture_to_buffer(self.texture.as_image_copy(), to, extent());
        self.queue.submit([encoder.finish()]);
        copy.slice(..).map_async(wgpu::MapMode::Read, |_| ());
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        let pixels = copy.slice(..).get_mapped_range()?.to_vec();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut image = png::Encoder::new(BufWriter::new(File::create(path)?), WIDTH, HEIGHT);
        image.set_color(png::ColorType::Rgba);
        image.set_depth(png::BitDepth::Eight);
        image.write_header()?.write_image_data(&pixels)?;
        let is_lit = |pixel: &&[u8]| pixel[..3].iter().any(|&part| part > 0);
        Ok(pixels.chunks_exact(4).filter(is_lit).count() as u32)
    }
}

fn extent() -> wgpu::Extent3d {
    wgpu::Extent3d {
        width: WIDTH,
        height: HEIGHT,
        depth_or_array_layers: 1,
    }
}

/// A pipeline for points that add their light to the picture.
fn pipeline(device: &wgpu::Device, format: wgpu::TextureFormat) -> wgpu::RenderPipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("particles"),
        source: wgpu::ShaderSource::Wgsl(DRAW.into()),
    });
    let add = wgpu::BlendComponent {
        src_factor: wgpu::BlendFactor::One,
        dst_factor: wgpu::BlendFactor::One,
        operation: wgpu::BlendOperation::Add,
    };
    let target = wgpu::ColorTargetState {
        format,
        blend: Some(wgpu::BlendState {
            color: add,
            alpha: add,
        }),
        write_mask: wgpu::ColorWrites::ALL,
    };
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("particles"),
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("point"),
            compilation_options: Default::default(),
            buffers: &[],
        },
        primitive: wgpu::PrimitiveState {
            topology: wgpu::PrimitiveTopology::PointList,
            ..Default::default()
        },
        depth_stencil: None,
        multisample: Default::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("light"),
            compilation_options: Default::default(),
            targets: &[Some(target)],
        }),
        multiview_mask: None,
        cache: None,
    })
}
