//! Eviction policy: the record of a storage's uses, and the choice of victims.
//!
//! This is pure arithmetic that knows no storage, place or lock, and of the crate only how to sort.
//! So the replay of traces can compare this very file with a policy that knows the future.
//!
//! Unused storages never come here: they are freed, not evicted. Operands of the current command
//! never come here either.

/// A clock that counts commands and may wrap around.
pub type Clock = u32;

/// When a storage was last used, and how long it is usually unused: 8 bytes a slot.
///
/// Data that is read in a cycle (weights, once a token) is used again after the same gap. Data used
/// only once, or overdue, is predicted to stay unused as long again as it is late. That fits what a
/// forward pass leaves, because the backward pass uses the oldest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    last: Clock,
    /// The longest time between two uses, in commands, which decays slowly; 0 after a single use.
    /// The maximum counts because several commands in a row often use a storage, and the short gaps
    /// between them predict nothing.
    gap: u32,
}

/// Each use shrinks the gap by 1/8, unless the new gap is as long.
const FORGOTTEN_PART: u32 = 8;

impl Uses {
    /// The uses of a storage that the command at `now` makes.
    pub fn new(now: Clock) -> Self {
        Uses { last: now, gap: 0 }
    }

    /// The command at `now` uses it. A second use by the same command does not count.
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

    /// Predicted commands until the next use, at least 1.
    pub fn distance(&self, now: Clock) -> u32 {
        let age = self.idle(now);
        self.gap.abs_diff(age).max(1)
    }

    /// As [`distance`](Self::distance), when the next `known` commands are known. `next` is the
    /// distance of the next use; `None` when it is not among them. Then a prediction of a use among
    /// them is wrong, but still tells who comes back later than others.
    pub fn distance_knowing(&self, now: Clock, next: Option<u32>, known: u32) -> u32 {
        next.unwrap_or_else(|| match self.distance(now) {
            distance if distance > known => distance,
            distance => known.saturating_add(distance),
        })
    }
}

/// The cost of bringing bytes to the device from where they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferCost {
    /// The fixed cost: staging, a copy, a file operation.
    pub ns_per_transfer: u32,
    /// Nanoseconds per KiB.
    pub ns_per_kib: u32,
}

impl TransferCost {
    /// Nanoseconds for `size_bytes`.
    pub fn ns(self, size_bytes: u64) -> u64 {
        let bytes = u128::from(size_bytes) * u128::from(self.ns_per_kib) / 1024;
        let ns = bytes + u128::from(self.ns_per_transfer);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// The arguments for and against evicting a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The bytes that eviction frees.
    pub size_bytes: u64,
    /// A copy elsewhere is valid, so nothing has to be written first.
    pub is_clean: bool,
    /// Commands until its next use.
    pub distance: u32,
    /// Cost of restoring it, by the [`TransferCost`] of where its bytes will be.
    pub back_ns: u64,
}

impl Weight {
    /// Freed byte-commands per nanosecond of restore cost. It is low for storages that are slow to
    /// restore, and for storages so small that a transfer hardly pays.
    ///
    /// The cost of writing does not count: a storage is written once but restored in each round.
    /// Where weights are read in a cycle, evicting all clean ones first moves up to three times as
    /// much.
    ///
    /// The room is free until the command before the next use: what the next command needs gives
    /// room for one command only.
    fn worth(&self) -> f64 {
        let free_commands = f64::from(self.distance).max(1.5) - 1.0;
        free_commands * self.size_bytes as f64 / self.back_ns.max(1) as f64
    }

    /// Cost of the eviction in nanoseconds per command, however much of the freed room is needed.
    fn price(&self) -> f64 {
        self.back_ns as f64 / f64::from(self.distance.max(1))
    }
}

/// A victim worth at least this fraction of the best is nearly as good: predictions are no more
/// exact.
const NEAR: f64 = 0.7;

/// Several smaller victims replace a single one that is larger than needed, if they cost at most
/// this fraction of it. The spare room of the large one has a value: other storages are restored
/// into it.
const CHEAPER: f64 = 0.5;

/// Moves the victims to the front, in the order of eviction, until they cover `needed_bytes`.
/// Returns their number; all candidates when they do not suffice.
///
/// The best go first. Once a single candidate that is nearly as good covers the missing bytes, the
/// smallest such one ends the list. So little is evicted for nothing. Several smaller ones end it
/// instead if they are far cheaper, unless `coming_bytes` will be needed soon and the large one
/// with them. O(n log n) where no single one covers it, as among many small ones.
pub fn choose<T>(
    candidates: &mut [T],
    weigh: impl Fn(&T) -> Weight,
    needed_bytes: u64,
    coming_bytes: u64,
) -> usize {
    let weights: Vec<Weight> = candidates.iter().map(weigh).collect();
    let largest_bytes = weights.iter().map(|weight| weight.size_bytes).max();
    let worths = weights.iter().map(Weight::worth).zip(0..);
    // Keys are sorted alone, since a weight is large. Equals stay in their order.
    let mut order: Vec<(f64, usize)> = worths.collect();
    order.sort_unstable_by(|(one, index), (other, other_index)| {
        other.total_cmp(one).then(index.cmp(other_index))
    });
    let (mut chosen, mut missing_bytes) = (0, needed_bytes);
    while missing_bytes > 0 && chosen < order.len() {
        if largest_bytes.is_some_and(|largest_bytes| missing_bytes <= largest_bytes) {
            if let Some(last) = last_of(&weights, &order[chosen..], missing_bytes) {
                order[chosen..=chosen + last].rotate_right(1);
            }
            let left = &order[chosen..];
            if let Some(smaller) = smaller_ones(&weights, left, missing_bytes, coming_bytes) {
                for (to, &from) in smaller.iter().enumerate() {
                    order[chosen + to..=chosen + from].rotate_right(1);
                }
                chosen += smaller.len();
                break;
            }
        }
        missing_bytes = missing_bytes.saturating_sub(weights[order[chosen].1].size_bytes);
        chosen += 1;
    }
    reorder(
        candidates,
        order.into_iter().map(|(_, index)| index).collect(),
    );
    chosen
}

/// Position of the candidate that ends the list, among candidates in the order of their worth;
/// `None` if there is none.
fn last_of(weights: &[Weight], order: &[(f64, usize)], missing_bytes: u64) -> Option<usize> {
    let most = order.first()?.0;
    let near = order.iter().take_while(|(worth, _)| *worth >= most * NEAR);
    let near = near.map(|&(worth, index)| (worth, &weights[index]));
    let covering = near.enumerate();
    let covering = covering.filter(|(_, (_, weight))| weight.size_bytes >= missing_bytes);
    let last = covering.min_by(|(_, (a_worth, a)), (_, (b_worth, b))| {
        let by_size = a.size_bytes.cmp(&b.size_bytes);
        let by_state = b.is_clean.cmp(&a.is_clean);
        by_size.then(by_state).then(b_worth.total_cmp(a_worth))
    });
    last.map(|(position, _)| position)
}

/// Positions of smaller candidates that replace the first, among candidates in the order of their
/// worth. They cover the same bytes, far cheaper, and are nearly as far away. `None` if there are
/// none, or if the first must leave anyway.
fn smaller_ones(
    weights: &[Weight],
    order: &[(f64, usize)],
    missing_bytes: u64,
    coming_bytes: u64,
) -> Option<Vec<usize>> {
    let first = &weights[order.first()?.1];
    if first.size_bytes <= missing_bytes.max(coming_bytes) {
        return None;
    }
    let most = first.price() * CHEAPER;
    let (mut smaller, mut bytes, mut price) = (Vec::new(), 0_u64, 0.0);
    let near = f64::from(first.distance) * NEAR;
    for (position, &(_, index)) in order.iter().enumerate().skip(1) {
        let weight = &weights[index];
        if weight.size_bytes >= first.size_bytes || f64::from(weight.distance) < near {
            continue;
        }
        smaller.push(position);
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

/// Moves the item at `order[n]` to `n`.
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

    /// Checks the predicted distance at `now` of a storage that was used at these times.
    fn check(times: &[Clock], now: Clock, expected: u32) {
        // The start of the clock does not matter, even where it wraps around.
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
        assert_eq!(uses.distance_knowing(110, None, 256), 256 + 90);
        assert_eq!(uses.distance_knowing(110, None, u32::MAX), u32::MAX);
    }

    #[test]
    fn what_is_known_of_uses_takes_few_bytes() {
        assert!(size_of::<Uses>() <= 16);
    }

    /// The victims among candidates of (MiB, distance, clean), all restored at the same speed.
    fn chosen(candidates: &[(u64, u32, bool)], needed_mib: u64) -> Vec<usize> {
        chosen_knowing(candidates, needed_mib, 0)
    }

    fn chosen_knowing(
        candidates: &[(u64, u32, bool)],
        needed_mib: u64,
        coming_mib: u64,
    ) -> Vec<usize> {
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
        let count = choose(&mut order, weigh, needed_mib << 20, coming_mib << 20);
        order.truncate(count);
        order
    }

    #[test]
    fn several_small_ones_leave_rather_than_a_far_larger_one() {
        let small = (1, 95, true);
        let one_large = [(32, 100, true), small, small, (1, 90, true), (1, 10, true)];
        assert_eq!(chosen(&one_large, 2), [1, 2]);
        assert_eq!(chosen(&one_large, 3), [1, 2, 3]);
        // The large one leaves if it will have to leave anyway.
        assert_eq!(chosen_knowing(&one_large, 3, 16), [1, 2, 3]);
        assert_eq!(chosen_knowing(&one_large, 3, 32), [0]);
        // The small ones stay if they are used soon, or if the large one is hardly larger than all
        // of them.
        assert_eq!(chosen(&one_large, 4), [0]);
        assert_eq!(chosen(&[(4, 100, true), small, small, small], 3), [0]);
        // The small ones cover what the large one does not.
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
        // Both together cost less than half of the largest.
        assert_eq!(chosen(&sizes, 17), [2, 1]);
        assert_eq!(chosen(&sizes, 25), [0]);
        assert_eq!(chosen(&[(64, 1000, false), (8, 600, false)], 8), [0]);
        // Of two alike, the clean one leaves.
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
        assert_eq!(choose(&mut candidates, weigh, 8, 0), 1);
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
        assert_eq!(choose(&mut candidates, |weight| *weight, 4 << 20, 0), 1);
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
            let count = choose(&mut weights, |(_, weight)| *weight, needed_bytes, 0);
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
