//! Frame times in three phases: before the budget first changes, while tensors travel, and at all
//! other times.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Most frames of each kind that are remembered.
const REMEMBERED: usize = 4096;

/// Upper ends of the histogram's bars, in milliseconds; longer frames are in the last bar.
pub(crate) const BARS_MS: [f32; 9] = [2.0, 4.0, 8.0, 12.0, 17.0, 25.0, 34.0, 50.0, 100.0];

/// The phase of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The budget has never changed.
    Before,
    /// The budget moved, or tensors were evicted, restored or moved.
    During,
    /// The budget has changed before, but nothing travels now.
    After,
}

impl Phase {
    pub(crate) const ALL: [Phase; 3] = [Phase::Before, Phase::During, Phase::After];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Before => "before",
            Phase::During => "during",
            Phase::After => "after",
        }
    }
}

/// The figures of a phase, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) frames: usize,
    pub(crate) p50_ms: f32,
    pub(crate) p95_ms: f32,
    pub(crate) p99_ms: f32,
    pub(crate) worst_ms: f32,
}

#[derive(Debug, Default)]
pub(crate) struct Times {
    phases: [VecDeque<f32>; 3],
}

impl Times {
    pub(crate) fn note(&mut self, phase: Phase, took: Duration) {
        let times = &mut self.phases[phase as usize];
        if times.len() == REMEMBERED {
            times.pop_front();
        }
        times.push_back(took.as_secs_f32() * 1e3);
    }

    pub(crate) fn summary(&self, phase: Phase) -> Summary {
        let mut sorted: Vec<f32> = self.phases[phase as usize].iter().copied().collect();
        sorted.sort_by(f32::total_cmp);
        let Some(&worst_ms) = sorted.last() else {
            return Summary::default();
        };
        // The smallest time that at least `percent` percent of all frames keep to.
        let percentile = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        Summary {
            frames: sorted.len(),
            p50_ms: percentile(50),
            p95_ms: percentile(95),
            p99_ms: percentile(99),
            worst_ms,
        }
    }

    /// Frames in each bar.
    pub(crate) fn bars(&self, phase: Phase) -> [usize; BARS_MS.len() + 1] {
        let mut bars = [0; BARS_MS.len() + 1];
        for &ms in &self.phases[phase as usize] {
            bars[BARS_MS.partition_point(|&end_ms| end_ms < ms)] += 1;
        }
        bars
    }
}

/// A table of the figures, and the histogram below it.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "frame times, ms  frames     p50     p95     p99   worst")?;
        for phase in Phase::ALL {
            let Summary {
                frames,
                p50_ms,
                p95_ms,
                p99_ms,
                worst_ms,
            } = self.summary(phase);
            let name = phase.name();
            writeln!(
                f,
                "  {name:<14} {frames:>6} {p50_ms:>7.1} {p95_ms:>7.1} {p99_ms:>7.1} {worst_ms:>7.1}"
            )?;
        }
        let bars = Phase::ALL.map(|phase| self.bars(phase));
        writeln!(f, "  up to ms       before  during   after")?;
        for (index, end_ms) in BARS_MS.iter().copied().chain([f32::INFINITY]).enumerate() {
            let [before, during, after] = bars.map(|bars| bars[index]);
            let all = before + during + after;
            let mark = "#".repeat(all.min(50));
            writeln!(
                f,
                "  {end_ms:>8}       {before:>6} {during:>7} {after:>7}  {mark}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_of_frames() {
        let mut times = Times::default();
        for ms in 1..=200 {
            times.note(Phase::During, Duration::from_millis(ms));
        }
        let summary = times.summary(Phase::During);
        assert_eq!(summary.frames, 200);
        let figures = [summary.p50_ms, summary.p95_ms, summary.p99_ms];
        assert_eq!(figures, [100.0, 190.0, 198.0]);
        assert_eq!(summary.worst_ms, 200.0);
        assert_eq!(times.summary(Phase::After), Summary::default());
        assert_eq!(times.bars(Phase::During).iter().sum::<usize>(), 200);
        assert_eq!(times.bars(Phase::During)[0], 2);
    }
}
