//! Rounds that alternate between the subject and the host, and the best of each.

use std::thread;
use std::time::{Duration, Instant};

use crate::cases::Work;
use crate::check::check;
use crate::host::Host;
use crate::openblas::SETTLE;
use crate::start;
use crate::subject::{Figures, Result, Subject, Timed};

/// A round repeats calls that are shorter than this.
const ROUND: Duration = Duration::from_millis(20);
/// The same if the host's threads must settle, and the factor for the whole duration.
const LONG_ROUND: Duration = Duration::from_millis(100);
const PATIENCE: u32 = 3;
/// Several calls are timed together if one is so short that the clock matters.
const SAMPLE_SECONDS: f64 = 20e-6;
/// A call of this length is slow, even if it includes a compilation.
const SLOW_SECONDS: f64 = 1.0;
const LEAST_ROUNDS: u32 = 5;
const MOST_ROUNDS: u32 = 50;

/// None if the subject lacks this case; an error if it fails or is wrong.
pub(crate) fn measure(
    work: &Work,
    subject: &dyn Subject,
    host: Option<&Host>,
    budget: Duration,
) -> Result<Option<Figures>> {
    if let Work::Start { is_cold } = *work {
        return start::measure(is_cold, budget).map(Some);
    }
    let inputs = work.inputs();
    let Some(mut ours) = subject.prepare(work, &inputs)? else {
        return Ok(None);
    };
    let start = Instant::now();
    ours.run()?;
    let first_seconds = start.elapsed().as_secs_f64();
    check(work, &inputs, &ours.result()?)?;
    let mut theirs = match host {
        Some(host) => host.prepare(work, &inputs)?,
        None => None,
    };
    if let Some(theirs) = &mut theirs {
        theirs.run()?;
        check(work, &inputs, &theirs.result()?)
            .map_err(|error| format!("the host itself: {error}"))?;
    }

    let calls = match first_seconds < SLOW_SECONDS {
        true => calls_at_once(&mut *ours)?,
        false => 1,
    };
    let host_calls = match &mut theirs {
        Some(theirs) => calls_at_once(&mut **theirs)?,
        None => 0,
    };
    let lingers = theirs.is_some() && host.is_some_and(|host| host.lingers(work));
    let (length, budget) = match lingers {
        true => (LONG_ROUND, budget * PATIENCE),
        false => (ROUND, budget),
    };
    let begin = Instant::now();
    let (mut best, mut best_of_host) = (f64::INFINITY, f64::INFINITY);
    let mut rounds = 0;
    while rounds < MOST_ROUNDS && !is_enough(rounds, begin.elapsed(), budget) {
        if let Some(theirs) = &mut theirs {
            best_of_host = best_of_host.min(round(&mut **theirs, host_calls, length)?);
            if lingers {
                thread::sleep(SETTLE);
            }
        }
        best = best.min(round(&mut *ours, calls, length)?);
        rounds += 1;
    }
    let limit = host.zip(theirs).map(|(host, _)| host.name(work));
    Ok(Some(Figures {
        seconds: best,
        first_seconds,
        rounds,
        limit: limit.map(|name| (best_of_host, name)),
    }))
}

/// Few rounds of slow work, but at least one.
fn is_enough(rounds: u32, elapsed: Duration, budget: Duration) -> bool {
    rounds > 0 && elapsed > budget && (rounds >= LEAST_ROUNDS || elapsed > 4 * budget)
}

/// Number of calls that are timed together.
fn calls_at_once(work: &mut dyn Timed) -> Result<u32> {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        work.run()?;
        best = best.min(start.elapsed().as_secs_f64().max(1e-9));
        if best > SAMPLE_SECONDS {
            return Ok(1);
        }
    }
    Ok((SAMPLE_SECONDS / best).ceil().min(1000.0) as u32)
}

/// Seconds of a call in the best sample of a round.
fn round(work: &mut dyn Timed, calls: u32, length: Duration) -> Result<f64> {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    loop {
        let start = Instant::now();
        for _ in 0..calls {
            work.run()?;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
        if begin.elapsed() >= length {
            return Ok(best);
        }
    }
}
