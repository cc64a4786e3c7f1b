//! The drawing target without a window.

use lapidary::wgpu;

const PIXEL_BYTES: u32 = 4;

/// A texture whose pixels can be copied: red, green, blue and opacity, row after row.
#[derive(Debug)]
pub struct Picture {
    texture: wgpu::Texture,
    pub view: wgpu::TextureView,
    /// Pixels across and down.
    pub size: [u32; 2],
}

impl Picture {
    pub const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;

    /// The width must be a multiple of 64, so that copied rows need no padding.
    pub fn new(device: &wgpu::Device, [width, height]: [u32; 2]) -> Picture {
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("picture"),
            size: wgpu::Extent3d {
                width,
                height,
                depth_or_array_layers: 1,
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: Self::FORMAT,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        Picture {
            view: texture.create_view(&Default::default()),
            texture,
            size: [width, height],
        }
    }

    pub fn size_bytes(&self) -> u64 {
        let [width, height] = self.size;
        u64::from(width) * u64::from(height) * u64::from(PIXEL_BYTES)
    }

    /// Copies the pixels into a buffer, from byte `offset` on.
    pub fn copy(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        buffer: &wgpu::Buffer,
        offset_bytes: u64,
    ) {
        let target = wgpu::TexelCopyBufferInfo {
            buffer,
            layout: wgpu::TexelCopyBufferLayout {
                offset: offset_bytes,
                bytes_per_row: Some(self.size[0] * PIXEL_BYTES),
                rows_per_image: None,
            },
        };
        encoder.copy_texture_to_buffer(self.texture.as_image_copy(), target, self.texture.size());
    }
}

/// Begins a pass on a black background.
pub fn on_black<'a>(
    encoder: &'a mut wgpu::CommandEncoder,
    view: &wgpu::TextureView,
) -> wgpu::RenderPass<'a> {
    encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
        label: Some("frame"),
        color_attachments: &[Some(wgpu::RenderPassColorAttachment {
            view,
            depth_slice: None,
            resolve_target: None,
            ops: wgpu::Operations {
                load: wgpu::LoadOp::Clear(wgpu::Color::BLACK),
                store: wgpu::StoreOp::Store,
            },
        })],
        ..Default::default()
    })
}
