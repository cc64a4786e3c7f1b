//! Colours and text that all parts of the panel share.

use egui::{Color32, Ui};

/// Bytes that live.
pub(crate) const LIVE: Color32 = Color32::from_rgb(64, 176, 120);
/// Free ranges of slabs, or all of the slabs.
pub(crate) const FREE: Color32 = Color32::from_rgb(96, 110, 128);
/// What is held beside slabs.
pub(crate) const STAGING: Color32 = Color32::from_rgb(108, 132, 214);
/// Evicted, in the host's memory.
pub(crate) const HOST: Color32 = Color32::from_rgb(226, 164, 62);
/// Evicted, on disk; and what is wrong.
pub(crate) const DISK: Color32 = Color32::from_rgb(196, 92, 84);

/// Text beside the figures.
pub(crate) const SMALL: f32 = 11.0;

/// A line of text that ends where the panel does.
pub(crate) fn line(ui: &mut Ui, text: String) {
    ui.add(egui::Label::new(text).truncate());
}
