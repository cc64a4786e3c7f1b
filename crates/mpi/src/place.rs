//! What a rank tells another one that waits for it: which call it has come to, and what it does.

use std::time::{Duration, Instant};

/// Numbers before the text.
const FIXED_BYTES: usize = 17;
const WAITS: u8 = 1;
const COMPUTES: u8 = 2;
const ENDS: u8 = 3;

/// What this rank does, while it reads notes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doing<'a> {
    /// It waits in a call for other ranks.
    Waits(&'a str, Instant),
    /// It has a thread that computes, and waits for that.
    Computes(&'a str, Instant),
    /// Its program has ended with an error.
    Ends,
}

/// Where a rank is, as it told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the last call that it has come to.
    pub(crate) number: u64,
    kind: u8,
    /// For how long it has done this.
    time: Duration,
    /// The call, or what it computes.
    what: String,
}

impl Place {
    pub(crate) fn new(number: u64, doing: Doing<'_>) -> Place {
        let (kind, time, what) = match doing {
            Doing::Waits(call, since) => (WAITS, since.elapsed(), call),
            Doing::Computes(what, since) => (COMPUTES, since.elapsed(), what),
            Doing::Ends => (ENDS, Duration::ZERO, ""),
        };
        Place {
            number,
            kind,
            time,
            what: what.into(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let time_ms = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.what.len());
        bytes.extend(self.number.to_ne_bytes());
        bytes.extend(time_ms.to_ne_bytes());
        bytes.push(self.kind);
        bytes.extend(self.what.as_bytes());
        bytes
    }

    /// `None` for bytes that no rank sends.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Place> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (time_ms, rest) = rest.split_first_chunk::<8>()?;
        let (kind, what) = rest.split_first()?;
        Some(Place {
            number: u64::from_ne_bytes(*number),
            kind: *kind,
            time: Duration::from_millis(u64::from_ne_bytes(*time_ms)),
            what: String::from_utf8_lossy(what).into_owned(),
        })
    }

    /// What the rank does, for people. It goes on after "rank 1 has not come to it: it".
    pub(crate) fn described(&self) -> String {
        let Place { number, what, .. } = self;
        let time_s = self.time.as_secs_f32();
        match self.kind {
            WAITS => format!("waits for others in call {number}, {what}, for {time_s:.1} s"),
            COMPUTES => format!("computes {what} for {time_s:.1} s, after call {number}"),
            _ => format!("ends with an error after call {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_from_its_bytes() {
        let since = Instant::now() - Duration::from_millis(2500);
        let doings = [
            (Doing::Waits("all_reduce", since), "call 7, all_reduce, for"),
            (Doing::Computes("a model", since), "a model for"),
            (Doing::Ends, "an error after call 7"),
        ];
        for (doing, words) in doings {
            let mut place = Place::new(7, doing);
            // Whole milliseconds travel.
            place.time = Duration::from_millis(2500);
            let back = Place::decode(&place.encode()).expect("a place");
            assert_eq!(back, place);
            assert!(back.described().contains(words), "{}", back.described());
        }
        assert_eq!(Place::decode(&[1; FIXED_BYTES - 1]), None);
    }
}
