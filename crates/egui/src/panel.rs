//! The panel: takes samples, and draws them from top to bottom.

use egui::{Response, RichText, Ui};
use lapidary_core::internal::printable;
use lapidary_core::stats::MemoryStats;
use lapidary_core::units::Bytes;

use crate::curves::{Curves, Sample};
use crate::style::{DISK, line};
use crate::{bars, curves, holders};

/// Holders that are listed.
const HOLDERS: usize = 6;

/// How much of the past is shown.
const WINDOW_S: f64 = 60.0;

/// The memory of a device as a panel: its budget, slabs, holders, and how they went.
///
/// It takes samples, [`MemoryStats`], wherever they come from: from `Gpu::memory().stats()`, from a
/// snapshot's `stats`, or from another process.
///
/// ```
/// use lapidary_core::Gpu;
/// use lapidary_core::sim::SimOptions;
/// use lapidary_egui::MemoryPanel;
///
/// let (gpu, _) = Gpu::simulated(SimOptions::default())?;
/// let weights = gpu.buffer_zeroed(1 << 20)?.named("weights");
/// weights.force()?;
///
/// let mut panel = MemoryPanel::new();
/// let context = egui::Context::default();
/// let mut output = context.run_ui(Default::default(), |ui| {
///     panel.show(ui, &gpu.memory().stats());
/// });
/// assert!(!output.shapes.is_empty());
/// output.textures_delta.clear(); // A renderer would take the fonts' texture.
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryPanel {
    holders: usize,
    curves: Curves,
}

impl Default for MemoryPanel {
    fn default() -> Self {
        MemoryPanel::new()
    }
}

impl MemoryPanel {
    /// One that has seen nothing yet. It lists six holders and shows a minute.
    pub fn new() -> Self {
        MemoryPanel {
            holders: HOLDERS,
            curves: Curves::new(WINDOW_S),
        }
    }

    /// Lists so many holders, those that have most; 0 for none.
    pub fn with_holders(mut self, holders: usize) -> Self {
        self.holders = holders;
        self
    }

    /// Shows so many seconds of the past, at least one.
    pub fn with_window_s(mut self, window_s: f64) -> Self {
        self.curves = Curves::new(window_s);
        self
    }

    /// Takes a sample for the curves, of a time in seconds by egui's clock (`InputState::time`).
    /// For frames in which the panel is not shown. Times that go back count as the last one.
    pub fn record(&mut self, time_s: f64, stats: &MemoryStats) {
        self.curves.push(time_s, Sample::of(stats));
    }

    /// Takes a sample of this moment, and draws the panel as wide as there is room. Its height
    /// follows from what there is to show.
    pub fn show(&mut self, ui: &mut Ui, stats: &MemoryStats) -> Response {
        self.record(ui.input(|input| input.time), stats);
        let drawn = ui.vertical(|ui| {
            // Drivers may call themselves whatever they like.
            let (adapter, backend) = (printable(&stats.adapter, 70), printable(&stats.backend, 10));
            let adapter = format!("{adapter} ({backend})");
            ui.add(egui::Label::new(RichText::new(adapter).strong()).truncate());
            bars::budget(ui, stats);
            ui.separator();
            slabs(ui, stats);
            ui.separator();
            elsewhere(ui, stats);
            ui.separator();
            if self.holders > 0 {
                holders::list(ui, stats, self.holders);
                ui.separator();
            }
            curves::plot(ui, &self.curves, stats.budget_bytes);
        });
        drawn.response
    }
}

/// What slabs hold, and each of them.
fn slabs(ui: &mut Ui, stats: &MemoryStats) {
    line(
        ui,
        format!(
            "live {} in {} tensors",
            Bytes(stats.live_bytes.now),
            stats.live_storages.now
        ),
    );
    line(
        ui,
        format!(
            "reserved {} in {} slabs, peak {}",
            Bytes(stats.reserved_bytes.now),
            stats.slabs.len(),
            Bytes(stats.reserved_bytes.peak)
        ),
    );
    bars::slabs(ui, &stats.slabs);
}

/// What is not on the device, and what came and went.
fn elsewhere(ui: &mut Ui, stats: &MemoryStats) {
    line(
        ui,
        format!(
            "elsewhere: {} in the host's memory, {} on disk",
            Bytes(stats.host_bytes.now),
            Bytes(stats.spilled_bytes.now)
        ),
    );
    line(
        ui,
        format!(
            "evicted {}, restored {}, moved {}",
            Bytes(stats.evicted_bytes),
            Bytes(stats.restored_bytes),
            Bytes(stats.moved_bytes)
        ),
    );
    if stats.refusals > 0 {
        let refusals = format!("{} requests found no room", stats.refusals);
        ui.colored_label(DISK, refusals);
    }
}
