//! The app's side: a render pipeline that draws colours from a range of a buffer.

mod picture;

use lapidary::wgpu;

pub use picture::{Picture, on_black};

/// Draws a fluid over the whole of a render pass's viewport.
#[derive(Debug)]
pub struct Painter {
    device: wgpu::Device,
    pipeline: wgpu::RenderPipeline,
}

impl Painter {
    /// A painter of fluids with `size` cells (across, down), for targets of this format.
    pub fn new(device: &wgpu::Device, format: wgpu::TextureFormat, size: [usize; 2]) -> Painter {
        Painter {
            device: device.clone(),
            pipeline: pipeline(device, format, size),
        }
    }

    /// Draws the bound fluid: [`Frame::dye`](crate::Frame::dye) at the place from
    /// [`with_bound`](lapidary::Gpu::with_bound).
    pub fn paint(&self, pass: &mut wgpu::RenderPass<'_>, dye: wgpu::BindingResource<'_>) {
        // The tensor may move before the next frame, so the bind group serves one frame only.
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("fluid"),
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: dye,
            }],
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.draw(0..3, 0..1);
    }
}

fn pipeline(
    device: &wgpu::Device,
    format: wgpu::TextureFormat,
    [width, height]: [usize; 2],
) -> wgpu::RenderPipeline {
    let module = device.create_shader_module(wgpu::include_wgsl!("paint.wgsl"));
    // If the target stores numbers unchanged, the shader must encode them for a screen.
    let constants = [
        ("WIDTH", width as f64),
        ("HEIGHT", height as f64),
        ("ENCODES", f64::from(u8::from(!format.is_srgb()))),
    ];
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("fluid"),
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
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &constants,
                ..Default::default()
            },
            targets: &[Some(format.into())],
        }),
        multiview_mask: None,
        cache: None,
    })
}
