//! Which jobs run: a plan in numbers, without threads and memory.
//!
//! Jobs wait in the order of their rank: priority, then deadline, then arrival. One that does not
//! fit lets later ones pass that do, which is *backfilling* (Lifka, "The ANL/IBM SP Scheduling
//! System", JSSPP 1995). Each job that came later and is admitted before, of the same priority or a
//! lower one, is counted. From [`MOST_PASSES`] on a job lets none of them pass, so within a
//! priority none starves. Jobs of a higher priority always go first.

use std::cmp::Reverse;
use std::time::Duration;

/// A job that was passed this often lets nobody pass any more.
const MOST_PASSES: u32 = 32;

/// What the app says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) peak_bytes: u64,
    pub(super) priority: i8,
    /// Since the plan's beginning.
    pub(super) deadline: Option<Duration>,
}

/// A job that waits or runs.
#[derive(Debug)]
struct Planned {
    id: u64,
    wish: Wish,
    /// How often it was passed while it waited.
    passes: u32,
}

/// What became of a job that fits by the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Runs,
    /// Its guarantee could not be kept beside what running jobs hold. It waits for their ends.
    WaitsForJobs,
    /// Its guarantee could not be kept beside what others hold. It waits, and holds up nobody.
    WaitsForOthers,
    /// It waits no more.
    Fails,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    /// The jobs before it in the order.
    pub(super) before: usize,
    /// The bytes that jobs of its priority and higher ones leave.
    pub(super) free_bytes: u64,
    /// The job before it lets nobody pass, because it was passed too often.
    pub(super) is_held_back: bool,
}

/// The jobs that wait and those that run.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The bytes for all jobs together.
    pub(super) capacity_bytes: u64,
    waiting: Vec<Planned>,
    running: Vec<Planned>,
    last_id: u64,
}

impl Plan {
    /// A job begins to wait. Returns its number.
    pub(super) fn enter(&mut self, wish: Wish) -> u64 {
        self.last_id += 1;
        let (id, passes) = (self.last_id, 0);
        self.waiting.push(Planned { id, wish, passes });
        id
    }

    /// A job has ended, or waits no more.
    pub(super) fn leave(&mut self, id: u64) {
        self.waiting.retain(|one| one.id != id);
        self.running.retain(|one| one.id != id);
    }

    /// The jobs whose deadline has passed while they waited. They wait no more.
    pub(super) fn take_late(&mut self, now: Duration) -> Vec<u64> {
        self.take_out(|wish| wish.deadline.is_some_and(|deadline| deadline <= now))
    }

    /// The waiting jobs that exceed the most that there will be. They wait no more.
    pub(super) fn take_larger(&mut self, most_bytes: u64) -> Vec<u64> {
        self.take_out(|wish| wish.peak_bytes > most_bytes)
    }

    /// All waiting jobs. They wait no more.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        self.take_out(|_| true)
    }

    fn take_out(&mut self, is_taken: impl Fn(&Wish) -> bool) -> Vec<u64> {
        let taken = self.waiting.extract_if(.., |one| is_taken(&one.wish));
        taken.map(|one| one.id).collect()
    }

    /// Lets all run that fit together. `begin` gets the number of a job, and what all running ones
    /// are guaranteed with it. Returns the numbers of those that run.
    pub(super) fn admit(&mut self, mut begin: impl FnMut(u64, &[(u64, u64)]) -> Begun) -> Vec<u64> {
        let (mut admitted, mut at) = (Vec::new(), 0);
        // Those that fit and did not begin: the peak and the priority of each. A job that
        // needs no less, and may take no more from others, does not begin either.
        let mut tried: Vec<(u64, i8, Begun)> = Vec::new();
        self.sort();
        while let Some(one) = self.waiting.get(at) {
            let (id, is_held_back) = (one.id, one.passes >= MOST_PASSES);
            let (peak_bytes, priority) = (one.wish.peak_bytes, one.wish.priority);
            let known = tried.iter().find(|(least_bytes, most_priority, _)| {
                *least_bytes <= peak_bytes && priority <= *most_priority
            });
            let begun = match (peak_bytes <= self.free_bytes(priority), known) {
                (false, _) => Begun::WaitsForJobs,
                (true, Some((.., begun))) => *begun,
                (true, None) => {
                    let begun = begin(id, &self.guarantees_with(Some(one)));
                    if matches!(begun, Begun::WaitsForJobs | Begun::WaitsForOthers) {
                        tried.push((peak_bytes, priority, begun));
                    }
                    begun
                }
            };
            match begun {
                Begun::Runs => {
                    admitted.push(id);
                    if self.run(at) {
                        self.sort();
                        at = 0;
                    }
                    continue;
                }
                Begun::Fails => drop(self.waiting.remove(at)),
                Begun::WaitsForJobs if is_held_back => break,
                Begun::WaitsForJobs | Begun::WaitsForOthers => at += 1,
            }
        }
        admitted
    }

    fn sort(&mut self) {
        self.waiting.sort_by_key(|one| {
            let is_held_back = one.passes >= MOST_PASSES;
            // The deadlines of later jobs would be a way to pass.
            let deadline = one.wish.deadline.filter(|_| !is_held_back);
            let rank = Reverse((one.wish.priority, is_held_back));
            (rank, deadline.is_none(), deadline, one.id)
        });
    }

    /// Runs a waiting job. Returns whether the order of the others has changed, because one reached
    /// [`MOST_PASSES`].
    fn run(&mut self, at: usize) -> bool {
        let one = self.waiting.remove(at);
        let mut has_other_order = false;
        for other in &mut self.waiting {
            if other.id < one.id && other.wish.priority >= one.wish.priority {
                other.passes += 1;
                has_other_order |= other.passes == MOST_PASSES;
            }
        }
        self.running.push(one);
        has_other_order
    }

    /// The bytes that running jobs of this priority and higher ones leave.
    fn free_bytes(&self, priority: i8) -> u64 {
        let above = self.running.iter();
        let above = above.filter(|one| one.wish.priority >= priority);
        let peaks = above.map(|one| one.wish.peak_bytes);
        peaks.fold(self.capacity_bytes, u64::saturating_sub)
    }

    /// What each running job is guaranteed: its peak or, below jobs of higher priorities, what
    /// these leave of it. Together at most the capacity.
    pub(super) fn guarantees(&self) -> Vec<(u64, u64)> {
        self.guarantees_with(None)
    }

    /// The same, if one more ran.
    fn guarantees_with(&self, more: Option<&Planned>) -> Vec<(u64, u64)> {
        let mut running: Vec<&Planned> = self.running.iter().chain(more).collect();
        running.sort_by_key(|one| (Reverse(one.wish.priority), one.id));
        let mut left_bytes = self.capacity_bytes;
        let each = running.into_iter().map(|one| {
            let bytes = one.wish.peak_bytes.min(left_bytes);
            left_bytes -= bytes;
            (one.id, bytes)
        });
        each.collect()
    }

    /// Why a job waits; `None` if it does not.
    pub(super) fn reason(&self, id: u64) -> Option<Reason> {
        let before = self.waiting.iter().position(|one| one.id == id)?;
        let mut others = self.waiting[..before].iter();
        Some(Reason {
            before,
            free_bytes: self.free_bytes(self.waiting[before].wish.priority),
            is_held_back: others.any(|one| one.passes >= MOST_PASSES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(peak_bytes: u64, priority: i8) -> Wish {
        Wish {
            peak_bytes,
            priority,
            deadline: None,
        }
    }

    /// Lets all run that fit by the numbers.
    fn admit(plan: &mut Plan) -> Vec<u64> {
        plan.admit(|_, _| Begun::Runs)
    }

    fn plan(capacity_bytes: u64) -> Plan {
        Plan {
            capacity_bytes,
            ..Plan::default()
        }
    }

    #[test]
    fn small_jobs_pass_large_ones_but_not_for_ever() {
        let mut plan = plan(100);
        let first = plan.enter(wish(60, 0));
        assert_eq!(admit(&mut plan), [first]);
        let large = plan.enter(wish(80, 0));
        let mut small = Vec::new();
        for _ in 0..MOST_PASSES {
            small.push(plan.enter(wish(10, 0)));
            assert_eq!(admit(&mut plan).len(), 1);
            plan.leave(small.pop().unwrap());
        }
        let late = plan.enter(wish(10, 0));
        assert!(
            admit(&mut plan).is_empty(),
            "the large one was passed often enough"
        );
        assert!(plan.reason(late).unwrap().is_held_back);
        assert_eq!(plan.reason(large).unwrap().free_bytes, 40);
        plan.leave(first);
        assert_eq!(admit(&mut plan), [large, late]);
        assert_eq!(plan.reason(large), None);
    }

    #[test]
    fn higher_priorities_take_room_from_lower_ones() {
        let mut plan = plan(100);
        let low = plan.enter(wish(90, 0));
        admit(&mut plan);
        let (same, high) = (plan.enter(wish(20, 0)), plan.enter(wish(70, 5)));
        assert_eq!(admit(&mut plan), [high]);
        assert_eq!(plan.guarantees(), [(high, 70), (low, 30)]);
        plan.leave(high);
        assert_eq!(plan.guarantees(), [(low, 90)]);
        plan.leave(low);
        assert_eq!(admit(&mut plan), [same]);
    }

    #[test]
    fn what_cannot_fit_any_more_waits_no_more() {
        let mut plan = plan(100);
        let first = plan.enter(wish(50, 0));
        admit(&mut plan);
        let (large, small) = (plan.enter(wish(80, 0)), plan.enter(wish(60, 0)));
        plan.capacity_bytes = 70;
        assert_eq!(plan.take_larger(plan.capacity_bytes), [large]);
        plan.leave(first);
        assert_eq!(admit(&mut plan), [small]);
    }

    #[test]
    fn earlier_deadlines_go_first_and_late_jobs_do_not_run() {
        let mut plan = plan(10);
        let until = |seconds| Wish {
            deadline: Some(Duration::from_secs(seconds)),
            ..wish(10, 0)
        };
        let ids = [wish(10, 0), until(9), until(5), until(2)].map(|wish| plan.enter(wish));
        assert_eq!(plan.take_late(Duration::from_secs(2)), [ids[3]]);
        for index in [2, 1, 0] {
            assert_eq!(admit(&mut plan), [ids[index]]);
            plan.leave(ids[index]);
        }
    }

    #[test]
    fn a_job_that_was_passed_often_holds_up_no_higher_one() {
        let mut plan = plan(100);
        let first = plan.enter(wish(60, 0));
        admit(&mut plan);
        let large = plan.enter(wish(80, 0));
        // Many that come at once pass no more often, nor do those with deadlines.
        let soon = Wish {
            deadline: Some(Duration::from_secs(1)),
            ..wish(1, 0)
        };
        let small: Vec<_> = (0..40).map(|_| plan.enter(soon.clone())).collect();
        assert_eq!(admit(&mut plan), small[..MOST_PASSES as usize]);
        let high = plan.enter(wish(90, 1));
        assert_eq!(admit(&mut plan), [high]);
        plan.leave(high);
        small.iter().take(32).for_each(|id| plan.leave(*id));
        plan.leave(first);
        assert_eq!(admit(&mut plan)[0], large);
    }

    #[test]
    fn a_job_waits_behind_memory_that_others_hold() {
        let mut plan = plan(100);
        let stuck = plan.enter(wish(60, 0));
        // Memory that no job holds is in its way. So it holds up nobody, though others pass it.
        for _ in 0..2 * MOST_PASSES {
            let small = plan.enter(wish(30, 0));
            let admitted = plan.admit(|id, _| match id == stuck {
                true => Begun::WaitsForOthers,
                false => Begun::Runs,
            });
            assert_eq!(admitted, [small]);
            plan.leave(small);
        }
        // Memory that jobs hold is in its way. It was passed often, so no more jobs begin.
        let small = plan.enter(wish(30, 0));
        let admitted = plan.admit(|id, guarantees| {
            assert_eq!(guarantees, [(id, 60)]);
            Begun::WaitsForJobs
        });
        assert_eq!(
            (admitted, plan.reason(small).unwrap().is_held_back),
            (vec![], true)
        );
        assert_eq!(admit(&mut plan), [stuck, small]);
        let failing = plan.enter(wish(10, 0));
        assert!(plan.admit(|_, _| Begun::Fails).is_empty());
        assert_eq!(plan.reason(failing), None);
    }

    /// A waiting job of the random test.
    struct Outside {
        id: u64,
        priority: i8,
        passes: u32,
    }

    /// 10,000 jobs with random peaks, priorities, deadlines and lengths.
    #[test]
    fn no_job_is_passed_too_often_and_the_capacity_is_never_exceeded() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut plan = plan(1000);
        // The end of each running job, and those that wait in the order of their arrival.
        let (mut ends, mut waiting) = (Vec::new(), Vec::<Outside>::new());
        let (mut entered, mut most_passes, mut now) = (0_u64, 0, 0_u64);
        while entered < 10_000 || !waiting.is_empty() {
            now += 1;
            for _ in 0..random.u32(0..4) {
                if entered < 10_000 {
                    let wish = random_wish(&mut random, now);
                    let (priority, passes) = (wish.priority, 0);
                    let id = plan.enter(wish);
                    waiting.push(Outside {
                        id,
                        priority,
                        passes,
                    });
                    entered += 1;
                }
            }
            ends.retain(|&(id, end)| {
                if end <= now {
                    plan.leave(id);
                }
                end > now
            });
            for id in admit(&mut plan) {
                let at = waiting.iter().position(|one| one.id == id);
                let at = at.expect("it is admitted once");
                let Outside { priority, .. } = waiting.remove(at);
                // Jobs of a higher priority go first, which counts as no passing.
                let before = waiting[..at].iter_mut();
                for passed in before.filter(|passed| passed.priority >= priority) {
                    passed.passes += 1;
                    most_passes = most_passes.max(passed.passes);
                }
                ends.push((id, now + random.u64(1..8)));
            }
            let guarantees = plan.guarantees();
            let sum: u64 = guarantees.iter().map(|(_, bytes)| bytes).sum();
            assert!(sum <= 1000, "seed {seed}: {guarantees:?}");
            let is_stuck = ends.is_empty() && !waiting.is_empty();
            assert!(!is_stuck, "seed {seed}: jobs wait, and none runs");
            assert!(now < 1_000_000, "seed {seed}: {} wait", waiting.len());
        }
        assert!(most_passes <= MOST_PASSES, "seed {seed}: {most_passes}");
    }

    fn random_wish(random: &mut fastrand::Rng, now: u64) -> Wish {
        let peak_bytes = match random.u32(0..5) {
            0 => random.u64(1..=1000),
            _ => random.u64(1..200),
        };
        let has_deadline = random.u32(0..3) == 0;
        Wish {
            deadline: has_deadline.then(|| Duration::from_secs(now + random.u64(1..100))),
            ..wish(peak_bytes, random.i8(-3..=3))
        }
    }
}
