//! A frame, from the hand in the fluid to the picture: the same with a window and without one.

use std::time::{Duration, Instant};

use egui_wgpu::{RendererOptions, ScreenDescriptor};
use fluid::{Fluid, Frame, Painter, Stir, on_black};
use lapidary::interop::Access;
use lapidary::{Error, Gpu, Options, wgpu};
use lapidary_egui::MemoryPanel;

use crate::Outcome;
use crate::args::Args;
use crate::device::Device;
use crate::pace::Pace;
use crate::panel::{self, Wish};
use crate::times::{Phase, Times};

/// Most time for compaction in a frame.
const COMPACTION: Duration = Duration::from_millis(1);

/// Every `KEEP_EVERY`-th step keeps a frame.
const KEEP_EVERY: u64 = 2;

/// After a shortage the work is tried again every so many frames.
const RETRY_FRAMES: u64 = 30;

pub(crate) struct Scene {
    pub(crate) gpu: Gpu,
    pub(crate) fluid: Fluid,
    pub(crate) pace: Pace,
    pub(crate) times: Times,
    pub(crate) memory: MemoryPanel,
    /// The kept frame on display; the fluid stands still meanwhile.
    pub(crate) looks_at: Option<usize>,
    /// The reason why the fluid stands still, if it cannot go on.
    pub(crate) trouble: Option<String>,
    pub(crate) context: egui::Context,
    pub(crate) drawn: u64,
    format: wgpu::TextureFormat,
    painter: Painter,
    panels: egui_wgpu::Renderer,
    travelled_bytes: u64,
    budget_moved: bool,
}

/// The target of a frame.
pub(crate) struct Target<'a> {
    pub(crate) view: &'a wgpu::TextureView,
    pub(crate) size: [u32; 2],
    /// Pixels per point of egui.
    pub(crate) scale: f32,
}

/// The panels to draw over the fluid.
struct Panels {
    shapes: Vec<egui::ClippedPrimitive>,
    screen: ScreenDescriptor,
    /// The rectangle of the fluid, in pixels: left, top, width, height.
    fluid: [f32; 4],
}

impl Scene {
    pub(crate) fn new(device: &Device, format: wgpu::TextureFormat, args: &Args) -> Outcome<Scene> {
        let gpu = Gpu::adopt_with(
            &device.adapter,
            &device.device,
            &device.queue,
            Options::from_env()?,
        )?;
        let mut fluid = Fluid::new(&gpu, args.size)?;
        fluid.keep(args.keep, KEEP_EVERY);
        Ok(Scene {
            pace: Pace::new(&gpu, args.budget_bytes)?,
            painter: Painter::new(&device.device, format, args.size),
            panels: panels(device, format),
            gpu,
            fluid,
            times: Times::default(),
            memory: MemoryPanel::new().with_holders(4),
            looks_at: None,
            trouble: None,
            context: egui::Context::default(),
            drawn: 0,
            format,
            travelled_bytes: 0,
            budget_moved: false,
        })
    }

    /// Continues with another device after a loss. Returns a sentence on what happened to the
    /// fluid.
    ///
    /// # Errors
    /// If the new device is lost too, or can do less.
    pub(crate) fn readopt(&mut self, device: &Device) -> Outcome<String> {
        let (adapter, queue) = (&device.adapter, &device.queue);
        let recovered = self.gpu.readopt(adapter, &device.device, queue)?;
        let kept = self.fluid.recover()?;
        self.painter = Painter::new(&device.device, self.format, self.fluid.size());
        self.panels = panels(device, self.format);
        // The new context uploads its fonts again.
        self.context = egui::Context::default();
        (self.looks_at, self.trouble) = (None, None);
        let step = self.fluid.now().step();
        Ok(match kept {
            0 => "the device was lost, and with it the fluid: it begins anew".into(),
            _ => format!(
                "the device was lost; {} tensors had been evicted before, and the fluid goes on after step {step}",
                recovered.kept
            ),
        })
    }

    /// Steps the fluid and draws a frame. `stir` replaces the pointer where there is none.
    ///
    /// # Errors
    /// A lost device, and other errors that end drawing. The panel reports too little memory
    /// instead.
    pub(crate) fn frame(
        &mut self,
        device: &Device,
        target: &Target<'_>,
        input: egui::RawInput,
        stir: Option<Stir>,
    ) -> Outcome<egui::PlatformOutput> {
        if let Some(reason) = device.lost() {
            self.gpu.notify_lost(&reason);
        }
        let began = Instant::now();
        // Once a frame: notices finished work, and changes budget and holes a little at a time.
        self.gpu.poll()?;
        let budget_moves = self.pace.approach(&self.gpu)?;
        self.gpu.memory().compact_for(COMPACTION)?;

        let context = self.context.clone();
        let mut wish = Wish::default();
        let mut output = context.run_ui(input, |ui| wish = panel::show(ui, self));
        let hand = stir.or(wish.stir).unwrap_or_default();
        // Record no more work while some waits for memory. Now and then that is tried again:
        // another frame may be wished for, or others may have freed memory.
        let tries_again = self.drawn.is_multiple_of(RETRY_FRAMES);
        let may_go_on = self.trouble.is_none() || budget_moves || tries_again;
        if self.looks_at.is_none() && self.trouble.is_none() {
            self.fluid.step(hand)?;
        }

        let deltas = std::mem::take(&mut output.textures_delta);
        self.apply(device, deltas);
        let panels = Panels {
            shapes: context.tessellate(output.shapes, output.pixels_per_point),
            screen: ScreenDescriptor {
                size_in_pixels: target.size,
                pixels_per_point: output.pixels_per_point,
            },
            fluid: pixels(wish.fluid, target),
        };
        if !may_go_on || !self.draw_fluid(device, target, &panels)? {
            let commands = self.encode(device, target, &panels, None);
            device.queue.submit([commands]);
        }
        self.drawn += 1;
        self.note(budget_moves, began);
        wish.apply(self, device);
        Ok(output.platform_output)
    }

    /// The frame on display: the present, or a kept frame.
    pub(crate) fn shown(&self) -> &Frame {
        let kept = self
            .looks_at
            .and_then(|index| self.fluid.history().get(index));
        kept.unwrap_or(self.fluid.now())
    }

    /// Runs the recorded work and draws its result in place. `false` if there is no room.
    fn draw_fluid(
        &mut self,
        device: &Device,
        target: &Target<'_>,
        panels: &Panels,
    ) -> Outcome<bool> {
        let dye = self.shown().dye().clone();
        let gpu = self.gpu.clone();
        let drawn = gpu.with_bound(&[(&dye, Access::Read)], |bound| {
            vec![self.encode(device, target, panels, Some(bound[0].binding()))]
        });
        match drawn {
            Ok(()) => self.trouble = None,
            Err(error @ (Error::OutOfMemory(_) | Error::NeverFits { .. } | Error::Spill(_))) => {
                self.trouble = Some(error.to_string());
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// One render pass: the fluid, if it is visible, and the panels over it.
    fn encode(
        &mut self,
        device: &Device,
        target: &Target<'_>,
        panels: &Panels,
        dye: Option<wgpu::BindingResource<'_>>,
    ) -> wgpu::CommandBuffer {
        let Device { device, queue, .. } = device;
        let mut encoder = device.create_command_encoder(&Default::default());
        let (shapes, screen) = (&panels.shapes, &panels.screen);
        // egui returns command buffers only for its callbacks, and there are none.
        let _ = (self.panels).update_buffers(device, queue, &mut encoder, shapes, screen);
        let mut pass = on_black(&mut encoder, target.view).forget_lifetime();
        if let Some(dye) = dye {
            let [left, top, width, height] = panels.fluid;
            if width >= 1.0 && height >= 1.0 {
                pass.set_viewport(left, top, width, height, 0.0, 1.0);
                self.painter.paint(&mut pass, dye);
            }
        }
        self.panels.render(&mut pass, shapes, screen);
        drop(pass);
        encoder.finish()
    }

    fn apply(&mut self, device: &Device, mut deltas: egui::TexturesDelta) {
        for (id, deltas) in &deltas.set {
            for delta in deltas {
                (self.panels).update_texture(&device.device, &device.queue, *id, delta);
            }
        }
        for id in &deltas.free {
            self.panels.free_texture(id);
        }
        deltas.clear();
    }

    /// Records the frame's time and its kind.
    fn note(&mut self, budget_moves: bool, began: Instant) {
        let stats = self.gpu.memory().stats();
        let travelled_bytes = stats.evicted_bytes + stats.restored_bytes + stats.moved_bytes;
        let travels =
            travelled_bytes != std::mem::replace(&mut self.travelled_bytes, travelled_bytes);
        self.budget_moved |= budget_moves;
        let phase = match (self.budget_moved, budget_moves || travels) {
            (false, _) => Phase::Before,
            (true, true) => Phase::During,
            (true, false) => Phase::After,
        };
        self.times.note(phase, began.elapsed());
    }
}

fn panels(device: &Device, format: wgpu::TextureFormat) -> egui_wgpu::Renderer {
    egui_wgpu::Renderer::new(&device.device, format, RendererOptions::default())
}

/// A rectangle in points as whole pixels of the target.
fn pixels(points: egui::Rect, target: &Target<'_>) -> [f32; 4] {
    let [width, height] = target.size.map(|size| size as f32);
    let at = |point: f32, end: f32| (point * target.scale).round().clamp(0.0, end);
    let (left, top) = (at(points.min.x, width), at(points.min.y, height));
    let (right, bottom) = (at(points.max.x, width), at(points.max.y, height));
    [left, top, right - left, bottom - top]
}
