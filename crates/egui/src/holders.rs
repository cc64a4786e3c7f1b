//! The greatest holders, each with a bar.

use std::cmp::Reverse;

use egui::{Rect, RichText, Sense, Ui, vec2};
use lapidary_core::stats::{MemoryStats, TagUse};
use lapidary_core::units::Bytes;

use crate::bars::share;
use crate::style::{LIVE, SMALL};

const BAR_POINTS: f32 = 48.0;

/// The greatest holders with their bytes and names. A tooltip shows the whole name and the peak.
pub(crate) fn list(ui: &mut Ui, stats: &MemoryStats, most: usize) {
    let mut tags: Vec<&TagUse> = stats.tags.iter().filter(|tag| tag.bytes.now > 0).collect();
    tags.sort_by_key(|tag| Reverse(tag.bytes.now));
    ui.label(format!("holders: {}", tags.len()));
    for tag in tags.iter().take(most) {
        let name = match &tag.tag {
            // A tag prints as one line of bounded length.
            Some(tag) => tag.to_string(),
            None => "others".into(),
        };
        let row = ui.horizontal(|ui| {
            let size = vec2(BAR_POINTS, SMALL);
            let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
            let part = share(tag.bytes.now, stats.live_bytes.now);
            let bar = Rect::from_min_size(rect.min, vec2(rect.width() * part, rect.height()));
            let background = ui.visuals().extreme_bg_color;
            ui.painter().rect_filled(rect, 1.0, background);
            ui.painter().rect_filled(bar, 1.0, LIVE);
            let text = format!("{:>9}  {name}", Bytes(tag.bytes.now).to_string());
            let text = RichText::new(text).monospace().size(SMALL);
            ui.add(egui::Label::new(text).truncate());
        });
        let (peak, storages) = (Bytes(tag.bytes.peak), tag.storages.now);
        let mut all = format!("{name}\n{storages} tensors, peak {peak}");
        if tag.saved_bytes > 0 {
            let saved = Bytes(tag.saved_bytes);
            all += &format!(", {saved} saved for backward");
        }
        row.response.on_hover_text(all);
    }
}
