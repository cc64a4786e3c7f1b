//! The window: handles events and shows frames. The scene draws them.

use std::sync::Arc;
use std::time::Instant;

use fluid::wgpu;
use winit::application::ApplicationHandler;
use winit::dpi::LogicalSize;
use winit::event::WindowEvent;
use winit::event_loop::{ActiveEventLoop, ControlFlow, EventLoop};
use winit::window::{Window, WindowId};

use crate::Outcome;
use crate::args::Args;
use crate::device::Device;
use crate::scene::{Scene, Target};

/// Most device losses in a row before the program gives up.
const LOSSES: u32 = 3;

/// Opens a window until it is closed, or until the requested frames or seconds are over.
pub(crate) fn run(args: &Args) -> Outcome {
    let events = EventLoop::new().map_err(|error| {
        // winit puts its source location before the last colon.
        let error = error.to_string();
        let reason = error.rsplit(": ").next().unwrap_or(&error);
        let reason = reason.trim_end_matches('.');
        format!("there is no screen for a window: {reason}. `--png FILE` draws without one.")
    })?;
    events.set_control_flow(ControlFlow::Poll);
    let mut app = App {
        args: args.clone(),
        shown: None,
        began: Instant::now(),
        end: Ok(()),
    };
    events.run_app(&mut app)?;
    if let Some(shown) = &app.shown {
        println!(
            "{}\n{}",
            shown.scene.gpu.memory().stats(),
            shown.scene.times
        );
        println!(
            "fluid: frames={} steps={} budget_bytes={} losses={}",
            shown.scene.drawn,
            shown.scene.fluid.now().step(),
            shown.scene.pace.bytes,
            shown.losses
        );
    }
    app.end
}

struct App {
    args: Args,
    shown: Option<Shown>,
    began: Instant,
    end: Outcome,
}

/// All objects that belong to the window. The surface must be dropped before the objects it was
/// made from.
struct Shown {
    surface: wgpu::Surface<'static>,
    config: wgpu::SurfaceConfiguration,
    scene: Scene,
    input: egui_winit::State,
    device: Device,
    instance: wgpu::Instance,
    window: Arc<Window>,
    losses: u32,
    losses_in_a_row: u32,
}

impl ApplicationHandler for App {
    fn resumed(&mut self, events: &ActiveEventLoop) {
        if self.shown.is_none() {
            match Shown::new(events, &self.args) {
                Ok(shown) => self.shown = Some(shown),
                Err(error) => self.leave(events, Err(error)),
            }
        }
    }

    fn window_event(&mut self, events: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        let Some(shown) = &mut self.shown else {
            return;
        };
        // egui's reaction shows in its next frame.
        let _ = shown.input.on_window_event(&shown.window, &event);
        match event {
            WindowEvent::CloseRequested => self.leave(events, Ok(())),
            WindowEvent::Resized(size) => shown.resize(size.into()),
            WindowEvent::RedrawRequested => {
                if self.args.lose == Some(shown.scene.drawn) && shown.losses == 0 {
                    shown.device.device.destroy();
                }
                if let Err(error) = shown.draw() {
                    self.leave(events, Err(error));
                }
            }
            _ => {}
        }
    }

    fn about_to_wait(&mut self, events: &ActiveEventLoop) {
        let Some(shown) = &self.shown else {
            return;
        };
        let drawn = shown.scene.drawn;
        let is_over = self.args.frames.is_some_and(|frames| drawn >= frames)
            || self
                .args
                .time
                .is_some_and(|time| self.began.elapsed() >= time);
        if is_over {
            self.leave(events, Ok(()));
        } else {
            shown.window.request_redraw();
        }
    }
}

impl App {
    fn leave(&mut self, events: &ActiveEventLoop, end: Outcome) {
        self.end = end;
        events.exit();
    }
}

impl Shown {
    fn new(events: &ActiveEventLoop, args: &Args) -> Outcome<Shown> {
        let attributes = Window::default_attributes()
            .with_title("fluid, in lapidary's tensors")
            .with_inner_size(LogicalSize::new(1152, 720));
        let window = Arc::new(events.create_window(attributes)?);
        let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
        let instance = wgpu::Instance::new(desc);
        let surface = surface(&instance, &window)?;
        let device = Device::open(&instance, Some(&surface))?;
        let config = config(&surface, &device, window.inner_size().into())?;
        let scene = Scene::new(&device, config.format, args)?;
        let mut shown = Shown {
            input: input(&scene, &window, &device),
            surface,
            config,
            scene,
            device,
            instance,
            window,
            losses: 0,
            losses_in_a_row: 0,
        };
        shown.resize(shown.window.inner_size().into());
        Ok(shown)
    }

    /// A window without a size, for example a minimised one, cannot be drawn on.
    fn is_hidden(&self) -> bool {
        self.window.inner_size().width == 0 || self.window.inner_size().height == 0
    }

    fn resize(&mut self, [width, height]: [u32; 2]) {
        if width > 0 && height > 0 && self.device.lost().is_none() {
            (self.config.width, self.config.height) = (width, height);
            self.surface.configure(&self.device.device, &self.config);
        }
    }

    /// Draws a frame, unless there is nothing to draw on at the moment.
    fn draw(&mut self) -> Outcome {
        if self.device.lost().is_some() {
            return self.recover();
        }
        if self.is_hidden() {
            self.scene.gpu.poll()?;
            std::thread::sleep(std::time::Duration::from_millis(16));
            return Ok(());
        }
        let texture = match self.surface.get_current_texture() {
            wgpu::CurrentSurfaceTexture::Success(texture)
            | wgpu::CurrentSurfaceTexture::Suboptimal(texture) => texture,
            wgpu::CurrentSurfaceTexture::Timeout | wgpu::CurrentSurfaceTexture::Occluded => {
                self.scene.gpu.poll()?;
                return Ok(());
            }
            wgpu::CurrentSurfaceTexture::Outdated | wgpu::CurrentSurfaceTexture::Validation => {
                self.resize(self.window.inner_size().into());
                return Ok(());
            }
            wgpu::CurrentSurfaceTexture::Lost => {
                self.surface = surface(&self.instance, &self.window)?;
                self.resize(self.window.inner_size().into());
                return Ok(());
            }
        };
        let view = texture.texture.create_view(&Default::default());
        let target = Target {
            view: &view,
            size: [self.config.width, self.config.height],
            scale: self.window.scale_factor() as f32,
        };
        let input = self.input.take_egui_input(&self.window);
        match self.scene.frame(&self.device, &target, input, None) {
            Ok(output) => {
                self.input.handle_platform_output(&self.window, output);
                self.device.queue.present(texture);
                self.losses_in_a_row = 0;
                Ok(())
            }
            // Another device draws the next frame.
            Err(error) if self.device.is_lost_by(error.as_ref()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens another device, and continues with everything that was not only on the lost one.
    fn recover(&mut self) -> Outcome {
        self.losses += 1;
        self.losses_in_a_row += 1;
        if self.losses_in_a_row > LOSSES {
            let reason = self.device.lost().unwrap_or_default();
            return Err(format!("the device is lost again and again: {reason}").into());
        }
        // The program's callback hears of the loss first, so it tells lapidary.
        self.scene
            .gpu
            .notify_lost(&self.device.lost().unwrap_or_default());
        self.surface = surface(&self.instance, &self.window)?;
        self.device = Device::open(&self.instance, Some(&self.surface))?;
        println!("{}", self.scene.readopt(&self.device)?);
        self.input = input(&self.scene, &self.window, &self.device);
        self.resize(self.window.inner_size().into());
        Ok(())
    }
}

/// The surface for the window's pixels.
fn surface(instance: &wgpu::Instance, window: &Arc<Window>) -> Outcome<wgpu::Surface<'static>> {
    let surface = instance.create_surface(window.clone());
    Ok(surface.map_err(|_| {
        "no driver draws in windows here: install one for Vulkan (on Debian, `mesa-vulkan-drivers` draws without a \
         GPU). `--png FILE` draws without a window."
    })?)
}

/// The surface's configuration: egui's preferred format, and the screen's frame rate.
fn config(
    surface: &wgpu::Surface<'_>,
    device: &Device,
    [width, height]: [u32; 2],
) -> Outcome<wgpu::SurfaceConfiguration> {
    let able = surface.get_capabilities(&device.adapter);
    let name = device.adapter.get_info().name;
    let unable = || format!("{name} cannot draw in this window; `--png FILE` draws without one");
    let config = surface.get_default_config(&device.adapter, width.max(1), height.max(1));
    let mut config = config.ok_or_else(unable)?;
    let plain = [
        wgpu::TextureFormat::Bgra8Unorm,
        wgpu::TextureFormat::Rgba8Unorm,
    ];
    if let Some(format) = able.formats.iter().find(|format| plain.contains(format)) {
        config.format = *format;
    }
    config.present_mode = wgpu::PresentMode::AutoVsync;
    Ok(config)
}

fn input(scene: &Scene, window: &Window, device: &Device) -> egui_winit::State {
    egui_winit::State::new(
        scene.context.clone(),
        egui::ViewportId::ROOT,
        window,
        Some(window.scale_factor() as f32),
        window.theme(),
        Some(device.device.limits().max_texture_dimension_2d as usize),
    )
}
