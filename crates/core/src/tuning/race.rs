//! A race of variants: each is run once to be compiled, once to see how long it takes, and those
//! that are not far behind run in turns, so that what disturbs one disturbs the others as well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::markers::Marker;
use super::{MOST_TIME, Runner, Trial, Tuning};

/// The runs of one turn take about so long, or are so many.
const LONG_ENOUGH: Duration = Duration::from_millis(8);
const MOST_RUNS: u32 = 32;

/// Rounds of turns, at least and at most, and how long they go on in between.
const ROUNDS: (u32, u32) = (5, 10);
const ONE_RACE: Duration = Duration::from_millis(400);

/// Nothing is tried that takes so long by the rule's choice.
const TOO_LONG: Duration = Duration::from_millis(400);

/// Who takes more than so many times the least is out of the race.
const FAR_BEHIND: f64 = 1.5;

/// The rule's choice stays unless another takes less than so much of its time, ...
const WORTH_IT: f64 = 0.95;

/// ... and was faster in so many of the rounds: on a busy machine one lucky run says little.
const OFTEN: f64 = 0.8;

/// What came of a race.
pub(super) struct Race {
    pub(super) winner: usize,
    /// Whom it ran against: the rule's choice, or the first that ran.
    pub(super) base: usize,
    /// There was time enough to say so.
    pub(super) is_settled: bool,
}

/// A variant, and the least time of a run.
struct Entrant {
    index: usize,
    time: Duration,
    /// Rounds in which it was faster than the first.
    wins: u32,
}

impl Entrant {
    /// How often it runs in one turn.
    fn times(&self) -> u32 {
        let times = LONG_ENOUGH.as_nanos() / self.time.as_nanos().max(1);
        times.clamp(1, MOST_RUNS.into()) as u32
    }

    /// How long one turn takes.
    fn turn(&self) -> Duration {
        self.time * self.times()
    }
}

impl Tuning {
    /// The fastest of the `allowed` variants, the first of which is the rule's choice, or the first
    /// that runs if that one does not; `None` if none does. The caller has seen to it that nobody
    /// else tries.
    pub(super) fn race(
        &self,
        names: &[String],
        allowed: &[usize],
        runner: &mut Runner<'_>,
    ) -> Option<Race> {
        let (start, most) = (self.now(), self.time_left());
        let taken = || self.now().saturating_sub(start);
        let left = || most.saturating_sub(taken());
        let mut race = (self.enter(names, allowed, runner, &left))
            .and_then(|entrants| self.take_turns(entrants, names, runner, &left));
        // With all the time that a process has it would not be settled the next time either.
        if let Some(race) = &mut race {
            race.is_settled |= most == MOST_TIME;
        }
        let time = taken();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Sums of what clocks say stay far from the type's end.
        self.spent.fetch_add(nanos, Ordering::Relaxed);
        self.known().time += time;
        race
    }

    /// Runs each alone. Those enter that ran; where there is no clock, only the first.
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
            let alone = self.marked(&names[index], true, || {
                let compiled = self.clocked(index, 1, runner)?;
                match self.has_clock && (is_first || !left().is_zero()) {
                    true => self.clocked(index, 1, runner),
                    false => Ok(compiled),
                }
            });
            match alone {
                Ok(time) => entrants.push(Entrant {
                    index,
                    time,
                    wins: 0,
                }),
                Err(Trial::Lost) => return None,
                Err(Trial::Failed | Trial::Ran) => {}
            }
            let is_slow = entrants.first().is_some_and(|rule| rule.time > TOO_LONG);
            let has_no_markers = self.has_no_markers.load(Ordering::Relaxed);
            if left().is_zero() || self.has_clock && is_slow || has_no_markers {
                break;
            }
        }
        match self.has_clock {
            true => leave_behind(&mut entrants),
            false => entrants.truncate(1),
        }
        Some(entrants)
    }

    /// Runs those that entered in turns, and returns who wins.
    fn take_turns(
        &self,
        mut entrants: Vec<Entrant>,
        names: &[String],
        runner: &mut Runner<'_>,
        left: &dyn Fn() -> Duration,
    ) -> Option<Race> {
        let (start, mut rounds) = (self.now(), 0);
        let is_in_time = !left().is_zero();
        while entrants.len() > 1 && rounds < ROUNDS.1 {
            let is_enough = rounds >= ROUNDS.0 && self.now().saturating_sub(start) >= ONE_RACE;
            let takes: Duration = entrants.iter().map(Entrant::turn).sum();
            if is_enough || takes > left() {
                break;
            }
            let (mut of_first, mut gone) = (None, Vec::new());
            for entrant in &mut entrants {
                let (index, times) = (entrant.index, entrant.times());
                // It has run before: what ends the whole machine would have done so then.
                let turn = self.marked(&names[index], false, || self.clocked(index, times, runner));
                let time = match turn {
                    Ok(time) => time,
                    Err(Trial::Lost) => return None,
                    Err(Trial::Failed | Trial::Ran) => {
                        gone.push(index);
                        continue;
                    }
                };
                entrant.wins += u32::from(time < *of_first.get_or_insert(time));
                // One after the other is another measure than alone.
                entrant.time = match rounds {
                    0 => time,
                    _ => entrant.time.min(time),
                };
            }
            rounds += 1;
            entrants.retain(|entrant| !gone.contains(&entrant.index));
            leave_behind(&mut entrants);
        }
        let is_alone = entrants.len() == 1 && is_in_time;
        let has_clock = self.has_clock;
        let is_settled = !has_clock || is_alone || rounds >= ROUNDS.0;
        winner(&entrants, rounds).map(|(winner, base)| Race {
            winner,
            base,
            is_settled,
        })
    }

    /// Tries a variant while a marker names it; `for_sure`, one that outlasts the machine's end.
    fn marked<T>(
        &self,
        name: &str,
        for_sure: bool,
        attempt: impl FnOnce() -> Result<T, Trial>,
    ) -> Result<T, Trial> {
        let Some(file) = &self.file else {
            return self.barring(name, attempt()).0;
        };
        let Some(marker) = Marker::leave(file, name, for_sure) else {
            // Without a marker it could end the next process too.
            self.has_no_markers.store(true, Ordering::Relaxed);
            return Err(Trial::Failed);
        };
        let (tried, is_kept) = self.barring(name, attempt());
        // Where the findings cannot be kept, the marker says what they would.
        if is_kept {
            marker.remove();
        }
        tried
    }

    /// Bars a variant that lost the device. Returns whether that, if it is so, is kept.
    fn barring<T>(&self, name: &str, tried: Result<T, Trial>) -> (Result<T, Trial>, bool) {
        let is_kept = !matches!(tried, Err(Trial::Lost)) || self.bar(name);
        (tried, is_kept)
    }

    /// Runs a variant so many times; returns what one run took, or why there is none.
    fn clocked(
        &self,
        index: usize,
        times: u32,
        runner: &mut Runner<'_>,
    ) -> Result<Duration, Trial> {
        self.known().trials += 1;
        let start = self.now();
        let trial = (runner.run)(index, times);
        let time = self.now().saturating_sub(start) / times;
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

/// The fastest after so many rounds, if it is worth it; and the first.
fn winner(entrants: &[Entrant], rounds: u32) -> Option<(usize, usize)> {
    let base = entrants.first()?;
    let is_worth_it = |one: &&Entrant| {
        rounds >= ROUNDS.0
            && f64::from(one.wins) >= OFTEN * f64::from(rounds)
            && one.time < base.time.mul_f64(WORTH_IT)
    };
    let fastest = entrants.iter().filter(is_worth_it);
    let winner = fastest.min_by_key(|one| one.time).unwrap_or(base);
    Some((winner.index, base.index))
}
