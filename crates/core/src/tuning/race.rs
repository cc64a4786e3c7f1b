//! A race of variants. Each variant runs once to be compiled, and once to be measured. Those that
//! are not far behind then run in turns, so that a disturbance slows all of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::markers::Marker;
use super::{MOST_TIME, Runner, Trial, Tuning};

/// A turn takes about this long, or has this many runs.
const LONG_ENOUGH: Duration = Duration::from_millis(8);
const MOST_RUNS: u32 = 32;

/// The least and the most rounds of turns. Between the two, rounds go on for this long.
const ROUNDS: (u32, u32) = (5, 10);
const ONE_RACE: Duration = Duration::from_millis(400);

/// No variants are tried if the rule's choice takes longer than this.
const TOO_LONG: Duration = Duration::from_millis(400);

/// A variant that takes more than this many times the least time leaves the race.
const FAR_BEHIND: f64 = 1.5;

/// Another variant replaces the rule's choice only if it takes less than this part of its time, ...
const WORTH_IT: f64 = 0.95;

/// ... and was faster in this part of the rounds. On a busy machine one lucky run says little.
const OFTEN: f64 = 0.8;

/// The result of a race.
pub(super) struct Race {
    pub(super) winner: usize,
    /// The variant to compare with: the rule's choice, or the first that ran.
    pub(super) base: usize,
    /// Whether there was enough time for a decision.
    pub(super) is_settled: bool,
}

/// A variant, and the least time of its runs.
struct Entrant {
    index: usize,
    time: Duration,
    /// The rounds in which it was faster than the first entrant.
    wins: u32,
}

impl Entrant {
    /// The number of runs in one turn.
    fn times(&self) -> u32 {
        let times = LONG_ENOUGH.as_nanos() / self.time.as_nanos().max(1);
        times.clamp(1, MOST_RUNS.into()) as u32
    }

    /// The time of one turn.
    fn turn(&self) -> Duration {
        self.time * self.times()
    }
}

impl Tuning {
    /// The fastest of the `allowed` variants. The first of them is the rule's choice; if it does
    /// not run, the first that runs takes its place. `None` if none runs. The caller makes sure
    /// that no other thread tries variants.
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
        // If the race had all of the time of a process, another process could not settle it either.
        if let Some(race) = &mut race {
            race.is_settled |= most == MOST_TIME;
        }
        let time = taken();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // The sum of all times is far below the type's maximum.
        self.spent.fetch_add(nanos, Ordering::Relaxed);
        self.known().time += time;
        race
    }

    /// Runs each variant alone. Those that ran enter. Without a clock only the first enters.
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

    /// Runs the entrants in turns, and returns the winner.
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
                // The variant has run before. A crash of the whole machine would have happened
                // then.
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
                // Times in turns are not comparable with times alone.
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

    /// Tries a variant while a marker names it. With `for_sure` the marker survives a crash of the
    /// machine.
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
            // Without a marker the variant could also end the next process.
            self.has_no_markers.store(true, Ordering::Relaxed);
            return Err(Trial::Failed);
        };
        let (tried, is_kept) = self.barring(name, attempt());
        // If the findings cannot be kept, the marker stays and says the same.
        if is_kept {
            marker.remove();
        }
        tried
    }

    /// Bars a variant that lost the device. Returns whether the findings, if they changed, are
    /// kept.
    fn barring<T>(&self, name: &str, tried: Result<T, Trial>) -> (Result<T, Trial>, bool) {
        let is_kept = !matches!(tried, Err(Trial::Lost)) || self.bar(name);
        (tried, is_kept)
    }

    /// Runs a variant this many times. Returns the time of one run, or why there is none.
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

/// Removes the entrants that cannot win. The first stays.
fn leave_behind(entrants: &mut Vec<Entrant>) {
    let least = entrants.iter().map(|entrant| entrant.time).min();
    let most = least.unwrap_or_default().mul_f64(FAR_BEHIND);
    let mut is_first = true;
    entrants.retain(|entrant| std::mem::take(&mut is_first) || entrant.time <= most);
}

/// The fastest entrant after these rounds, if it is faster by enough, and the first entrant.
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
