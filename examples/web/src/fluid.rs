//! The fluid on a page. The page opens a device. A render pass draws straight from the tensor into
//! a texture, and the page puts its pixels on its canvas. A WebGPU canvas needs a browser with a
//! window: Chromium without one destroys the device at the first picture.

use fluid::{Fluid, Painter, Picture, Stir, on_black};
use lapidary::interop::{Access, Bound};
use lapidary::{DType, Gpu, Tensor, wgpu};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::script::{shows_memory, told};

/// Cells across and down.
const SIZE: [usize; 2] = [320, 192];

/// Number of kept moments, and steps between two of them: memory for the report to show.
const KEPT: (usize, u64) = (64, 8);

/// Pixels across and down.
const PIXELS: [u32; 2] = [2 * SIZE[0] as u32, 2 * SIZE[1] as u32];

// A copy of a picture's rows needs this.
const _: () = assert!(PIXELS[0].is_multiple_of(64));

/// A fluid, and the objects that draw it.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Simulation {
    gpu: Gpu,
    device: wgpu::Device,
    picture: Picture,
    /// The picture's pixels: `[height, width, 4]` of u8.
    pixels: Tensor,
    painter: Painter,
    fluid: Fluid,
}

#[wasm_bindgen]
impl Simulation {
    /// Opens a device, and a calm fluid on it.
    pub async fn open() -> Result<Simulation, JsError> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = instance.request_adapter(&Default::default());
        let adapter = adapter.await.map_err(told)?;
        let opened = adapter.request_device(&wgpu::DeviceDescriptor::default());
        let (device, queue) = opened.await.map_err(told)?;
        let gpu = Gpu::adopt(&adapter, &device, &queue).map_err(told)?;
        // No other part of this page uses the callback for the loss.
        gpu.watch_lost();
        let mut fluid = Fluid::new(&gpu, SIZE).map_err(told)?;
        fluid.keep(KEPT.0, KEPT.1);
        let [width, height] = PIXELS;
        let shape = [height as usize, width as usize, 4];
        let pixels = gpu.zeros(&shape, DType::U8).map_err(told)?.named("pixels");
        let picture = Picture::new(&device, PIXELS);
        let painter = Painter::new(&device, Picture::FORMAT, SIZE);
        Ok(Simulation {
            gpu,
            device,
            picture,
            pixels,
            painter,
            fluid,
        })
    }

    /// Pixels across and down.
    pub fn size(&self) -> Vec<u32> {
        PIXELS.to_vec()
    }

    /// Steps the fluid, with a hand in it, and returns its picture: red, green, blue and opacity of
    /// each pixel, row by row. Places and movements are fractions of width and height.
    pub async fn frame(
        &mut self,
        x: f32,
        y: f32,
        dx: f32,
        dy: f32,
        dye: &[f32],
    ) -> Result<Vec<u8>, JsError> {
        let stir = Stir {
            at: [x, y],
            by: [dx, dy],
            dye: std::array::from_fn(|i| dye.get(i).copied().unwrap_or(0.0)),
        };
        self.step_and_draw(stir).await.map_err(told)
    }

    /// The amount of dye, for tests: red, green and blue.
    pub async fn dye(&self) -> Result<Vec<f32>, JsError> {
        let sums = self.fluid.now().dye().sum(&[0, 1]).map_err(told)?;
        sums.to_vec_async::<f32>().await.map_err(told)
    }
}

shows_memory!(Simulation);

impl Simulation {
    async fn step_and_draw(&mut self, stir: Stir) -> lapidary::Result<Vec<u8>> {
        self.fluid.step(stir)?;
        self.gpu.poll()?;
        let dye = self.fluid.now().dye();
        let used = [(dye, Access::Read), (&self.pixels, Access::Write)];
        let drawn = self
            .gpu
            .with_bound_async(&used, |bound| vec![self.draw(bound)]);
        drawn.await?;
        self.pixels.to_vec_async::<u8>().await
    }

    /// Draws the first bound tensor, and copies the picture into the second.
    fn draw(&self, bound: &Bound) -> wgpu::CommandBuffer {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = on_black(&mut encoder, &self.picture.view);
        self.painter.paint(&mut pass, bound[0].binding());
        drop(pass);
        let pixels = &bound[1];
        (self.picture).copy(&mut encoder, &pixels.buffer, pixels.offset_bytes);
        encoder.finish()
    }
}
