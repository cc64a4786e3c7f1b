//! Bars for the budget and for each slab.

use std::cmp::Reverse;

use egui::{Color32, Rect, RichText, Sense, Ui, pos2, vec2};
use lapidary_core::stats::{MemoryStats, SlabUse};
use lapidary_core::units::Bytes;

use crate::style::{FREE, LIVE, SMALL, STAGING, line};

/// Number of slabs with a bar; the largest are drawn.
const SLABS: usize = 24;

const SLAB_POINTS: f32 = 4.0;

/// A bar as long as the budget, or as the held bytes if they exceed it.
pub(crate) fn budget(ui: &mut Ui, stats: &MemoryStats) {
    let held_bytes = stats.device_bytes.now;
    line(
        ui,
        match stats.budget_bytes {
            Some(bytes) => format!("{} of a budget of {}", Bytes(held_bytes), Bytes(bytes)),
            None => format!("{}, without a budget", Bytes(held_bytes)),
        },
    );
    let whole_bytes = stats.budget_bytes.unwrap_or(0).max(held_bytes).max(1);
    let size = vec2(ui.available_width(), 14.0);
    let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
    let background = ui.visuals().extreme_bg_color;
    let edge = ui.visuals().strong_text_color();
    let painter = ui.painter();
    painter.rect_filled(rect, 2.0, background);
    let x = |bytes: u64| rect.left() + rect.width() * share(bytes, whole_bytes);
    let (live_bytes, reserved_bytes) = (stats.live_bytes.now, stats.reserved_bytes.now);
    let parts = [
        (live_bytes, LIVE),
        (reserved_bytes.saturating_sub(live_bytes), FREE),
        (held_bytes.saturating_sub(reserved_bytes), STAGING),
    ];
    let mut from_bytes = 0_u64;
    for (bytes, colour) in parts {
        let to_bytes = from_bytes.saturating_add(bytes);
        let (left, right) = (x(from_bytes), x(to_bytes));
        let part = Rect::from_min_max(pos2(left, rect.top()), pos2(right, rect.bottom()));
        painter.rect_filled(part, 0.0, colour);
        from_bytes = to_bytes;
    }
    if let Some(bytes) = stats.budget_bytes {
        painter.vline(x(bytes), rect.y_range(), (2.0, edge));
    }
    let keys = [
        ("live", LIVE),
        ("free in slabs", FREE),
        ("staging", STAGING),
    ];
    legend(ui, &keys);
}

/// The largest slabs. A bar's length shows the slab's size, and its filled part the live bytes.
pub(crate) fn slabs(ui: &mut Ui, slabs: &[SlabUse]) {
    let mut slabs: Vec<&SlabUse> = slabs.iter().collect();
    slabs.sort_by_key(|slab| Reverse(slab.size_bytes));
    let Some(largest) = slabs.first() else {
        return;
    };
    let largest_bytes = largest.size_bytes.max(1);
    let rows = slabs.len().min(SLABS);
    let size = vec2(ui.available_width(), SLAB_POINTS * rows as f32);
    let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
    for (row, slab) in slabs.iter().take(rows).enumerate() {
        let corner = rect.min + vec2(0.0, SLAB_POINTS * row as f32);
        let bar = |bytes: u64, colour: Color32| {
            let size = vec2(
                rect.width() * share(bytes, largest_bytes),
                SLAB_POINTS - 1.0,
            );
            let bar = Rect::from_min_size(corner, size);
            ui.painter().rect_filled(bar, 0.0, colour);
        };
        bar(slab.size_bytes, FREE);
        bar(slab.live_bytes.min(slab.size_bytes), LIVE);
    }
    if slabs.len() > rows {
        let more = format!("and {} more", slabs.len() - rows);
        ui.label(RichText::new(more).size(SMALL));
    }
}

/// The meaning of the colours.
pub(crate) fn legend(ui: &mut Ui, keys: &[(&str, Color32)]) {
    ui.horizontal_wrapped(|ui| {
        for (name, colour) in keys {
            let (rect, _) = ui.allocate_exact_size(vec2(9.0, 9.0), Sense::hover());
            ui.painter().rect_filled(rect, 1.0, *colour);
            ui.label(RichText::new(*name).size(SMALL));
        }
    });
}

/// The share as a number from 0 to 1.
pub(crate) fn share(bytes: u64, whole_bytes: u64) -> f32 {
    (bytes as f32 / whole_bytes.max(1) as f32).min(1.0)
}
