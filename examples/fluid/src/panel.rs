//! The panels beside the fluid: memory, the budget's slider, the past and its places, frame times.

use egui::{Color32, Rect, RichText, Sense, Ui, Vec2, pos2, vec2};
use fluid::Stir;
use lapidary::units::Bytes;
use lapidary::{MemoryStats, Residency};

use crate::device::Device;
use crate::scene::Scene;
use crate::times::{BARS_MS, Phase};

const LIVE: Color32 = Color32::from_rgb(64, 176, 120);
const FREE: Color32 = Color32::from_rgb(52, 62, 74);
const STAGING: Color32 = Color32::from_rgb(108, 132, 214);
const HOST: Color32 = Color32::from_rgb(226, 164, 62);
const DISK: Color32 = Color32::from_rgb(196, 92, 84);
const EDGE: Color32 = Color32::from_rgb(236, 236, 236);

const WIDTH: f32 = 330.0;
const SLABS: usize = 24;
const HOLDERS: usize = 4;

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

/// Draws all panels, and returns the input.
pub(crate) fn show(ui: &mut Ui, scene: &Scene) -> Wish {
    let mut wish = Wish::default();
    let stats = scene.gpu.memory().stats();
    egui::Panel::right("memory")
        .resizable(false)
        .exact_size(WIDTH)
        .show(ui, |ui| memory(ui, scene, &stats, &mut wish));
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

fn memory(ui: &mut Ui, scene: &Scene, stats: &MemoryStats, wish: &mut Wish) {
    ui.add_space(6.0);
    ui.label(RichText::new(&stats.adapter).strong());
    budget(ui, scene, stats, wish);
    ui.separator();

    let live = format!(
        "live {} in {} tensors",
        Bytes(stats.live_bytes.now),
        stats.live_storages.now
    );
    ui.label(live);
    ui.label(format!(
        "reserved {} in {} slabs, peak {}",
        Bytes(stats.reserved_bytes.now),
        stats.slabs.len(),
        Bytes(stats.reserved_bytes.peak)
    ));
    slabs(ui, stats);
    ui.separator();

    let (host, disk) = (Bytes(stats.host_bytes.now), Bytes(stats.spilled_bytes.now));
    ui.label(format!(
        "elsewhere: {host} in the host's memory, {disk} on disk"
    ));
    ui.label(format!(
        "out {}, back {}, moved {}",
        Bytes(stats.evicted_bytes),
        Bytes(stats.restored_bytes),
        Bytes(stats.moved_bytes)
    ));
    ui.separator();

    ui.label("largest holders");
    for holder in stats.holders.iter().take(HOLDERS) {
        let (bytes, count) = (Bytes(holder.bytes), holder.storages);
        let line = format!("{bytes:>9}  {count:>3} x {}", holder.tag);
        ui.add(egui::Label::new(RichText::new(line).monospace().size(10.5)).truncate());
    }
    ui.separator();
    times(ui, scene);
    ui.add_space(6.0);
    wish.loses = ui.button("Lose the device").clicked();
}

/// The slider, and a bar as long as the budget or the memory in use, whichever is more.
fn budget(ui: &mut Ui, scene: &Scene, stats: &MemoryStats, wish: &mut Wish) {
    const MIB: f64 = (1 << 20) as f64;
    let pace = &scene.pace;
    let mut mib = pace.wanted_bytes as f64 / MIB;
    ui.spacing_mut().slider_width = WIDTH - 120.0;
    let slider = egui::Slider::new(&mut mib, 1.0..=1024.0).logarithmic(true);
    let slider = slider.suffix(" MiB").fixed_decimals(0);
    if ui.add(slider).changed() {
        wish.budget_bytes = Some((mib * MIB) as u64);
    }
    let held_bytes = stats.device_bytes.now;
    let held = format!("{} of a budget of {}", Bytes(held_bytes), Bytes(pace.bytes));
    ui.label(held);
    let whole_bytes = pace.bytes.max(held_bytes).max(1);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 14.0), Sense::hover());
    let x = |bytes: u64| rect.left() + rect.width() * (bytes as f32 / whole_bytes as f32).min(1.0);
    let painter = ui.painter();
    painter.rect_filled(rect, 2.0, Color32::BLACK);
    let mut from_bytes = 0;
    let rest_bytes = held_bytes.saturating_sub(stats.reserved_bytes.now);
    let cached_bytes = stats
        .reserved_bytes
        .now
        .saturating_sub(stats.live_bytes.now);
    let parts = [
        (stats.live_bytes.now, LIVE),
        (cached_bytes, FREE),
        (rest_bytes, STAGING),
    ];
    for (bytes, colour) in parts {
        let part = [
            pos2(x(from_bytes), rect.top()),
            pos2(x(from_bytes + bytes), rect.bottom()),
        ];
        painter.rect_filled(Rect::from_min_max(part[0], part[1]), 0.0, colour);
        from_bytes += bytes;
    }
    painter.vline(x(pace.bytes), rect.y_range(), (2.0, EDGE));
    let keys = [
        ("live", LIVE),
        ("free in slabs", FREE),
        ("staging", STAGING),
    ];
    legend(ui, &keys);
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

/// Every slab as a bar of its size, with its live part.
fn slabs(ui: &mut Ui, stats: &MemoryStats) {
    let mut slabs: Vec<_> = stats.slabs.iter().collect();
    slabs.sort_by_key(|slab| std::cmp::Reverse(slab.size_bytes));
    let largest_bytes = slabs.first().map_or(1, |slab| slab.size_bytes).max(1);
    let (rect, _) = ui.allocate_exact_size(
        vec2(
            ui.available_width(),
            4.0 * SLABS.min(slabs.len().max(1)) as f32,
        ),
        Sense::hover(),
    );
    for (row, slab) in slabs.iter().take(SLABS).enumerate() {
        let top = rect.top() + 4.0 * row as f32;
        let bar = |bytes: u64| {
            let width = rect.width() * bytes as f32 / largest_bytes as f32;
            Rect::from_min_size(pos2(rect.left(), top), vec2(width, 3.0))
        };
        ui.painter().rect_filled(bar(slab.size_bytes), 0.0, FREE);
        ui.painter().rect_filled(bar(slab.live_bytes), 0.0, LIVE);
    }
    if slabs.len() > SLABS {
        ui.label(RichText::new(format!("and {} more", slabs.len() - SLABS)).size(11.0));
    }
}

/// A cell for each kept frame, coloured by its place. Pointing at a cell shows the frame.
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
