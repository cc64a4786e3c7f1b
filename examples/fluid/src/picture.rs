//! A texture to draw on where there is no window, read back with plain wgpu and written as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use lapidary::wgpu;

use crate::Outcome;
use crate::device::Device;

pub(crate) const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;
const PIXEL_BYTES: u32 = 4;

pub(crate) struct Picture {
    texture: wgpu::Texture,
    pub(crate) view: wgpu::TextureView,
    pub(crate) size: [u32; 2],
}

impl Picture {
    /// The width is a multiple of 64, so that rows need no padding when they are read back.
    pub(crate) fn new(device: &Device, [width, height]: [u32; 2]) -> Picture {
        let texture = device.device.create_texture(&wgpu::TextureDescriptor {
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
        Picture {
            view: texture.create_view(&Default::default()),
            texture,
            size: [width, height],
        }
    }

    /// Waits for what was drawn: red, green, blue, opacity, row after row.
    pub(crate) fn read(&self, device: &Device) -> Outcome<Vec<u8>> {
        let Device { device, queue, .. } = device;
        let [width, height] = self.size;
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("picture's bytes"),
            size: u64::from(width) * u64::from(height) * u64::from(PIXEL_BYTES),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        let target = wgpu::TexelCopyBufferInfo {
            buffer: &buffer,
            layout: wgpu::TexelCopyBufferLayout {
                offset: 0,
                bytes_per_row: Some(width * PIXEL_BYTES),
                rows_per_image: None,
            },
        };
        let source = self.texture.as_image_copy();
        encoder.copy_texture_to_buffer(source, target, self.texture.size());
        queue.submit([encoder.finish()]);

        let (sender, mapped) = std::sync::mpsc::channel();
        let bytes = buffer.slice(..);
        bytes.map_async(wgpu::MapMode::Read, move |result| {
            // The receiver waits below for as long as this can come.
            let _ = sender.send(result);
        });
        device.poll(wgpu::PollType::wait_indefinitely())?;
        mapped.recv()??;
        Ok(bytes.get_mapped_range()?.to_vec())
    }
}

/// Writes pixels to a file, in a folder that is made if it is not there.
pub(crate) fn save(path: &Path, [width, height]: [u32; 2], pixels: &[u8]) -> Outcome {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut png = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    png.set_color(png::ColorType::Rgba);
    png.set_depth(png::BitDepth::Eight);
    png.set_compression(png::Compression::High);
    png.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    let mut png = png.write_header()?;
    png.write_image_data(pixels)?;
    png.finish()?;
    Ok(())
}
