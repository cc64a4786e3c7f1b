//! Who leaves when there is no room: what is known of a storage's uses, and the choice of victims.
//!
//! Pure arithmetic, without a storage, a place or a lock in sight: it knows nothing of the crate,
//! so the replay of traces can hold this very file against one that sees the future.
//!
//! Dead data never comes here: it is freed, not evicted. Nor does what the command at hand needs.

/// A clock that counts commands and may wrap around.
pub type Clock = u32;

/// When a storage was last used, and how long it is evicted as a rule: 8 bytes a slot.
///
/// What is read in a cycle (weights, once a token) comes back after as long as before. What has not
/// been used twice, or is overdue, is taken to stay away for as long as it is late: right for what
/// a forward pass leaves behind, since the backward pass takes the oldest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    last: Clock,
    /// The longest time between two uses, in commands, slowly forgotten; 0 when there was one use
    /// only. Often several commands in a row use a storage: the time between those says nothing.
    gap: u32,
}

/// At each use the gap shrinks by one part in so many, unless it was as long again.
const FORGOTTEN_PART: u32 = 8;

impl Uses {
    /// The uses of a storage that the command at `now` makes.
    pub fn new(now: Clock) -> Self {
        Uses { last: now, gap: 0 }
    }

    /// The command at `now` uses it. A second use by one command is none.
    pub fn touch(&mut self, now: Clock) {
        let gap = now.wrapping_sub(self.last);
        if gap != 0 {
            self.gap = gap.max(self.gap - self.gap.div_ceil(FORGOTTEN_PART));
            self.last = now;
        }
    }

    /// Commands since the last use.
    pub fn idle(&self, now: Clock) -> u32 {
        now.wrapping_sub(self.last)
    }

    /// Commands until the next use, as far as the past tells: at least 1.
    pub fn distance(&self, now: Clock) -> u32 {
        let age = self.idle(now);
        self.gap.abs_diff(age).max(1)
    }

    /// As [`distance`](Self::distance), by one who knows the next `known` commands: the use is
    /// `next` commands away, or not among them.
    pub fn distance_knowing(&self, now: Clock, next: Option<u32>, known: u32) -> u32 {
        let beyond = || self.distance(now).max(known.saturating_add(1));
        next.unwrap_or_else(beyond)
    }
}

/// What it costs to bring bytes to the device from where they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferCost {
    /// Whatever the size: staging, a copy, a file operation.
    pub ns_per_transfer: u32,
    /// Nanoseconds for each KiB.
    pub ns_per_kib: u32,
}

impl TransferCost {
    /// Nanoseconds for so many bytes.
    pub fn ns(self, size_bytes: u64) -> u64 {
        let bytes = u128::from(size_bytes) * u128::from(self.ns_per_kib) / 1024;
        let ns = bytes + u128::from(self.ns_per_transfer);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// What speaks for and against putting a storage out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// What its leaving gains.
    pub size_bytes: u64,
    /// A copy elsewhere is valid: nothing has to be written out first.
    pub is_clean: bool,
    /// Commands until its next use.
    pub distance: u32,
    /// What it will cost to have it back, by the [`TransferCost`] of where it will be then.
    pub back_ns: u64,
}

impl Weight {
    /// Byte-commands of room gained for each nanosecond that it costs: the distance, made smaller
    /// for what comes back slowly, and for what is so small that it is hardly worth a transfer.
    ///
    /// Writing it out counts for nothing: that is paid once, but coming back in each round. Where
    /// weights are read in a cycle, evicting all clean ones first moves up to three times as much.
    fn worth(&self) -> f64 {
        f64::from(self.distance) * self.size_bytes as f64 / self.back_ns.max(1) as f64
    }

    /// Nanoseconds a command that its leaving costs, however much of its room is wanted.
    fn price(&self) -> f64 {
        self.back_ns as f64 / f64::from(self.distance.max(1))
    }
}

/// A victim that is worth this part of the best is nearly as good: predictions are no more exact.
const NEAR: f64 = 0.7;

/// Several smaller ones leave in the place of one that is larger than what is missing, if they cost
/// this part of it at most. The room that is left over is worth something: others come back into
/// it.
const CHEAPER: f64 = 0.5;

/// Moves those that should leave to the front, in the order in which they should, until they cover
/// `needed_bytes`; returns how many that is. All of them when all together do not suffice.
///
/// The best go first. As soon as a single one that is nearly as good covers what is still missing,
/// the smallest such one ends the list, so that little leaves for nothing; or several smaller ones
/// do, if they are far cheaper. O(n log n) where nobody covers it alone, as among many small ones.
pub fn choose<T>(candidates: &mut [T], weigh: impl Fn(&T) -> Weight, needed_bytes: u64) -> usize {
    let by_worth = |candidate: &T| {
        let weight = weigh(candidate);
        (weight.worth(), weight)
    };
    let mut weights: Vec<(f64, Weight, usize)> = candidates
        .iter()
        .map(by_worth)
        .enumerate()
        .map(|(index, (worth, weight))| (worth, weight, index))
        .collect();
    weights.sort_by(|a, b| b.0.total_cmp(&a.0));
    let largest_bytes = weights.iter().map(|(_, weight, _)| weight.size_bytes).max();
    let (mut chosen, mut missing_bytes) = (0, needed_bytes);
    while missing_bytes > 0 && chosen < weights.len() {
        if largest_bytes.is_some_and(|largest_bytes| missing_bytes <= largest_bytes) {
            if let Some(last) = last_of(&weights[chosen..], missing_bytes) {
                weights[chosen..=chosen + last].rotate_right(1);
            }
            if let Some(smaller) = smaller_ones(&weights[chosen..], missing_bytes) {
                chosen += to_front(&mut weights[chosen..], &smaller);
                break;
            }
        }
        missing_bytes = missing_bytes.saturating_sub(weights[chosen].1.size_bytes);
        chosen += 1;
    }
    let order = weights.iter().map(|(_, _, index)| *index).collect();
    reorder(candidates, order);
    chosen
}

/// Of those that are sorted by worth, the index of the one that ends the list; `None` if none does.
fn last_of(weights: &[(f64, Weight, usize)], missing_bytes: u64) -> Option<usize> {
    let most = weights.first()?.0;
    let near = weights
        .iter()
        .take_while(|(worth, ..)| *worth >= most * NEAR);
    let covering = near.enumerate();
    let covering = covering.filter(|(_, (_, weight, _))| weight.size_bytes >= missing_bytes);
    let last = covering.min_by(|(_, (a_worth, a, _)), (_, (b_worth, b, _))| {
        let by_size = a.size_bytes.cmp(&b.size_bytes);
        let by_state = b.is_clean.cmp(&a.is_clean);
        by_size.then(by_state).then(b_worth.total_cmp(a_worth))
    });
    last.map(|(index, _)| index)
}

/// Of those that are sorted by worth, the indices of smaller ones that cover what the first would,
/// far cheaper than it, and nearly as far away; `None` if there are none, or if the first is to
/// leave in any case.
fn smaller_ones(weights: &[(f64, Weight, usize)], missing_bytes: u64) -> Option<Vec<usize>> {
    let (_, first, _) = weights.first()?;
    if first.size_bytes <= missing_bytes {
        return None;
    }
    let most = first.price() * CHEAPER;
    let (mut smaller, mut bytes, mut price) = (Vec::new(), 0_u64, 0.0);
    let near = f64::from(first.distance) * NEAR;
    for (index, (_, weight, _)) in weights.iter().enumerate().skip(1) {
        if weight.size_bytes >= first.size_bytes || f64::from(weight.distance) < near {
            continue;
        }
        smaller.push(index);
        bytes = bytes.saturating_add(weight.size_bytes);
        price += weight.price();
        if price > most {
            return None;
        }
        if bytes >= missing_bytes {
            return Some(smaller);
        }
    }
    None
}

/// Moves the items at these ascending indices to the front; how many they are.
fn to_front<T>(items: &mut [T], indices: &[usize]) -> usize {
    for (to, &from) in indices.iter().enumerate() {
        items[to..=from].rotate_right(1);
    }
    indices.len()
}

/// Moves what is at `order[n]` to `n`.
fn reorder<T>(items: &mut [T], mut order: Vec<usize>) {
    for start in 0..order.len() {
        let mut to = start;
        loop {
            let from = std::mem::replace(&mut order[to], to);
            if from == start {
                break;
            }
            items.swap(to, from);
            to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A storage that is used at these times, and then in how many commands again, seen from `now`.
    fn check(times: &[Clock], now: Clock, expected: u32) {
        // Wherever the clock started, also where it wraps around in between.
        for start in [0, 1, 1 << 31, u32::MAX - 150, u32::MAX] {
            let at = |time: Clock| start.wrapping_add(time);
            let mut uses = Uses::new(at(times[0]));
            for &time in &times[1..] {
                uses.touch(at(time));
            }
            let found = uses.distance(at(now));
            assert_eq!(
                found, expected,
                "used at {times:?} from {start}, seen at {now}"
            );
        }
    }

    #[test]
    fn what_is_read_in_a_cycle_comes_back_after_as_long_as_before() {
        check(&[0, 100], 100, 100);
        check(&[0, 100], 130, 70);
        check(&[0, 7, 107], 200, 7);
        check(&[0, 100], 199, 1);
        check(&[0, 100], 200, 1);
    }

    #[test]
    fn several_uses_in_a_row_are_forgiven_for_a_while() {
        check(&[0, 96, 97], 97, 84);
        check(&[0, 96, 97, 98], 98, 73);
        check(&[0, 8, 10, 12, 14], 14, 5);
    }

    #[test]
    fn what_is_overdue_stays_evicted_for_as_long_as_it_is_late() {
        check(&[0, 100], 210, 10);
        check(&[0, 2], 52, 48);
        check(&[5], 5, 1);
        check(&[5], 105, 100);
        check(&[5, 5, 5], 105, 100);
    }

    #[test]
    fn who_knows_what_comes_next_need_not_guess() {
        let mut uses = Uses::new(0);
        uses.touch(100);
        assert_eq!(uses.distance_knowing(110, Some(3), 256), 3);
        assert_eq!(uses.distance_knowing(110, None, 10), 90);
        assert_eq!(uses.distance_knowing(110, None, 256), 257);
        assert_eq!(uses.distance_knowing(110, None, u32::MAX), u32::MAX);
    }

    #[test]
    fn what_is_known_of_uses_takes_few_bytes() {
        assert!(size_of::<Uses>() <= 16);
    }

    /// Candidates as (MiB, distance, clean), all back at the same speed.
    fn chosen(candidates: &[(u64, u32, bool)], needed_mib: u64) -> Vec<usize> {
        let cost = TransferCost {
            ns_per_transfer: 50_000,
            ns_per_kib: 100,
        };
        let weigh = |&index: &usize| {
            let (size_mib, distance, is_clean) = candidates[index];
            let size_bytes = size_mib << 20;
            Weight {
                size_bytes,
                is_clean,
                distance,
                back_ns: cost.ns(size_bytes),
            }
        };
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        let count = choose(&mut order, weigh, needed_mib << 20);
        order.truncate(count);
        order
    }

    #[test]
    fn several_small_ones_leave_rather_than_a_far_larger_one() {
        let small = (1, 95, true);
        let one_large = [(32, 100, true), small, small, (1, 90, true), (1, 10, true)];
        assert_eq!(chosen(&one_large, 2), [1, 2]);
        assert_eq!(chosen(&one_large, 3), [1, 2, 3]);
        // Not those that are used at once, nor for what is hardly larger than all of them.
        assert_eq!(chosen(&one_large, 4), [0]);
        assert_eq!(chosen(&[(4, 100, true), small, small, small], 3), [0]);
        // What is missing beyond the large one is found among the small ones.
        assert_eq!(chosen(&one_large, 34), [0, 1, 2]);
    }

    #[test]
    fn the_furthest_go_first_until_they_cover_what_is_needed() {
        let three = [(8, 10, false), (8, 1000, false), (8, 100, false)];
        assert_eq!(chosen(&three, 0), [0_usize; 0]);
        assert_eq!(chosen(&three, 8), [1]);
        assert_eq!(chosen(&three, 9), [1, 2]);
        assert_eq!(chosen(&three, 99), [1, 2, 0]);
        assert_eq!(chosen(&[], 8), [0_usize; 0]);
    }

    #[test]
    fn one_of_the_right_size_goes_instead_of_one_that_is_a_little_further() {
        let sizes = [(64, 1000, false), (8, 900, false), (16, 950, false)];
        assert_eq!(chosen(&sizes, 8), [1]);
        assert_eq!(chosen(&sizes, 9), [2]);
        // Both together are less than half of the largest.
        assert_eq!(chosen(&sizes, 17), [2, 1]);
        assert_eq!(chosen(&sizes, 25), [0]);
        assert_eq!(chosen(&[(64, 1000, false), (8, 600, false)], 8), [0]);
        // Of two alike, the one that need not be written out.
        assert_eq!(chosen(&[(8, 1000, false), (8, 900, true)], 8), [1]);
    }

    #[test]
    fn what_comes_back_slowly_stays_longer() {
        let weigh = |&(distance, back_ns): &(u32, u64)| Weight {
            size_bytes: 8,
            is_clean: true,
            distance,
            back_ns,
        };
        let mut candidates = [(1000, 10_000), (500, 100)];
        assert_eq!(choose(&mut candidates, weigh, 8), 1);
        assert_eq!(candidates[0], (500, 100));
    }

    #[test]
    fn small_change_is_spared() {
        let tiny = Weight {
            size_bytes: 256,
            is_clean: false,
            distance: 1000,
            back_ns: 50_025,
        };
        let large = Weight {
            size_bytes: 8 << 20,
            is_clean: false,
            distance: 900,
            back_ns: 869_200,
        };
        let mut candidates = [tiny, large];
        assert_eq!(choose(&mut candidates, |weight| *weight, 4 << 20), 1);
        assert_eq!(candidates[0], large);
    }

    #[test]
    fn any_numbers_give_a_list_without_a_gap_or_a_surplus() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..2000 {
            let bits = random.u32(0..=64);
            let mut any = || random.u64(..).checked_shr(64 - bits).unwrap_or(0);
            let needed_bytes = any();
            let mut weights: Vec<(usize, Weight)> = (0..round % 40)
                .map(|index| {
                    let weight = Weight {
                        size_bytes: any(),
                        is_clean: any() & 1 == 0,
                        distance: any() as u32,
                        back_ns: any(),
                    };
                    (index, weight)
                })
                .collect();
            let before = weights.clone();
            let count = choose(&mut weights, |(_, weight)| *weight, needed_bytes);
            let sum = |part: &[(usize, Weight)]| {
                let sizes = part.iter().map(|(_, weight)| u128::from(weight.size_bytes));
                sizes.sum::<u128>()
            };
            let needed = u128::from(needed_bytes);
            let enough = sum(&weights[..count]) >= needed;
            assert!(
                enough || count == weights.len(),
                "seed {seed}, round {round}"
            );
            let one_less = sum(&weights[..count.saturating_sub(1)]);
            assert!(
                count == 0 || one_less < needed,
                "seed {seed}, round {round}"
            );
            weights.sort_by_key(|(index, _)| *index);
            assert_eq!(weights, before, "seed {seed}, round {round}");
        }
    }

    #[test]
    fn any_times_give_a_distance() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut uses = Uses::default();
        for step in 0..10_000 {
            let now = random.u32(..) >> random.u32(0..32);
            if random.bool() {
                uses.touch(now);
            }
            let distance = uses.distance(now);
            assert!(distance >= 1, "seed {seed}, step {step}");
            let known = random.u32(..);
            let beyond = uses.distance_knowing(now, None, known);
            assert!(beyond >= distance, "seed {seed}, step {step}");
        }
    }

    #[test]
    fn no_transfer_costs_more_than_can_be_counted() {
        let most = TransferCost {
            ns_per_transfer: u32::MAX,
            ns_per_kib: u32::MAX,
        };
        assert_eq!(most.ns(u64::MAX), u64::MAX);
        assert_eq!(most.ns(0), u64::from(u32::MAX));
    }
}
