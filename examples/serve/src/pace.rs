//! How many tokens a batch may have, so that it can be paused soon.
//!
//! A batch runs in steps, and the worker looks for urgent texts between two of them. An urgent text
//! waits for a step and then takes the time of a lone text. So a step should take a fraction of
//! that. Full batches tell how long steps take, and the limit follows them slowly.

use std::time::Duration;

/// The time of a step, relative to that of a lone text.
const STEP: f64 = 0.33;
/// A smaller deviation changes nothing.
const LEEWAY: f64 = 0.85;
/// The weight of a new measurement of a lone text.
const NEW: f64 = 0.1;

const FIRST_TOKENS: f64 = 64.0;
const LEAST_TOKENS: f64 = 16.0;
const MOST_TOKENS: f64 = 65_536.0;

#[derive(Debug)]
pub(crate) struct Pace {
    /// The time of a lone short text in seconds, once there was one.
    lone: Option<f64>,
    tokens: f64,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            lone: None,
            tokens: FIRST_TOKENS,
        }
    }

    /// Most texts of a length.
    pub(crate) fn texts(&self, length: usize) -> usize {
        (self.tokens / length.max(1) as f64) as usize
    }

    /// A batch so small runs in one piece: waiting between its steps would take longer than one.
    pub(crate) fn is_whole(&self, tokens: usize) -> bool {
        tokens as f64 * 4.0 <= self.tokens
    }

    /// A short text ran alone, in one piece.
    pub(crate) fn note_lone(&mut self, time: Duration) {
        let now = time.as_secs_f64();
        let before = self.lone.unwrap_or(now);
        self.lone = Some(before + (now - before) * NEW);
    }

    /// A full batch had steps of this mean length.
    pub(crate) fn note_step(&mut self, step: Duration) {
        let Some(lone) = self.lone else {
            return;
        };
        let ratio = step.as_secs_f64() / (lone * STEP);
        let factor = match ratio {
            ratio if ratio > 1.0 => 0.9,
            ratio if ratio < LEEWAY => 1.1,
            _ => return,
        };
        self.tokens = (self.tokens * factor).clamp(LEAST_TOKENS, MOST_TOKENS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_device() {
        let mut pace = Pace::new();
        pace.note_step(Duration::from_secs(1));
        assert_eq!(pace.texts(1), 64);
        pace.note_lone(Duration::from_millis(20));
        for (us_per_token, expected) in [(10, 800), (100, 80), (1, 8000)] {
            for _ in 0..200 {
                let tokens = pace.texts(1) as u64;
                pace.note_step(Duration::from_micros(us_per_token * tokens));
            }
            let found = pace.texts(1);
            assert!(
                found * 10 >= expected * 7 && found * 10 <= expected * 12,
                "{found}"
            );
        }
        assert!(pace.is_whole(4) && !pace.is_whole(pace.texts(1)));
    }
}
