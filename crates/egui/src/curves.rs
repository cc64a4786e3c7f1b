//! Curves of live, reserved and evicted bytes over the last seconds.

use std::collections::VecDeque;

use egui::{Color32, Pos2, Sense, Shape, Stroke, Ui, pos2, vec2};
use lapidary_core::stats::MemoryStats;
use lapidary_core::units::Bytes;

use crate::bars::{legend, share};
use crate::style::{FREE, HOST, LIVE, line};

/// Most points of a curve, however often samples come.
const POINTS: usize = 240;

const HEIGHT: f32 = 64.0;

/// The values of a sample that the curves show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    live_bytes: u64,
    reserved_bytes: u64,
    evicted_bytes: u64,
}

impl Sample {
    pub(crate) fn of(stats: &MemoryStats) -> Self {
        let (host, disk) = (stats.host_bytes.now, stats.spilled_bytes.now);
        Sample {
            live_bytes: stats.live_bytes.now,
            reserved_bytes: stats.reserved_bytes.now,
            evicted_bytes: host
                .saturating_add(stats.store_bytes())
                .saturating_add(disk),
        }
    }

    /// The maximum of each value.
    fn max(self, other: Self) -> Self {
        Sample {
            live_bytes: self.live_bytes.max(other.live_bytes),
            reserved_bytes: self.reserved_bytes.max(other.reserved_bytes),
            evicted_bytes: self.evicted_bytes.max(other.evicted_bytes),
        }
    }
}

/// The last seconds in steps of equal length. Each has the maximum of its samples, so that short
/// peaks stay visible.
#[derive(Clone, Debug)]
pub(crate) struct Curves {
    window_s: f64,
    /// The number and the maximum of each step, oldest first.
    steps: VecDeque<(u64, Sample)>,
}

impl Curves {
    pub(crate) fn new(window_s: f64) -> Self {
        // The window must not be NaN or infinite.
        let is_one = window_s > 1.0;
        Curves {
            window_s: if is_one { window_s.min(1e9) } else { 1.0 },
            steps: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, time_s: f64, sample: Sample) {
        let step_s = self.window_s / POINTS as f64;
        // The cast gives 0 for negative times and for NaN.
        let step = (time_s / step_s) as u64;
        match self.steps.back_mut() {
            Some((last, most)) if *last >= step => *most = most.max(sample),
            _ => self.steps.push_back((step, sample)),
        }
        let newest = self.steps.back().map_or(0, |(step, _)| *step);
        let oldest = newest.saturating_sub(POINTS as u64);
        while self.steps.front().is_some_and(|(step, _)| *step < oldest) {
            self.steps.pop_front();
        }
    }

    /// The highest value of all curves.
    fn most_bytes(&self) -> u64 {
        let each = self.steps.iter();
        let most = each.map(|(_, s)| s.live_bytes.max(s.reserved_bytes).max(s.evicted_bytes));
        most.max().unwrap_or(0)
    }
}

/// Draws the curves, the oldest time on the left and now on the right. The budget is a line if it
/// is within the drawn range.
pub(crate) fn plot(ui: &mut Ui, curves: &Curves, budget_bytes: Option<u64>) {
    let most_bytes = curves.most_bytes();
    let window_s = curves.window_s;
    line(
        ui,
        format!("last {window_s:.0} s, at most {}", Bytes(most_bytes)),
    );
    let size = vec2(ui.available_width(), HEIGHT);
    let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
    let background = ui.visuals().extreme_bg_color;
    let edge = ui.visuals().weak_text_color();
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 2.0, background);
    let newest = curves.steps.back().map_or(0, |(step, _)| *step);
    let place = |step: u64, bytes: u64| -> Pos2 {
        let age = (newest - step) as f32 / POINTS as f32;
        // Leaves a little space above the highest value.
        let height = 0.92 * share(bytes, most_bytes) * rect.height();
        pos2(rect.right() - age * rect.width(), rect.bottom() - height)
    };
    if let Some(bytes) = budget_bytes.filter(|bytes| *bytes <= most_bytes) {
        painter.hline(rect.x_range(), place(newest, bytes).y, (1.0, edge));
    }
    let curve = |bytes: fn(&Sample) -> u64, colour: Color32| {
        let points = curves.steps.iter();
        let points = points.map(|(step, sample)| place(*step, bytes(sample)));
        painter.add(Shape::line(points.collect(), Stroke::new(1.5, colour)));
    };
    curve(|sample| sample.reserved_bytes, FREE);
    curve(|sample| sample.evicted_bytes, HOST);
    curve(|sample| sample.live_bytes, LIVE);
    let keys = [("live", LIVE), ("reserved", FREE), ("evicted", HOST)];
    legend(ui, &keys);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(live_bytes: u64) -> Sample {
        Sample {
            live_bytes,
            reserved_bytes: 0,
            evicted_bytes: 0,
        }
    }

    #[test]
    fn a_curve_has_so_many_points_however_often_samples_come() {
        let mut curves = Curves::new(60.0);
        for frame in 0..100_000_u32 {
            curves.push(f64::from(frame) / 60.0, sample(frame.into()));
        }
        assert!(curves.steps.len() <= POINTS + 1, "{}", curves.steps.len());
        assert_eq!(curves.most_bytes(), 99_999);
        let oldest = curves.steps[0].1.live_bytes;
        assert!(oldest >= 99_999 - 61 * 60, "{oldest}");
    }

    #[test]
    fn a_short_peak_stays_until_it_is_too_old() {
        let mut curves = Curves::new(60.0);
        curves.push(1.0, sample(7));
        curves.push(1.01, sample(900));
        curves.push(1.02, sample(7));
        assert_eq!(curves.most_bytes(), 900);
        curves.push(120.0, sample(7));
        assert_eq!(curves.most_bytes(), 7);
    }

    #[test]
    fn odd_times_and_windows_do_no_harm() {
        for window_s in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
            let mut curves = Curves::new(window_s);
            for time_s in [5.0, 1.0, f64::NAN, f64::INFINITY, -3.0, 1e300, 0.0] {
                curves.push(time_s, sample(u64::MAX));
            }
            assert!(curves.steps.len() <= POINTS + 1);
            assert_eq!(curves.most_bytes(), u64::MAX);
        }
    }
}
