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

/// The indices of the victims that cover `needed_bytes`, in the order of eviction. All candidates
/// when they do not suffice.
///
/// The best go first. Once a single candidate that is nearly as good covers the missing bytes, the
/// smallest such one ends the list. So little is evicted for nothing. Several smaller ones end it
/// instead if they are far cheaper, unless `coming_bytes` will be needed soon and the large one
/// with them. O(n) for few victims, O(n log n) for many.
pub fn choose<T>(
    candidates: &[T],
    weigh: impl Fn(&T) -> Weight,
    needed_bytes: u64,
    coming_bytes: u64,
) -> Vec<usize> {
    let weights: Vec<Weight> = candidates.iter().map(weigh).collect();
    let largest_bytes = weights.iter().map(|weight| weight.size_bytes).max();
    let mut ranking = Ranking::new(&weights);
    let (mut chosen, mut missing_bytes) = (0, needed_bytes);
    while missing_bytes > 0 && chosen < weights.len() {
        if largest_bytes.is_some_and(|largest_bytes| missing_bytes <= largest_bytes) {
            if let Some(last) = last_of(&mut ranking, chosen, missing_bytes) {
                ranking.move_ahead(last, chosen);
            }
            let smaller = smaller_ones(&mut ranking, chosen, missing_bytes, coming_bytes);
            if let Some(smaller) = smaller {
                for position in smaller {
                    ranking.move_ahead(position, chosen);
                    chosen += 1;
                }
                break;
            }
        }
        let size_bytes = ranking.weight(chosen).map_or(0, |weight| weight.size_bytes);
        missing_bytes = missing_bytes.saturating_sub(size_bytes);
        chosen += 1;
    }
    ranking.first(chosen)
}

/// The least number of candidates to sort at a time.
const LEAST_SORTED: usize = 16;

/// Candidates by their worth, the best first. Equals are in the order of their indices.
///
/// Most choices look at a few of many candidates. So only those are sorted that somebody asks for.
struct Ranking<'a> {
    weights: &'a [Weight],
    /// Worths and indices. Keys are sorted alone, since a weight is large.
    order: Vec<(f64, usize)>,
    /// Positions below this are sorted. All others come after them.
    sorted: usize,
}

impl<'a> Ranking<'a> {
    fn new(weights: &'a [Weight]) -> Self {
        Ranking {
            weights,
            order: weights.iter().map(Weight::worth).zip(0..).collect(),
            sorted: 0,
        }
    }

    /// The worth and the weight of the candidate at a position.
    fn get(&mut self, position: usize) -> Option<(f64, &'a Weight)> {
        while position >= self.sorted && self.sorted < self.order.len() {
            self.sort_more();
        }
        let &(worth, index) = self.order.get(position)?;
        Some((worth, &self.weights[index]))
    }

    fn weight(&mut self, position: usize) -> Option<&'a Weight> {
        self.get(position).map(|(_, weight)| weight)
    }

    /// Sorts as many again as are sorted.
    fn sort_more(&mut self) {
        let by_worth = |(one, index): &(f64, usize), (other, other_index): &(f64, usize)| {
            other.total_cmp(one).then(index.cmp(other_index))
        };
        let rest = &mut self.order[self.sorted..];
        let more = self.sorted.max(LEAST_SORTED).min(rest.len());
        if more < rest.len() {
            rest.select_nth_unstable_by(more, by_worth);
        }
        rest[..more].sort_unstable_by(by_worth);
        self.sorted += more;
    }

    /// Positions from the first one on, with their worths and weights.
    fn iter_from(&mut self, first: usize) -> impl Iterator<Item = (usize, f64, &'a Weight)> {
        (first..).map_while(|position| {
            let (worth, weight) = self.get(position)?;
            Some((position, worth, weight))
        })
    }

    /// Moves the candidate at a position to an earlier one.
    fn move_ahead(&mut self, from: usize, to: usize) {
        self.order[to..=from].rotate_right(1);
    }

    /// The indices of the first candidates.
    fn first(mut self, count: usize) -> Vec<usize> {
        self.order.truncate(count);
        self.order.into_iter().map(|(_, index)| index).collect()
    }
}

/// Position of the candidate that ends the list, among those from `first` on; `None` if there is
/// none.
fn last_of(ranking: &mut Ranking<'_>, first: usize, missing_bytes: u64) -> Option<usize> {
    let (most, _) = ranking.get(first)?;
    let near = ranking.iter_from(first);
    let near = near.take_while(|(_, worth, _)| *worth >= most * NEAR);
    let covering = near.filter(|(_, _, weight)| weight.size_bytes >= missing_bytes);
    // The first of equals is worth the most.
    let last = covering.min_by_key(|(_, _, weight)| (weight.size_bytes, !weight.is_clean));
    last.map(|(position, ..)| position)
}

/// Positions of smaller candidates that replace the one at `first`, among those after it. They
/// cover the same bytes, far cheaper, and are nearly as far away. `None` if there are none, or if
/// the first must leave anyway.
fn smaller_ones(
    ranking: &mut Ranking<'_>,
    first: usize,
    missing_bytes: u64,
    coming_bytes: u64,
) -> Option<Vec<usize>> {
    let replaced = ranking.weight(first)?;
    if replaced.size_bytes <= missing_bytes.max(coming_bytes) {
        return None;
    }
    let most = replaced.price() * CHEAPER;
    let (mut smaller, mut bytes, mut price) = (Vec::new(), 0_u64, 0.0);
    let near = f64::from(replaced.distance) * NEAR;
    for (position, _, weight) in ranking.iter_from(first + 1) {
        if weight.size_bytes >= replaced.size_bytes || f64::from(weight.distance) < near {
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
        let all: Vec<usize> = (0..candidates.len()).collect();
        choose(&all, weigh, needed_mib << 20, coming_mib << 20)
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
        assert_eq!(choose(&[(1000, 10_000), (500, 100)], weigh, 8, 0), [1]);
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
        assert_eq!(choose(&[tiny, large], |weight| *weight, 4 << 20, 0), [1]);
    }

    #[test]
    fn any_numbers_give_a_list_without_a_gap_or_a_surplus() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..2000 {
            let bits = random.u32(0..=64);
            let mut any = || random.u64(..).checked_shr(64 - bits).unwrap_or(0);
            let needed_bytes = any();
            let weights: Vec<Weight> = (0..round % 100)
                .map(|_| Weight {
                    size_bytes: any(),
                    is_clean: any() & 1 == 0,
                    distance: any() as u32,
                    back_ns: any(),
                })
                .collect();
            let chosen = choose(&weights, |weight| *weight, needed_bytes, 0);
            let sum = |part: &[usize]| {
                let sizes = part.iter().map(|&index| weights[index].size_bytes);
                sizes.map(u128::from).sum::<u128>()
            };
            let needed = u128::from(needed_bytes);
            let enough = sum(&chosen) >= needed;
            assert!(
                enough || chosen.len() == weights.len(),
                "seed {seed}, round {round}"
            );
            let one_less = sum(&chosen[..chosen.len().saturating_sub(1)]);
            assert!(
                chosen.is_empty() || one_less < needed,
                "seed {seed}, round {round}"
            );
            let distinct: std::collections::BTreeSet<usize> = chosen.iter().copied().collect();
            assert_eq!(distinct.len(), chosen.len(), "seed {seed}, round {round}");
        }
    }

    #[test]
    fn a_ranking_gives_what_a_sorted_list_gives() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in 0..200 {
            let weights: Vec<Weight> = (0..len)
                .map(|_| Weight {
                    // Few sizes, so that many are equal.
                    size_bytes: random.u64(0..8) << 20,
                    is_clean: random.bool(),
                    distance: random.u32(1..5),
                    back_ns: 1000,
                })
                .collect();
            let mut sorted: Vec<usize> = (0..len).collect();
            sorted.sort_by(|&a, &b| weights[b].worth().total_cmp(&weights[a].worth()));
            let mut ranking = Ranking::new(&weights);
            let asked = random.usize(0..=len);
            assert_eq!(ranking.iter_from(0).take(asked).count(), asked);
            assert_eq!(ranking.first(asked), sorted[..asked]);
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
