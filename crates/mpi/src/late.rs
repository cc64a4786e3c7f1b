//! A wait that took too long: what is known of those that it waited for, and the note that passes
//! it on. So the ranks that hear of it name the same ones, and not the rank that told them.

use std::time::Duration;

use crate::error::Error;
use crate::place::Place;

/// Most ranks of each list that a note names.
const MOST_RANKS: usize = 60;
/// Most ranks of each kind that the text names.
const MOST_TOLD: usize = 8;

/// The ranks for which one waits, with their names.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// They do not answer.
    pub(crate) silent: Vec<(usize, String)>,
    /// They answer, and have not come to the call.
    pub(crate) late: Vec<(usize, String, Place)>,
}

impl Awaited {
    /// The error of the rank that waited.
    pub(crate) fn error(self, rank: usize, operation: &str, waited: Duration) -> Error {
        let reason = self.reason();
        Error::TimedOut {
            operation: operation.into(),
            rank,
            waited,
            silent: self.silent.into_iter().map(|(rank, _)| rank).collect(),
            late: self.late.into_iter().map(|(rank, ..)| rank).collect(),
            reason,
        }
    }

    /// Who is not there, and what to do.
    fn reason(&self) -> String {
        if self.silent.is_empty() && self.late.is_empty() {
            return "All ranks answer and have come to it, so the network is slow: raise the \
                    time-out"
                .into();
        }
        let mut sentences = Vec::new();
        if !self.silent.is_empty() {
            let names = self.silent.iter().take(MOST_TOLD);
            let mut names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
            let more = self.silent.len() - names.len();
            let more = format!("{more} more ranks");
            if self.silent.len() > MOST_TOLD {
                names.push(&more);
            }
            let names = names.join(", ");
            sentences.push(format!(
                "No answer from {names}: computing, stopped, dead or cut off"
            ));
        }
        for (_, name, place) in self.late.iter().take(MOST_TOLD) {
            let told = place.described();
            sentences.push(format!("{name} has not come to it: it {told}"));
        }
        if let Some(more @ 1..) = self.late.len().checked_sub(MOST_TOLD) {
            sentences.push(format!("{more} more ranks have not come to it"));
        }
        sentences.push("If that is expected, raise the time-out".into());
        sentences.join(". ")
    }
}

/// The text of a note about this error, if it is one of a wait.
pub(crate) fn encode(error: &Error) -> Option<String> {
    let Error::TimedOut {
        operation,
        rank,
        waited,
        silent,
        late,
        reason,
    } = error
    else {
        return None;
    };
    let list = |ranks: &[usize]| {
        let ranks = ranks.iter().take(MOST_RANKS).map(usize::to_string);
        ranks.collect::<Vec<_>>().join(",")
    };
    let (waited_ms, silent, late) = (waited.as_millis(), list(silent), list(late));
    // A call may be told with the text of an error, which has lines of its own.
    let operation = operation.replace('\n', " ");
    // The text that may be cut off comes last.
    Some(format!(
        "{rank}\n{waited_ms}\n{silent}\n{late}\n{operation}\n{reason}"
    ))
}

/// `None` for a text that no rank sends.
pub(crate) fn decode(text: &str) -> Option<Error> {
    let mut lines = text.splitn(6, '\n');
    let mut line = || lines.next();
    let list = |text: &str| -> Option<Vec<usize>> {
        let ranks = text.split(',').filter(|rank| !rank.is_empty());
        ranks.map(|rank| rank.parse().ok()).collect()
    };
    Some(Error::TimedOut {
        rank: line()?.parse().ok()?,
        waited: Duration::from_millis(line()?.parse().ok()?),
        silent: list(line()?)?,
        late: list(line()?)?,
        operation: line()?.into(),
        reason: line()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::place::Doing;

    fn awaited(silent: usize, late: usize) -> Awaited {
        let name = |rank: usize| format!("rank {rank} of 99");
        let place = Place::new(3, Doing::Computes("a model", Instant::now()));
        Awaited {
            silent: (0..silent).map(|rank| (rank, name(rank))).collect(),
            late: (20..20 + late)
                .map(|rank| (rank, name(rank), place.clone()))
                .collect(),
        }
    }

    #[test]
    fn those_that_are_not_there_are_named() {
        let of = |silent, late| awaited(silent, late).reason();
        assert!(of(0, 0).contains("have come to it"));
        assert!(of(2, 0).starts_with("No answer from rank 0 of 99, rank 1 of 99:"));
        let late = of(0, 1);
        assert!(late.starts_with("rank 20 of 99 has not come to it: it computes a model for"));
        let many = of(1, 11);
        assert!(many.contains("rank 0 of 99") && many.contains("rank 27 of 99"));
        assert!(many.contains("3 more ranks") && !many.contains("rank 28 of 99"));
        assert!(!of(8, 8).contains("more ranks"));
        let many = of(11, 0);
        assert!(
            many.contains("rank 7 of 99, 3 more ranks: computing"),
            "{many}"
        );
    }

    #[test]
    fn a_note_brings_the_error_of_the_rank_that_waited() {
        for (silent, late) in [(0, 0), (1, 0), (0, 2), (5, 7)] {
            let error = awaited(silent, late).error(4, "all_reduce", Duration::from_millis(3500));
            let note = encode(&error).expect("it is one of a wait");
            let back = decode(&note).expect("a rank sent it");
            assert_eq!(format!("{back:?}"), format!("{error:?}"));
            // A reason may be cut off.
            assert!(decode(&note[..note.len() - 3]).is_some());
        }
        // An operation of two lines is not taken for a reason.
        let error = awaited(1, 0).error(4, "a call\nof two lines", Duration::ZERO);
        let Some(Error::TimedOut {
            operation, reason, ..
        }) = encode(&error).as_deref().and_then(decode)
        else {
            panic!("it comes back");
        };
        assert_eq!(operation, "a call of two lines");
        assert!(reason.starts_with("No answer"), "{reason}");
        for bad in ["", "1\n2\n3", "x\n2\n3\n\nall_reduce\n", "1\n2\n3;4\n\n\n"] {
            assert!(decode(bad).is_none(), "{bad:?}");
        }
    }
}
