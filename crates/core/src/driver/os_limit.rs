//! A limit that follows the memory that the operating system allows: it falls at once and rises
//! slowly.
//!
//! An engine that released memory at every small dip, and took it again at every small rise, would
//! spend its time on nothing else. So the limit rises only if the rise is large enough and has
//! lasted. It counts polls, not time, so a clock that jumps or a program that sleeps changes
//! nothing.

use super::os_budget::OsBudget;

/// The part of the room that stays free for hidden allocations of the driver: 1/16.
const HEADROOM_SHIFT: u32 = 4;

/// The number of consecutive polls that must find the room before the limit rises.
const PATIENCE: u32 = 4;

/// A limit on the bytes that the engine holds.
#[derive(Clone, Debug)]
pub(crate) struct OsLimit {
    limit_bytes: u64,
    /// The number of consecutive polls with room above the limit, and the least room of them.
    roomy: u32,
    least_room_bytes: u64,
}

impl OsLimit {
    /// Starts with the present budget. `ours_bytes` is the engine's part of the use.
    pub(crate) fn new(os: OsBudget, ours_bytes: u64) -> Self {
        OsLimit {
            limit_bytes: room(os, ours_bytes),
            roomy: 0,
            least_room_bytes: u64::MAX,
        }
    }

    /// The limit of the last poll.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Counts one poll and returns the new limit. Less room lowers the limit at once. More room
    /// raises it if four polls in a row saw over 5 % more, and then to the least that they saw.
    pub(crate) fn follow(&mut self, os: OsBudget, ours_bytes: u64) -> u64 {
        let room = room(os, ours_bytes);
        if room <= self.limit_bytes {
            self.settle(room);
        } else if room - self.limit_bytes <= self.limit_bytes / 20 {
            self.settle(self.limit_bytes);
        } else {
            self.roomy += 1;
            self.least_room_bytes = self.least_room_bytes.min(room);
            if self.roomy >= PATIENCE {
                self.settle(self.least_room_bytes);
            }
        }
        self.limit_bytes
    }

    fn settle(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.roomy = 0;
        self.least_room_bytes = u64::MAX;
    }
}

/// The most that the engine could hold now, including what it holds. It is the budget, minus the
/// use of other code in the process, minus the headroom.
fn room(os: OsBudget, ours_bytes: u64) -> u64 {
    let others_bytes = os.used_bytes.saturating_sub(ours_bytes);
    let left_bytes = os.budget_bytes.saturating_sub(others_bytes);
    left_bytes - (left_bytes >> HEADROOM_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u64 = 300;

    /// A budget of which other code uses `others_bytes`.
    fn os(budget_bytes: u64, others_bytes: u64) -> OsBudget {
        OsBudget {
            budget_bytes,
            used_bytes: OURS + others_bytes,
            is_static: false,
        }
    }

    /// Follows budgets that leave the given room after the headroom, and compares the limits.
    #[track_caller]
    fn check(first: u64, polls: &[(u64, u64)]) {
        // 15/16 of 16 n is 15 n.
        let leaves = |room: u64| os(room / 15 * 16, 0);
        let mut limit = OsLimit::new(leaves(first), OURS);
        assert_eq!(limit.limit_bytes(), first);
        for (index, (room, expected)) in polls.iter().enumerate() {
            let got = limit.follow(leaves(*room), OURS);
            assert_eq!(
                (got, limit.limit_bytes()),
                (*expected, *expected),
                "poll {index}"
            );
        }
    }

    #[test]
    fn what_others_use_and_a_headroom_are_not_ours() {
        for (budget, others, expected) in [
            (16_000, 0, 15_000),
            (16_000, 1_600, 13_500),
            (16_000, 16_000, 0),
            (16_000, 99_000, 0),
            (0, 0, 0),
            (u64::MAX, 0, u64::MAX - (u64::MAX >> 4)),
        ] {
            assert_eq!(room(os(budget, others), OURS), expected);
        }
        // The engine's bytes are not counted twice if the driver's count lags behind.
        let lagging = OsBudget {
            budget_bytes: 16_000,
            used_bytes: 100,
            is_static: false,
        };
        assert_eq!(room(lagging, OURS), 15_000);
        // The limit does not depend on how much of it the engine takes.
        for ours_bytes in [0, 5_000, 15_000] {
            let used_bytes = 1_600 + ours_bytes;
            let os = OsBudget {
                used_bytes,
                ..lagging
            };
            assert_eq!(room(os, ours_bytes), 13_500);
        }
    }

    #[test]
    fn less_room_counts_at_once() {
        check(15_000, &[(14_985, 14_985), (6_000, 6_000), (0, 0)]);
    }

    #[test]
    fn more_room_counts_after_four_polls_in_a_row_and_as_much_as_all_saw() {
        check(
            6_000,
            &[
                (12_000, 6_000),
                (15_000, 6_000),
                (9_000, 6_000),
                (15_000, 9_000),
                (15_000, 9_000),
                (15_000, 9_000),
                (15_000, 9_000),
                (15_000, 15_000),
            ],
        );
    }

    #[test]
    fn room_that_comes_and_goes_never_counts() {
        let mut polls = Vec::new();
        for _ in 0..50 {
            polls.extend([(15_000, 6_000); 3]);
            polls.push((6_000, 6_000));
        }
        check(6_000, &polls);
    }

    #[test]
    fn a_rise_of_a_twentieth_never_counts_however_long_it_lasts() {
        check(6_000, &[(6_300, 6_000); 100]);
        check(
            6_000,
            &[
                (6_315, 6_000),
                (6_315, 6_000),
                (6_315, 6_000),
                (6_315, 6_315),
            ],
        );
    }

    #[test]
    fn a_limit_of_nothing_rises_again() {
        check(0, &[(0, 0), (15, 0), (15, 0), (15, 0), (15, 15)]);
    }

    #[test]
    fn the_limit_never_passes_what_there_is_and_moves_seldom() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut budget: u64 = 1 << 30;
        let mut limit = OsLimit::new(os(budget, 0), OURS);
        let mut rises = 0;
        for _ in 0..10_000 {
            budget = random
                .u64(budget / 2..=budget + budget / 2)
                .clamp(1 << 20, 1 << 40);
            let os = os(budget, random.u64(0..budget));
            let before = limit.limit_bytes();
            let after = limit.follow(os, OURS);
            assert!(after <= room(os, OURS), "seed {seed}");
            assert!(
                after <= before || after - before > before / 20,
                "seed {seed}"
            );
            rises += u32::from(after > before);
        }
        assert!(rises <= 10_000 / PATIENCE, "seed {seed}");
    }
}
