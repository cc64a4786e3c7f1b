//! The results of the compilations, and their limits.

use std::fmt::Write;

use crate::process::Result;

/// Longest compilation of a kernel, in milliseconds of CPU time on the machine that `Pace` refers
/// to.
const SLOWEST_MS: u64 = 5000;
const MEDIAN_MS: u64 = 500;
const LONG_MS: u64 = 1000;
/// FXC's time for the yardstick on that machine.
const YARDSTICK_MS: u64 = 320;
/// Percentage of the texts that may take longer than `LONG_MS`.
const MOST_LONG: usize = 5;

/// The result for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Compiled,
    Refused,
    /// It took longer than the time limit.
    Late,
}

/// The compilation of one text.
#[derive(Clone, Debug)]
pub(super) struct Compilation {
    pub(super) outcome: Outcome,
    pub(super) ms: u64,
    pub(super) name: String,
    pub(super) message: String,
}

/// How much slower this machine is than the one that the limits are for, on which the slowest text
/// takes 3.8 s. A faster machine gets no shorter limits.
pub(super) struct Pace {
    yardstick_ms: u64,
}

impl Pace {
    pub(super) fn of(yardstick_ms: u64) -> Self {
        let yardstick_ms = yardstick_ms.max(YARDSTICK_MS);
        Pace { yardstick_ms }
    }

    /// A limit, adapted to this machine.
    fn limit_ms(&self, limit_ms: u64) -> u64 {
        limit_ms * self.yardstick_ms / YARDSTICK_MS
    }
}

/// All compilations, slowest first.
pub(super) struct Figures(Vec<Compilation>);

impl Figures {
    pub(super) fn of(compilations: Vec<Compilation>) -> Self {
        let mut figures = Figures(compilations);
        figures.sort();
        figures
    }

    /// The texts that took too long and should be compiled again.
    pub(super) fn slow(&self, pace: &Pace) -> impl Iterator<Item = &str> {
        let limit_ms = pace.limit_ms(SLOWEST_MS);
        let slow = self.0.iter().take_while(move |text| text.ms > limit_ms);
        slow.map(|text| &*text.name)
    }

    /// Keeps the better of two compilations of each text.
    pub(super) fn improve(&mut self, again: Vec<Compilation>) {
        for better in again {
            let known = self.0.iter_mut().find(|text| text.name == better.name);
            if let Some(known) = known.filter(|text| better.ms < text.ms) {
                *known = better;
            }
        }
        self.sort();
    }

    fn sort(&mut self) {
        (self.0).sort_by(|a, b| b.ms.cmp(&a.ms).then_with(|| a.name.cmp(&b.name)));
    }

    /// The refused texts and the ten slowest.
    pub(super) fn table(&self) -> String {
        let mut table = String::new();
        for refused in self.having(Outcome::Refused) {
            let _ = writeln!(table, "refused {}: {}", refused.name, refused.message);
        }
        for slow in self.0.iter().take(10) {
            let late = match slow.outcome {
                Outcome::Late => " and more",
                _ => "",
            };
            let _ = writeln!(table, "{:>6} ms{late} {}", slow.ms, slow.name);
        }
        table
    }

    /// A summary; an error if the results are not good enough for what every user gets.
    pub(super) fn judged(&self, pace: &Pace) -> Result<String> {
        let [slowest_ms, median_ms, long_ms] =
            [SLOWEST_MS, MEDIAN_MS, LONG_MS].map(|limit_ms| pace.limit_ms(limit_ms));
        let (count, found) = (self.0.len(), self.found(long_ms));
        let is_good = self.having(Outcome::Compiled).count() == count
            && self.ms(0) <= slowest_ms
            && self.ms(count / 2) <= median_ms
            && self.long(long_ms) * 100 <= count * MOST_LONG;
        match is_good {
            true => Ok(found),
            false => Err(format!(
                "{found}; there may be 0 refused, {slowest_ms} ms, {median_ms} ms, {MOST_LONG} %."
            )),
        }
    }

    /// A summary; an error if a text was not compiled, at any speed.
    pub(super) fn all_compiled(&self) -> Result<String> {
        let compiled = self.having(Outcome::Compiled).count();
        match compiled == self.0.len() {
            true => Ok(self.found(LONG_MS)),
            false => Err(format!(
                "{}; {compiled} were compiled.",
                self.found(LONG_MS)
            )),
        }
    }

    fn found(&self, long_ms: u64) -> String {
        let (count, refused) = (self.0.len(), self.having(Outcome::Refused).count());
        format!(
            "{count} texts, {refused} refused, slowest {} ms, median {} ms, {} above {long_ms} ms",
            self.ms(0),
            self.ms(count / 2),
            self.long(long_ms)
        )
    }

    /// The time of the text at this index.
    fn ms(&self, place: usize) -> u64 {
        self.0.get(place).map_or(0, |text| text.ms)
    }

    fn long(&self, long_ms: u64) -> usize {
        self.0.iter().filter(|text| text.ms > long_ms).count()
    }

    fn having(&self, outcome: Outcome) -> impl Iterator<Item = &Compilation> {
        self.0.iter().filter(move |text| text.outcome == outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(times: &[u64], outcome: Outcome) -> Figures {
        let text = |&ms: &u64| Compilation {
            outcome,
            ms,
            name: format!("text {ms}"),
            message: String::new(),
        };
        Figures::of(times.iter().map(text).collect())
    }

    fn judged(times: &[u64], outcome: Outcome) -> Result<String> {
        figures(times, outcome).judged(&Pace::of(YARDSTICK_MS))
    }

    #[test]
    fn refused_slow_and_many_long_texts_are_not_good_enough() {
        let mut times = vec![100; 40];
        times.push(4000);
        assert!(judged(&times, Outcome::Compiled).is_ok());
        assert!(judged(&times, Outcome::Refused).is_err());
        assert!(judged(&[6000], Outcome::Compiled).is_err());
        times.extend([2000; 3]);
        assert!(judged(&times, Outcome::Compiled).is_err());
        assert!(judged(&[600; 40], Outcome::Compiled).is_err());
        assert!(figures(&[6000], Outcome::Compiled).all_compiled().is_ok());
        assert!(figures(&[6000], Outcome::Late).all_compiled().is_err());
        assert!(figures(&[10], Outcome::Refused).all_compiled().is_err());
    }

    #[test]
    fn a_slow_machine_gets_longer_limits_and_a_fast_one_no_shorter_ones() {
        let text = figures(&[6000], Outcome::Compiled);
        let [slow, fast] = [2 * YARDSTICK_MS, YARDSTICK_MS / 2].map(Pace::of);
        assert_eq!(text.slow(&slow).count(), 0);
        assert_eq!(text.slow(&fast).collect::<Vec<_>>(), ["text 6000"]);
        assert_eq!(
            [&slow, &fast].map(|pace| pace.limit_ms(5000)),
            [10_000, 5000]
        );
    }

    #[test]
    fn the_better_of_two_compilations_counts() {
        let mut texts = figures(&[6000, 5500, 10], Outcome::Compiled);
        let again = |ms| Compilation {
            outcome: Outcome::Compiled,
            ms,
            name: "text 6000".into(),
            message: String::new(),
        };
        texts.improve(vec![again(7000)]);
        assert_eq!([texts.ms(0), texts.ms(1)], [6000, 5500]);
        texts.improve(vec![again(3000)]);
        assert_eq!([texts.ms(0), texts.ms(1)], [5500, 3000]);
    }
}
