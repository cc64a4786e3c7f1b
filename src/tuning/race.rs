//! A race of variants: each is run once to be compiled, once to see how long it takes, and those that
//! are not far behind run in turns, so that what disturbs one disturbs the others as well.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::markers::Marker;
use super::{Runner, Trial, Tuning};

/// Runs together take so long, or are so many.
const LONG_ENOUGH: Duration = Duration::from_millis(8);
const MOST_RUNS: u32 = 32;

/// Turns, at least and at most, and how long they go on in between.
const ROUNDS: (u32, u32) = (2, 7);
const ONE_RACE: Duration = Duration::from_millis(400);

/// Nothing is tried that takes so long by the rule's choice.
const TOO_LONG: Duration = Duration::from_millis(400);

/// Who takes more than so many times the least is out of the race.
const FAR_BEHIND: f64 = 1.5;

/// The rule's choice stays unless another takes less than so much of its time: what is measured is
/// never that exact.
const WORTH_IT: f64 = 0.95;

/// A variant, and the least time of a run.
struct Entrant {
    index: usize,
    time: Duration,
}

impl Tuning {
    /// The fastest of the `allowed` variants, the first of which is the rule's choice; `None` if that one
    /// cannot be run. The caller has seen to it that nobody else tries.
    pub(super) fn race(
        &self,
        names: &[String],
        allowed: &[usize],
        runner: &mut Runner<'_>,
    ) -> Option<usize> {
        let (start, most) = (Instant::now(), self.time_left());
        let left = || most.saturating_sub(start.elapsed());
        let found = self
            .enter(names, allowed, runner, &left)
            .and_then(|entrants| self.take_turns(entrants, names, runner, &left));
        let time = start.elapsed();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Sums of what clocks say stay far from the type's end.
        self.spent.fetch_add(nanos, Ordering::Relaxed);
        self.known().time += time;
        found
    }

    /// Runs each alone. Where there is no clock, or the rule's choice takes too long, that one alone enters.
    fn enter(
        &self,
        names: &[String],
        allowed: &[usize],
        runner: &mut Runner<'_>,
        left: &dyn Fn() -> Duration,
    ) -> Option<Vec<Entrant>> {
        let mut entrants: Vec<Entrant> = Vec::new();
        for &index in allowed {
            let is_first = Some(&index) == allowed.first();
            let mut alone = || {
                let compiled = self.attempt(&names[index], index, 1, runner)?;
                match self.has_clock && (is_first || !left().is_zero()) {
                    true => self.attempt(&names[index], index, 1, runner),
                    false => Ok(compiled),
                }
            };
            match alone() {
                Ok(time) if is_first || self.has_clock => entrants.push(Entrant { index, time }),
                Err(Trial::Lost) => return None,
                Err(_) if is_first => return None,
                _ => {}
            }
            let is_slow = entrants.first().is_some_and(|rule| rule.time > TOO_LONG);
            if left().is_zero() || self.has_clock && is_slow {
                break;
            }
        }
        leave_behind(&mut entrants);
        Some(entrants)
    }

    /// Runs those that entered in turns, and returns who wins.
    fn take_turns(
        &self,
        mut entrants: Vec<Entrant>,
        names: &[String],
        runner: &mut Runner<'_>,
        left: &dyn Fn() -> Duration,
    ) -> Option<usize> {
        let (start, first) = (Instant::now(), entrants.first()?.index);
        let least = entrants.iter().map(|entrant| entrant.time).min()?;
        let times = LONG_ENOUGH.as_nanos() / least.as_nanos().max(1);
        let times = times.clamp(1, MOST_RUNS.into()) as u32;
        for round in 0..ROUNDS.1 {
            let is_enough = round >= ROUNDS.0 && start.elapsed() >= ONE_RACE;
            let takes: Duration = entrants.iter().map(|entrant| entrant.time * times).sum();
            if entrants.len() < 2 || is_enough || takes > left() {
                break;
            }
            let mut gone = Vec::new();
            for entrant in &mut entrants {
                let index = entrant.index;
                match self.attempt(&names[index], index, times, runner) {
                    // One after the other is another measure than alone.
                    Ok(time) if round == 0 => entrant.time = time,
                    Ok(time) => entrant.time = entrant.time.min(time),
                    Err(Trial::Lost) => return None,
                    Err(_) if index == first => return None,
                    Err(_) => gone.push(index),
                }
            }
            entrants.retain(|entrant| !gone.contains(&entrant.index));
            leave_behind(&mut entrants);
        }
        winner(&entrants)
    }

    /// Runs a variant so many times under a marker; returns what one run took, or why there is none.
    fn attempt(
        &self,
        name: &str,
        index: usize,
        times: u32,
        runner: &mut Runner<'_>,
    ) -> Result<Duration, Trial> {
        let marker = match &self.file {
            // Without a marker it could end the next process too.
            Some(file) => match Marker::leave(file, name) {
                Some(marker) => Some(marker),
                None => {
                    self.has_no_markers.store(true, Ordering::Relaxed);
                    return Err(Trial::Failed);
                }
            },
            None => None,
        };
        self.known().trials += 1;
        let start = Instant::now();
        let trial = (runner.run)(index, times);
        let time = start.elapsed() / times;
        // Where the findings cannot be kept, the marker says what they would.
        let is_known = trial != Trial::Lost || self.bar(name);
        if let (true, Some(marker)) = (is_known, marker) {
            marker.remove();
        }
        match trial {
            Trial::Ran => Ok(time),
            other => Err(other),
        }
    }
}

/// Takes out those that will not win. The first stays.
fn leave_behind(entrants: &mut Vec<Entrant>) {
    let least = entrants.iter().map(|entrant| entrant.time).min();
    let most = least.unwrap_or_default().mul_f64(FAR_BEHIND);
    let mut is_first = true;
    entrants.retain(|entrant| std::mem::take(&mut is_first) || entrant.time <= most);
}

/// The fastest, if it is worth it.
fn winner(entrants: &[Entrant]) -> Option<usize> {
    let rule = entrants.first()?;
    let fastest = entrants.iter().min_by_key(|entrant| entrant.time)?;
    match fastest.time < rule.time.mul_f64(WORTH_IT) {
        true => Some(fastest.index),
        false => Some(rule.index),
    }
}
