//! The app: opens the device, draws, and saves the picture. This module knows no tensors.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use lapidary::interop::wanted_features;
use lapidary::wgpu;
use wgpu::util::DeviceExt;

const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8UnormSrgb;
const PIXEL_BYTES: u32 = 4;

pub(crate) struct App {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pipeline: wgpu::RenderPipeline,
    picture: wgpu::Texture,
    /// The picture's bytes, in a buffer that the CPU can read.
    readback: wgpu::Buffer,
}

impl App {
    /// Opens a device and prepares a picture of `width` × `height` pixels.
    pub(crate) fn new(width: u32, height: u32) -> Result<App, Box<dyn Error>> {
        let (adapter, device, queue) = pollster::block_on(open())?;
        let picture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("picture"),
            size: wgpu::Extent3d {
                width,
                height,
                depth_or_array_layers: 1,
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: FORMAT,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let readback = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("picture's bytes"),
            size: u64::from(width * height * PIXEL_BYTES),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        Ok(App {
            pipeline: pipeline(&device, width),
            adapter,
            device,
            queue,
            picture,
            readback,
        })
    }

    /// An app buffer with the usages that an import needs.
    pub(crate) fn buffer(&self, numbers: &[f32]) -> wgpu::Buffer {
        let desc = wgpu::util::BufferInitDescriptor {
            label: Some("map"),
            contents: bytemuck::cast_slice(numbers),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
        };
        self.device.create_buffer_init(&desc)
    }

    /// The commands that draw the waves and copy the picture to the readback buffer.
    pub(crate) fn draw(
        &self,
        waves: wgpu::BindingResource<'_>,
        map: wgpu::BindingResource<'_>,
    ) -> wgpu::CommandBuffer {
        let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[entry(0, waves), entry(1, map)],
        });
        let view = self.picture.create_view(&Default::default());
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations::default(),
            })],
            ..Default::default()
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.draw(0..3, 0..1);
        drop(pass);

        let layout = wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(self.picture.width() * PIXEL_BYTES),
            rows_per_image: None,
        };
        let target = wgpu::TexelCopyBufferInfo {
            buffer: &self.readback,
            layout,
        };
        let source = self.picture.as_image_copy();
        encoder.copy_texture_to_buffer(source, target, self.picture.size());
        encoder.finish()
    }

    /// Waits for the picture and writes it to a file.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let (sender, mapped) = std::sync::mpsc::channel();
        let bytes = self.readback.slice(..);
        bytes.map_async(wgpu::MapMode::Read, move |result| {
            // The receiver waits below, so sending cannot fail.
            let _ = sender.send(result);
        });
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        mapped.recv()??;

        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let (width, height) = (self.picture.width(), self.picture.height());
        let mut png = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
        png.set_color(png::ColorType::Rgba);
        png.set_depth(png::BitDepth::Eight);
        png.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
        let mut png = png.write_header()?;
        png.write_image_data(&bytes.get_mapped_range()?)?;
        png.finish()?;
        self.readback.unmap();
        Ok(())
    }
}

/// Opens a device that an app shares with lapidary. It has all of the adapter's limits, and the two
/// features that make kernels faster, if the adapter has them.
async fn open() -> Result<(wgpu::Adapter, wgpu::Device, wgpu::Queue), Box<dyn Error>> {
    let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    let instance = wgpu::Instance::new(desc);
    // `WGPU_ADAPTER_NAME` chooses an adapter.
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

fn pipeline(device: &wgpu::Device, width: u32) -> wgpu::RenderPipeline {
    let module = device.create_shader_module(wgpu::include_wgsl!("draw.wgsl"));
    let constants = [("WIDTH", f64::from(width))];
    let options = wgpu::PipelineCompilationOptions {
        constants: &constants,
        ..Default::default()
    };
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("draw"),
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("vertex"),
            compilation_options: Default::default(),
            buffers: &[],
        },
        primitive: wgpu::PrimitiveState::default(),
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("fragment"),
            compilation_options: options,
            targets: &[Some(FORMAT.into())],
        }),
        multiview_mask: None,
        cache: None,
    })
}
