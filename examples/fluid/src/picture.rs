//! The picture's pixels, read back with plain wgpu and written as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use fluid::Picture;
use lapidary::wgpu;

use crate::Outcome;
use crate::device::Device;

/// Waits for the picture: red, green, blue, opacity, row after row.
pub(crate) fn read(picture: &Picture, device: &Device) -> Outcome<Vec<u8>> {
    let Device { device, queue, .. } = device;
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("picture's bytes"),
        size: picture.size_bytes(),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    picture.copy(&mut encoder, &buffer, 0);
    queue.submit([encoder.finish()]);

    let (sender, mapped) = std::sync::mpsc::channel();
    let bytes = buffer.slice(..);
    bytes.map_async(wgpu::MapMode::Read, move |result| {
        // The receiver waits below, so sending cannot fail.
        let _ = sender.send(result);
    });
    device.poll(wgpu::PollType::wait_indefinitely())?;
    mapped.recv()??;
    Ok(bytes.get_mapped_range()?.to_vec())
}

/// Writes pixels to a file. Creates its folder if necessary.
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
