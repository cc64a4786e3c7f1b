//! What came of the compilations, and whether it is good enough.

use std::fmt::Write;

use crate::process::Result;

/// What a kernel may take to compile, in milliseconds on a core.
const SLOWEST_MS: u64 = 5000;
const MEDIAN_MS: u64 = 500;
const LONG_MS: u64 = 1000;
/// Of a hundred texts, so many may take longer than `LONG_MS`.
const MOST_LONG: usize = 5;

/// Whether a text was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Compiled,
    Refused,
    /// It was given up.
    Late,
}

/// One text.
#[derive(Clone, Debug)]
pub(super) struct Compilation {
    pub(super) outcome: Outcome,
    pub(super) ms: u64,
    pub(super) name: String,
    pub(super) message: String,
}

/// All of them, the slowest first.
pub(super) struct Figures(Vec<Compilation>);

impl Figures {
    pub(super) fn of(mut compilations: Vec<Compilation>) -> Self {
        compilations.sort_by(|a, b| b.ms.cmp(&a.ms).then_with(|| a.name.cmp(&b.name)));
        Figures(compilations)
    }

    /// What was refused, and the ten slowest.
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

    /// The figures in a few words, as an error if they are not good enough for what every user
    /// gets.
    pub(super) fn judged(&self) -> Result<String> {
        let (count, found) = (self.0.len(), self.found());
        let is_good = self.having(Outcome::Refused).count() == 0
            && self.ms(0) <= SLOWEST_MS
            && self.ms(count / 2) <= MEDIAN_MS
            && self.long() * 100 <= count * MOST_LONG;
        match is_good {
            true => Ok(found),
            false => Err(format!(
                "{found}; there may be 0 refused, {SLOWEST_MS} ms, {MEDIAN_MS} ms, {MOST_LONG} %."
            )),
        }
    }

    /// The figures in a few words, as an error if a text was not compiled, however long it took.
    pub(super) fn all_compiled(&self) -> Result<String> {
        let compiled = self.having(Outcome::Compiled).count();
        match compiled == self.0.len() {
            true => Ok(self.found()),
            false => Err(format!("{}; {compiled} were compiled.", self.found())),
        }
    }

    fn found(&self) -> String {
        let (count, refused) = (self.0.len(), self.having(Outcome::Refused).count());
        format!(
            "{count} texts, {refused} refused, slowest {} ms, median {} ms, {} above {LONG_MS} ms",
            self.ms(0),
            self.ms(count / 2),
            self.long()
        )
    }

    /// What the text at a place of the order took.
    fn ms(&self, place: usize) -> u64 {
        self.0.get(place).map_or(0, |text| text.ms)
    }

    fn long(&self) -> usize {
        self.0.iter().filter(|text| text.ms > LONG_MS).count()
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
        figures(times, outcome).judged()
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
}
