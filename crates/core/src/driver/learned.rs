//! A limit that is learned from refusals, for devices whose memory size is not known.
//!
//! A refusal takes a driver long, and some drivers first move the memory of other programs out. So
//! the engine does not ask for refused bytes again at each request. It searches the limit by
//! halves, between the bytes that it holds and the least bytes that were refused. The limit is
//! never final, since other programs may release memory. The driver is asked again after the limit
//! has stopped several requests, after many polls, and before the engine reports out of memory.

/// The search ends when the gap is at most 1/16 of the bytes held.
const PRECISION: u64 = 16;

/// The driver is asked again after the limit has stopped this many requests, ...
const HINDRANCES: u32 = 16;

/// ... and after this many polls: some seconds of a frame loop.
const POLLS: u32 = 256;

/// The limit as far as refusals have shown it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LearnedLimit {
    known: Option<Known>,
    hindrances: u32,
    polls: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    limit_bytes: u64,
    refused_bytes: u64,
}

impl LearnedLimit {
    /// Notes that the driver refused to raise the bytes from `held_bytes` to `wanted_bytes`.
    pub(super) fn refused(&mut self, held_bytes: u64, wanted_bytes: u64) {
        let before_bytes = self.known.map_or(u64::MAX, |known| known.refused_bytes);
        *self = LearnedLimit::default();
        self.settle(held_bytes, before_bytes.min(wanted_bytes));
    }

    /// Notes that the driver granted bytes, so that `held_bytes` are held now.
    pub(super) fn had(&mut self, held_bytes: u64) {
        let Some(known) = self.known else { return };
        if held_bytes >= known.refused_bytes {
            // The device has more memory than before.
            self.forget();
        } else if held_bytes >= known.limit_bytes {
            self.settle(held_bytes, known.refused_bytes);
        }
    }

    fn settle(&mut self, held_bytes: u64, refused_bytes: u64) {
        let gap_bytes = refused_bytes.saturating_sub(held_bytes);
        let room_bytes = match gap_bytes <= held_bytes / PRECISION {
            true => 0,
            false => gap_bytes / 2,
        };
        self.known = Some(Known {
            limit_bytes: held_bytes + room_bytes,
            refused_bytes,
        });
    }

    /// The most bytes worth asking for; `u64::MAX` without a refusal.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.known.map_or(u64::MAX, |known| known.limit_bytes)
    }

    /// Notes that the limit stops a request. Returns whether the driver should be asked.
    pub(super) fn hinders(&mut self) -> bool {
        self.hindrances += 1;
        self.hindrances >= HINDRANCES && self.forget()
    }

    /// Counts a poll.
    pub(super) fn polled(&mut self) {
        self.polls += 1;
        if self.polls >= POLLS {
            self.forget();
        }
    }

    /// Forgets the limit. Returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        std::mem::take(self).known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a device of `device_bytes` and equal requests. Returns the bytes held in the end,
    /// and the number of refusals.
    fn refusals(device_bytes: u64, request_bytes: u64, requests: u64) -> (u64, u64) {
        let (mut learned, mut held_bytes, mut refusals) = (LearnedLimit::default(), 0, 0);
        for _ in 0..requests {
            let wanted_bytes = held_bytes + request_bytes;
            if wanted_bytes > learned.limit_bytes() && !learned.hinders() {
                continue;
            }
            if wanted_bytes <= device_bytes {
                held_bytes = wanted_bytes;
                learned.had(held_bytes);
            } else {
                refusals += 1;
                learned.refused(held_bytes, wanted_bytes);
            }
        }
        (held_bytes, refusals)
    }

    #[test]
    fn a_full_device_is_asked_now_and_then() {
        assert_eq!(refusals(1000, 10, 100), (1000, 0));
        let (held_bytes, refused) = refusals(1000, 10, 1700);
        assert_eq!(held_bytes, 1000);
        assert!((90..=110).contains(&refused), "{refused}");
    }

    #[test]
    fn what_was_refused_in_one_piece_is_had_in_smaller_ones() {
        let mut learned = LearnedLimit::default();
        assert_eq!(learned.limit_bytes(), u64::MAX);
        learned.refused(100, 1100);
        assert_eq!(learned.limit_bytes(), 600);
        learned.had(500);
        assert_eq!(learned.limit_bytes(), 600);
        learned.had(600);
        assert_eq!(learned.limit_bytes(), 850);
        learned.refused(800, 840);
        assert_eq!(learned.limit_bytes(), 800);
        learned.had(840);
        assert_eq!(
            learned.limit_bytes(),
            u64::MAX,
            "the driver granted more than it had refused"
        );
    }

    #[test]
    fn time_and_need_forget() {
        let mut learned = LearnedLimit::default();
        assert!(!learned.forget());
        learned.refused(10, 20);
        (1..POLLS).for_each(|_| learned.polled());
        assert_eq!(learned.limit_bytes(), 15);
        learned.polled();
        assert_eq!(learned.limit_bytes(), u64::MAX);
        learned.refused(10, 20);
        assert!((1..HINDRANCES).all(|_| !learned.hinders()));
        assert!(learned.hinders());
        assert!(!learned.forget());
    }

    #[test]
    fn any_numbers_give_a_limit() {
        for (held_bytes, wanted_bytes) in [(0, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (5, 1)] {
            let mut learned = LearnedLimit::default();
            learned.refused(held_bytes, wanted_bytes);
            learned.had(held_bytes);
            assert!(learned.limit_bytes() >= held_bytes.min(wanted_bytes));
        }
    }
}
