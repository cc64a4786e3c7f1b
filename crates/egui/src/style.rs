//! Colours and sizes of text that all parts of the panel share.

use egui::{Color32, Ui};

/// Live bytes.
pub(crate) const LIVE: Color32 = Color32::from_rgb(64, 176, 120);
/// Holes in slabs, or reserved bytes.
pub(crate) const FREE: Color32 = Color32::from_rgb(96, 110, 128);
/// Bytes on the device outside of slabs.
pub(crate) const STAGING: Color32 = Color32::from_rgb(108, 132, 214);
/// Bytes evicted to the host's memory.
pub(crate) const HOST: Color32 = Color32::from_rgb(226, 164, 62);
/// Bytes evicted to the disk; also errors.
pub(crate) const DISK: Color32 = Color32::from_rgb(196, 92, 84);

/// Size of text beside the figures.
pub(crate) const SMALL: f32 = 11.0;

/// A line of text, cut off at the panel's edge.
pub(crate) fn line(ui: &mut Ui, text: String) {
    ui.add(egui::Label::new(text).truncate());
}
