//! What is beside the fluid: the budget's slider, where the memory is (the panel of
//! `lapidary-egui`), frame times, the past and where it lies.

use egui::{Color32, Rect, RichText, Sense, Ui, Vec2, pos2, vec2};
use fluid::Stir;
use lapidary::Residency;
use lapidary::units::Bytes;

use crate::device::Device;
use crate::pace::Pace;
use crate::scene::Scene;
use crate::times::{BARS_MS, Phase};

const LIVE: Color32 = Color32::from_rgb(64, 176, 120);
const FREE: Color32 = Color32::from_rgb(52, 62, 74);
const HOST: Color32 = Color32::from_rgb(226, 164, 62);
const DISK: Color32 = Color32::from_rgb(196, 92, 84);
const EDGE: Color32 = Color32::from_rgb(236, 236, 236);

const WIDTH: f32 = 330.0;

/// The user's input with the pointer.
#[derive(Debug)]
pub(crate) struct Wish {
    /// The rectangle of the fluid, in points.
    pub(crate) fluid: Rect,
    pub(crate) stir: Option<Stir>,
    /// The kept frame to look at, if any.
    looks_at: Option<usize>,
    budget_bytes: Option<u64>,
    goes_on: bool,
    returns: bool,
    loses: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Wish {
            fluid: Rect::NOTHING,
            stir: None,
            looks_at: None,
            budget_bytes: None,
            goes_on: false,
            returns: false,
            loses: false,
        }
    }
}

impl Wish {
    /// Carries out the input, except for the hand in the fluid.
    pub(crate) fn apply(self, scene: &mut Scene, device: &Device) {
        if let Some(bytes) = self.budget_bytes {
            scene.pace.wanted_bytes = bytes;
        }
        if self.looks_at.is_some() {
            scene.looks_at = self.looks_at;
        }
        if self.returns {
            scene.looks_at = None;
        }
        if self.goes_on
            && let Some(index) = scene.looks_at.take()
        {
            scene.fluid.go_back(index);
        }
        if self.loses {
            device.device.destroy();
        }
    }
}

/// Draws all panels, and finds out what is asked for.
pub(crate) fn show(ui: &mut Ui, scene: &mut Scene) -> Wish {
    let mut wish = Wish::default();
    egui::Panel::right("memory")
        .resizable(false)
        .exact_size(WIDTH)
        .show(ui, |ui| {
            egui::ScrollArea::vertical().show(ui, |ui| memory(ui, scene, &mut wish))
        });
    egui::Panel::bottom("past").show(ui, |ui| past(ui, scene, &mut wish));
    let rest = egui::CentralPanel::default().frame(egui::Frame::NONE);
    rest.show(ui, |ui| hand(ui, scene, &mut wish));
    wish
}

/// The fluid's rectangle, and the pointer in it.
fn hand(ui: &mut Ui, scene: &Scene, wish: &mut Wish) {
    let whole = ui.max_rect();
    let [width, height] = scene.fluid.size().map(|cells| cells as f32);
    let scale = (whole.width() / width).min(whole.height() / height);
    let place = Rect::from_center_size(whole.center(), scale * vec2(width, height));
    wish.fluid = place;
    let pointer = ui.allocate_rect(place, Sense::drag());
    if let Some(at) = pointer.interact_pointer_pos() {
        let part = |v: Vec2| [v.x / place.width(), v.y / place.height()];
        let hue = (scene.drawn as f32 * 0.01) % 1.0;
        let [red, green, blue] = egui::ecolor::Hsva::new(hue, 0.8, 1.0, 1.0).to_rgb();
        wish.stir = Some(Stir {
            at: part(at - place.min),
            by: part(pointer.drag_delta()),
            dye: [red, green, blue].map(|part| 0.5 * part),
        });
    }
    let sentence = match (&scene.trouble, scene.looks_at) {
        (Some(trouble), _) => format!(
            "The fluid stands still: there is too little memory for a step, which takes {} at the least. Nothing is lost; raise \
             the budget.\n\n{trouble}",
            Bytes(scene.fluid.least_bytes())
        ),
        (None, Some(_)) => format!("after step {}", scene.shown().step()),
        (None, None) => return,
    };
    let text = RichText::new(sentence).color(Color32::WHITE).size(13.0);
    let corner = Rect::from_min_max(place.min + vec2(10.0, 10.0), place.max - vec2(10.0, 10.0));
    ui.put(
        Rect::from_min_size(corner.min, vec2(corner.width(), 0.0)),
        egui::Label::new(text).wrap(),
    );
}

/// The slider, the memory, frame times, and a button for the worst.
fn memory(ui: &mut Ui, scene: &mut Scene, wish: &mut Wish) {
    ui.add_space(6.0);
    ui.label(RichText::new("budget").strong());
    budget(ui, &scene.pace, wish);
    ui.separator();
    let stats = scene.gpu.memory().stats();
    scene.memory.show(ui, &stats);
    ui.separator();
    times(ui, scene);
    ui.add_space(6.0);
    wish.loses = ui.button("Lose the device").clicked();
}

/// The slider.
fn budget(ui: &mut Ui, pace: &Pace, wish: &mut Wish) {
    const MIB: f64 = (1 << 20) as f64;
    let mut mib = pace.wanted_bytes as f64 / MIB;
    ui.spacing_mut().slider_width = WIDTH - 120.0;
    let slider = egui::Slider::new(&mut mib, 1.0..=1024.0).logarithmic(true);
    let slider = slider.suffix(" MiB").fixed_decimals(0);
    if ui.add(slider).changed() {
        wish.budget_bytes = Some((mib * MIB) as u64);
    }
    if pace.shortfall_bytes > 0 {
        let short = Bytes(pace.shortfall_bytes);
        ui.colored_label(DISK, format!("{short} cannot leave at the moment"));
    }
}

fn legend(ui: &mut Ui, keys: &[(&str, Color32)]) {
    ui.horizontal_wrapped(|ui| {
        for (name, colour) in keys {
            let (rect, _) = ui.allocate_exact_size(vec2(9.0, 9.0), Sense::hover());
            ui.painter().rect_filled(rect, 1.0, *colour);
            ui.label(RichText::new(*name).size(11.0));
        }
    });
}

/// A cell for each kept frame, coloured by where it is; who points at one sees it.
fn past(ui: &mut Ui, scene: &Scene, wish: &mut Wish) {
    let history = scene.fluid.history();
    ui.add_space(4.0);
    ui.horizontal_wrapped(|ui| {
        let bytes: u64 = history.iter().map(|frame| frame.size_bytes()).sum();
        let frames = history.len();
        ui.label(format!(
            "{frames} frames of the past, {}: drag to look back",
            Bytes(bytes)
        ));
        let button = egui::Button::new("Go on from here");
        wish.goes_on = ui.add_enabled(scene.looks_at.is_some(), button).clicked();
        let button = egui::Button::new("Back to the present");
        wish.returns = ui.add_enabled(scene.looks_at.is_some(), button).clicked();
        let colours = [("device", LIVE), ("host", HOST), ("disk", DISK)];
        legend(ui, &colours);
    });
    let size = vec2(ui.available_width(), 22.0);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click_and_drag());
    ui.painter().rect_filled(rect, 2.0, Color32::BLACK);
    let count = history.len().max(1);
    let cell = rect.width() / count as f32;
    let place = |index: usize| {
        let left = rect.left() + cell * index as f32;
        Rect::from_min_size(
            pos2(left, rect.top()),
            vec2((cell - 1.0).max(0.5), rect.height()),
        )
    };
    for (index, frame) in history.iter().enumerate() {
        let colour = match frame.residency() {
            Residency::Device => LIVE,
            Residency::Host => HOST,
            Residency::Disk => DISK,
            _ => FREE,
        };
        ui.painter().rect_filled(place(index), 0.0, colour);
        if scene.looks_at == Some(index) {
            let line = egui::Stroke::new(2.0, EDGE);
            let inside = egui::StrokeKind::Inside;
            ui.painter().rect_stroke(place(index), 0.0, line, inside);
        }
    }
    if let Some(at) = response.interact_pointer_pos() {
        let index = ((at.x - rect.left()) / cell.max(1e-3)).max(0.0) as usize;
        wish.looks_at = (!history.is_empty()).then(|| index.min(history.len() - 1));
    }
    ui.add_space(4.0);
}

/// The figures of each phase, and a histogram of frame times.
fn times(ui: &mut Ui, scene: &Scene) {
    ui.label("frame times, ms");
    egui::Grid::new("times").striped(true).show(ui, |ui| {
        for name in ["budget", "frames", "p50", "p95", "p99", "worst"] {
            ui.label(RichText::new(name).size(11.0).weak());
        }
        ui.end_row();
        for phase in Phase::ALL {
            let summary = scene.times.summary(phase);
            ui.label(RichText::new(format!("{} moves", phase.name())).size(11.0));
            ui.label(RichText::new(summary.frames.to_string()).size(11.0));
            for ms in [
                summary.p50_ms,
                summary.p95_ms,
                summary.p99_ms,
                summary.worst_ms,
            ] {
                ui.label(RichText::new(format!("{ms:.1}")).size(11.0));
            }
            ui.end_row();
        }
    });
    let bars = Phase::ALL.map(|phase| scene.times.bars(phase));
    let all = |index: usize| bars.iter().map(|bars| bars[index]).sum::<usize>();
    let most = (0..=BARS_MS.len()).map(all).max().unwrap_or(0).max(1);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 44.0), Sense::hover());
    let width = rect.width() / (BARS_MS.len() + 1) as f32;
    for index in 0..=BARS_MS.len() {
        let left = rect.left() + width * index as f32;
        let mut bottom = rect.bottom() - 12.0;
        for (bars, colour) in bars.iter().zip([FREE, HOST, LIVE]) {
            // Square root scale: a single late frame must be visible among thousands.
            let share = (bars[index] as f32 / most as f32).sqrt();
            let height = share * 32.0 / 3.0_f32.sqrt();
            let bar = Rect::from_min_max(
                pos2(left, bottom - height),
                pos2(left + width - 2.0, bottom),
            );
            ui.painter().rect_filled(bar, 0.0, colour);
            bottom -= height;
        }
        let name = match BARS_MS.get(index) {
            Some(end_ms) => format!("{end_ms}"),
            None => "more".into(),
        };
        let font = egui::FontId::proportional(9.0);
        let at = pos2(left + width / 2.0, rect.bottom());
        let centre = egui::Align2::CENTER_BOTTOM;
        ui.painter().text(at, centre, name, font, Color32::GRAY);
    }
    legend(ui, &[("before", FREE), ("during", HOST), ("after", LIVE)]);
}
