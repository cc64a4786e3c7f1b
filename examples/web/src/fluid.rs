//! The fluid on a canvas: on a device that the page opened, drawn by a render pass straight from the tensor.

use fluid::{Fluid, Painter, Stir};
use lapidary::{Access, Gpu, wgpu};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::HtmlCanvasElement;

/// Cells across and down.
const SIZE: [usize; 2] = [320, 192];

/// So many moments are kept, one of so many steps: memory for the report to tell of.
const KEPT: (usize, u64) = (64, 8);

/// A fluid, and what it takes to draw it.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Simulation {
    gpu: Gpu,
    device: wgpu::Device,
    queue: wgpu::Queue,
    surface: wgpu::Surface<'static>,
    painter: Painter,
    fluid: Fluid,
}

fn told(error: impl std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}

#[wasm_bindgen]
impl Simulation {
    /// Opens a device for a canvas, and a calm fluid on it.
    pub async fn open(canvas: HtmlCanvasElement) -> Result<Simulation, JsError> {
        canvas.set_width(2 * SIZE[0] as u32);
        canvas.set_height(2 * SIZE[1] as u32);
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let size = [canvas.width(), canvas.height()];
        let surface = instance
            .create_surface(wgpu::SurfaceTarget::Canvas(canvas))
            .map_err(told)?;
        let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions {
            compatible_surface: Some(&surface),
            ..Default::default()
        });
        let adapter = adapter.await.map_err(told)?;
        let opened = adapter.request_device(&wgpu::DeviceDescriptor::default());
        let (device, queue) = opened.await.map_err(told)?;
        let shown = surface.get_default_config(&adapter, size[0], size[1]);
        let shown = shown.ok_or_else(|| JsError::new("this adapter cannot draw on a canvas"))?;
        surface.configure(&device, &shown);
        let gpu = Gpu::adopt(&adapter, &device, &queue).map_err(told)?;
        // Nobody else on this page wants to hear of its loss.
        gpu.watch_lost();
        let mut fluid = Fluid::new(&gpu, SIZE).map_err(told)?;
        fluid.keep(KEPT.0, KEPT.1);
        let painter = Painter::new(&device, shown.format, SIZE);
        Ok(Simulation {
            gpu,
            device,
            queue,
            surface,
            painter,
            fluid,
        })
    }

    /// One step, with a hand in the fluid, and its picture. Places and ways are parts of width and height.
    pub async fn frame(
        &mut self,
        x: f32,
        y: f32,
        dx: f32,
        dy: f32,
        dye: &[f32],
    ) -> Result<(), JsError> {
        let stir = Stir {
            at: [x, y],
            by: [dx, dy],
            dye: std::array::from_fn(|i| dye.get(i).copied().unwrap_or(0.0)),
        };
        self.step_and_draw(stir).await.map_err(told)
    }

    /// The report, as people read it.
    pub fn memory(&self) -> String {
        self.gpu.memory().to_string()
    }

    /// Live, reserved, and all bytes of the device, for a bar.
    pub fn bytes(&self) -> Vec<f64> {
        let memory = self.gpu.memory();
        let levels = [
            memory.live_bytes,
            memory.reserved_bytes,
            memory.device_bytes,
        ];
        levels.iter().map(|level| level.now as f64).collect()
    }

    /// How much dye there is, for tests: red, green and blue.
    pub async fn dye(&self) -> Result<Vec<f32>, JsError> {
        let sums = self.fluid.now().dye().sum(&[0, 1]).map_err(told)?;
        sums.read::<f32>().await.map_err(told)
    }
}

impl Simulation {
    async fn step_and_draw(&mut self, stir: Stir) -> lapidary::Result<()> {
        self.fluid.step(stir)?;
        self.gpu.poll()?;
        let mut shown = None;
        let dye = [(self.fluid.now().dye(), Access::Read)];
        let drawn = self.gpu.with_bound_async(&dye, |bound| {
            // A canvas lends its texture for this turn of the page only, so nothing may be awaited from here on.
            use wgpu::CurrentSurfaceTexture::{Suboptimal, Success};
            let (Success(frame) | Suboptimal(frame)) = self.surface.get_current_texture() else {
                // The next frame comes soon.
                return Vec::new();
            };
            let commands = self.draw(&frame.texture, bound[0].binding());
            shown = Some(frame);
            vec![commands]
        });
        drawn.await?;
        if let Some(frame) = shown {
            self.queue.present(frame);
        }
        Ok(())
    }

    fn draw(&self, onto: &wgpu::Texture, dye: wgpu::BindingResource<'_>) -> wgpu::CommandBuffer {
        let view = onto.create_view(&Default::default());
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            label: Some("fluid"),
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations {
                    load: wgpu::LoadOp::Clear(wgpu::Color::BLACK),
                    store: wgpu::StoreOp::Store,
                },
            })],
            ..Default::default()
        });
        self.painter.paint(&mut pass, dye);
        drop(pass);
        encoder.finish()
    }
}
