//! The panel: it takes samples and draws them from top to bottom.

use egui::{Response, RichText, Ui};
use lapidary_core::internal::printable;
use lapidary_core::stats::MemoryStats;
use lapidary_core::units::Bytes;

use crate::curves::{Curves, Sample};
use crate::style::{DISK, line};
use crate::{bars, curves, holders};

/// Holders in the list by default.
const HOLDERS: usize = 6;

/// The shares that the panel lists.
const MOST_SHARES: usize = 6;

/// Seconds that the curves show by default.
const WINDOW_S: f64 = 60.0;

/// The memory of a device as a panel: its budget, slabs and holders, and curves over time.
///
/// It takes samples, [`MemoryStats`], of any origin: `Gpu::memory().stats()`, a snapshot's `stats`,
/// or another process.
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
    /// A panel without samples. It lists six holders and shows a minute.
    pub fn new() -> Self {
        MemoryPanel {
            holders: HOLDERS,
            curves: Curves::new(WINDOW_S),
        }
    }

    /// Sets the number of listed holders, greatest first; 0 for none.
    pub fn with_holders(mut self, holders: usize) -> Self {
        self.holders = holders;
        self
    }

    /// Sets how many seconds the curves show, at least one.
    pub fn with_window_s(mut self, window_s: f64) -> Self {
        self.curves = Curves::new(window_s);
        self
    }

    /// Adds a sample to the curves without drawing, for frames that do not show the panel. `time_s`
    /// is the time in seconds of egui's clock (`InputState::time`). An earlier time counts as the
    /// last one.
    pub fn record(&mut self, time_s: f64, stats: &MemoryStats) {
        self.curves.push(time_s, Sample::of(stats));
    }

    /// Adds a sample of this moment and draws the panel. It takes the available width, and its
    /// height depends on its contents.
    pub fn show(&mut self, ui: &mut Ui, stats: &MemoryStats) -> Response {
        self.record(ui.input(|input| input.time), stats);
        let drawn = ui.vertical(|ui| {
            // A driver may report any text as its name.
            let (adapter, backend) = (printable(&stats.adapter, 70), printable(&stats.backend, 10));
            let adapter = format!("{adapter} ({backend})");
            ui.add(egui::Label::new(RichText::new(adapter).strong()).truncate());
            bars::budget(ui, stats);
            ui.separator();
            slabs(ui, stats);
            ui.separator();
            elsewhere(ui, stats);
            ui.separator();
            if !stats.shares.is_empty() {
                shares(ui, stats);
                ui.separator();
            }
            if self.holders > 0 {
                holders::list(ui, stats, self.holders);
                ui.separator();
            }
            curves::plot(ui, &self.curves, stats.budget_bytes);
        });
        drawn.response
    }
}

/// The bytes of all slabs, and a bar for each.
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

/// What each share holds.
fn shares(ui: &mut Ui, stats: &MemoryStats) {
    for share in stats.shares.iter().take(MOST_SHARES) {
        let ceiling = match share.ceiling_bytes {
            Some(bytes) => format!(", at most {}", Bytes(bytes)),
            None => String::new(),
        };
        line(
            ui,
            format!(
                "{}: {}, guaranteed {}{ceiling}",
                printable(&share.path, 60),
                Bytes(share.bytes.now),
                Bytes(share.guaranteed_bytes)
            ),
        );
    }
}

/// Bytes that are not on the device, and the traffic so far.
fn elsewhere(ui: &mut Ui, stats: &MemoryStats) {
    let stores = match stats.store_bytes() {
        0 => String::new(),
        bytes => format!("{} in stores, ", Bytes(bytes)),
    };
    line(
        ui,
        format!(
            "elsewhere: {} in the host's memory, {stores}{} on disk",
            Bytes(stats.host_bytes.now),
            Bytes(stats.spilled_bytes.now)
        ),
    );
    if !stats.host_slabs.is_empty() {
        line(
            ui,
            format!(
                "{} in {} slabs of the host's memory, largest hole {}",
                Bytes(stats.host_slab_bytes.now),
                stats.host_slabs.len(),
                Bytes(stats.host_largest_hole_bytes)
            ),
        );
        bars::slabs(ui, &stats.host_slabs);
    }
    line(
        ui,
        format!(
            "evicted {}, dropped {}, restored {}, moved {}",
            Bytes(stats.evicted_bytes),
            Bytes(stats.dropped_bytes),
            Bytes(stats.restored_bytes),
            Bytes(stats.moved_bytes)
        ),
    );
    let waits = stats.waits();
    if waits.total().times > 0 {
        line(ui, format!("waited for memory {waits}"));
    }
    if stats.refusals > 0 {
        let refusals = format!("{} requests were refused", stats.refusals);
        ui.colored_label(DISK, refusals);
    }
}
