//! Random plans against the oracle, executed wholly or in part, with blocks that must not move and
//! limits that must not be exceeded.

use super::model::{Law, Live, Repeat, from_environment};
use lapidary::alloc::{
    AllocError, BlockId, Growth, Planner, PoolConfig, Pools, SlabClass, SlabId, Spot, Step,
};

/// Calls the allocator like a memory manager with unlimited memory that may move everything.
pub(crate) fn allocate(
    pools: &mut Pools,
    planner: &mut Planner,
    size_bytes: u64,
) -> Result<BlockId, AllocError> {
    match pools.allocate(size_bytes) {
        Err(AllocError::NeedsSlab { .. }) => {}
        done => return done,
    }
    let mut created = None;
    for &step in pools.plan(planner, size_bytes, None, &|_| true)? {
        carry_out(pools, step, &mut created)?;
    }
    pools.allocate_anywhere(size_bytes)
}

pub(crate) fn carry_out(
    pools: &mut Pools,
    step: Step,
    created: &mut Option<SlabId>,
) -> Result<(), AllocError> {
    match step {
        Step::Release(slab) => pools.remove_slab(slab)?,
        Step::Assign { slab, class } => pools.assign(slab, class)?,
        Step::Move { block, to } => drop(pools.relocate(block, &to)?),
        Step::Create(growth) => *created = Some(pools.add_slab(&growth)?),
        Step::MoveToNew {
            block,
            offset_bytes,
        } => {
            let slab = created.expect("a slab is created before blocks move there");
            pools.relocate(block, &Spot::new(slab, offset_bytes))?;
        }
    }
    Ok(())
}

#[test]
fn a_slab_is_not_released_for_another_of_its_size() {
    let slab_bytes = 4 << 20;
    let mut config = PoolConfig::new(256, 1 << 30);
    config.small_slab_bytes = slab_bytes;
    let mut pools = Pools::new(config).unwrap();
    let mut planner = Planner::default();
    let small = allocate(&mut pools, &mut planner, 1000).unwrap();
    pools.free(small).unwrap();
    assert_eq!(pools.reserved_bytes(), slab_bytes);
    let steps = pools.plan(&mut planner, slab_bytes, Some(slab_bytes), &|_| true);
    let steps = steps.unwrap().to_vec();
    assert!(matches!(steps[..], [Step::Assign { .. }]), "{steps:?}");
    for step in steps {
        carry_out(&mut pools, step, &mut None).unwrap();
    }
    pools.allocate(slab_bytes).unwrap();
    assert_eq!(pools.reserved_bytes(), slab_bytes);
}

#[test]
fn close_to_a_hard_limit_a_hole_of_another_class_comes_before_moves() {
    let slab_bytes = 2 << 20;
    let mut pools = Pools::new(PoolConfig::new(256, 1 << 30)).unwrap();
    let mut planner = Planner::default();
    let growth = |class| Growth {
        class,
        slab_bytes,
        least_bytes: 256,
    };
    // Each of the middle slabs has room for five blocks. One block of each leaves.
    let middle: Vec<BlockId> = (0..2)
        .flat_map(|_| {
            pools.add_slab(&growth(SlabClass::Middle)).unwrap();
            [(); 5].map(|()| pools.allocate(400 << 10).unwrap())
        })
        .collect();
    for at in [1, 6] {
        pools.free(middle[at]).unwrap();
    }
    pools.add_slab(&growth(SlabClass::Small)).unwrap();
    let small = [(); 8].map(|()| pools.allocate(256 << 10).unwrap());
    let mut moves = |pools: &Pools| {
        let steps = pools.plan(&mut planner, 600 << 10, Some(3 * slab_bytes), &|_| true);
        let moves = (steps.unwrap().iter()).filter(|step| matches!(step, Step::Move { .. }));
        moves.count()
    };
    assert_eq!(moves(&pools), 1);
    for block in &small[..3] {
        pools.free(*block).unwrap();
    }
    assert_eq!(moves(&pools), 0);
    pools.allocate_anywhere(600 << 10).unwrap();
    assert_eq!(pools.reserved_bytes(), 3 * slab_bytes);
}

/// One block in eight is pinned.
fn is_movable(block: BlockId) -> bool {
    block.index() & 7 != 0
}

struct Subject {
    pools: Pools,
    planner: Planner,
    /// The slab that the last step of a plan created.
    created: Option<SlabId>,
    live: Live,
    unit_bytes: u64,
    tally: Tally,
}

/// Counts of the outcomes, so that a run that tests nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) carried_out: u64,
    pub(crate) given_up: u64,
    pub(crate) refused: u64,
    pub(crate) moves: u64,
    pub(crate) moves_to_new: u64,
    pub(crate) skipped: u64,
    pub(crate) shrunk: u64,
    pub(crate) stuck: u64,
    pub(crate) peak_live_bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.carried_out += other.carried_out;
        self.given_up += other.given_up;
        self.refused += other.refused;
        self.moves += other.moves;
        self.moves_to_new += other.moves_to_new;
        self.skipped += other.skipped;
        self.shrunk += other.shrunk;
        self.stuck += other.stuck;
    }
}

impl Subject {
    fn new(unit_bytes: u64) -> Subject {
        let mut config = PoolConfig::new(unit_bytes, 1 << 30);
        // Smaller than usual, so short runs reach every class of slab.
        config.small_request_bytes = 1000;
        config.small_slab_bytes = 16 << 10;
        config.middle_slab_bytes = 128 << 10;
        config.own_request_bytes = 64 << 10;
        config.own_step_bytes = 4 << 10;
        config.alone_request_bytes = 8 << 20;
        Subject {
            pools: Pools::new(config).unwrap(),
            planner: Planner::default(),
            created: None,
            live: Live::default(),
            unit_bytes,
            tally: Tally::default(),
        }
    }

    fn add(&mut self, id: BlockId, requested_bytes: u64) {
        let block = self.pools.block(id).unwrap();
        assert_eq!(block.requested_bytes, requested_bytes);
        self.live.add(id, &block, self.unit_bytes);
    }

    fn free(&mut self, index: usize) {
        let block = self.pools.block(self.live.blocks[index]).unwrap();
        let id = self.live.remove(index, &block);
        self.pools.free(id).unwrap();
    }

    fn free_any(&mut self, random: &mut fastrand::Rng) {
        if !self.live.blocks.is_empty() {
            self.free(random.usize(0..self.live.blocks.len()));
        }
    }

    /// Executes one step on both sides.
    fn step(&mut self, step: Step) {
        let moved = match step {
            Step::Move { block, .. } => Some(block),
            Step::MoveToNew { block, .. } => Some(block),
            Step::Release(_) | Step::Assign { .. } | Step::Create(_) => None,
        };
        let from = moved.map(|id| {
            assert!(is_movable(id), "{id:?} is pinned");
            let from = self.pools.block(id).unwrap();
            let index = self.live.blocks.iter().position(|&other| other == id);
            self.live.remove(index.unwrap(), &from);
            from
        });
        carry_out(&mut self.pools, step, &mut self.created).unwrap();
        if let (Some(id), Some(from)) = (moved, from) {
            let to = self.pools.block(id).unwrap();
            assert_ne!(from.slab, to.slab, "no copy stays in its slab");
            assert_eq!(
                (from.size_bytes, from.requested_bytes),
                (to.size_bytes, to.requested_bytes)
            );
            self.live.add(id, &to, self.unit_bytes);
            self.tally.moves += 1;
            self.tally.moves_to_new += u64::from(matches!(step, Step::MoveToNew { .. }));
        }
        self.live.check_pools(&self.pools);
    }

    fn allocate(
        &mut self,
        size_bytes: u64,
        limit_bytes: Option<u64>,
        random: &mut fastrand::Rng,
    ) -> bool {
        match self.pools.allocate(size_bytes) {
            Ok(id) => {
                self.add(id, size_bytes);
                return true;
            }
            Err(error) => assert!(matches!(error, AllocError::NeedsSlab { .. })),
        }
        let before = self.pools.stats();
        let plan = self
            .pools
            .plan(&mut self.planner, size_bytes, limit_bytes, &is_movable);
        let steps = match plan {
            Ok(steps) => steps.to_vec(),
            Err(error) => {
                assert!(limit_bytes.is_some(), "{error} without a limit");
                assert!(matches!(error, AllocError::NeedsSlab { .. }));
                self.tally.refused += 1;
                return false;
            }
        };
        assert_eq!(self.pools.stats(), before, "planning changes nothing");
        let end = if random.u8(..) < 64 {
            random.usize(0..=steps.len())
        } else {
            steps.len()
        };
        // Blocks are freed at any time. Then a plan's steps for them are void, and the others stay
        // valid.
        let moved = steps.iter().find_map(|step| match step {
            Step::Move { block, .. } | Step::MoveToNew { block, .. } => Some(*block),
            Step::Release(_) | Step::Assign { .. } | Step::Create(_) => None,
        });
        let index = self.live.blocks.iter().position(|&id| Some(id) == moved);
        match random.u8(..) {
            0..32 => self.free_any(random),
            32..64 => index.into_iter().for_each(|index| self.free(index)),
            _ => {}
        }
        for &step in &steps[..end] {
            if let Step::Move { block, .. } | Step::MoveToNew { block, .. } = step {
                if self.pools.block(block).is_err() {
                    self.tally.skipped += 1;
                    continue;
                }
            }
            self.step(step);
            let reserved_bytes = self.pools.reserved_bytes();
            assert!(
                limit_bytes.is_none_or(|limit| reserved_bytes <= limit),
                "{reserved_bytes} of {limit_bytes:?} after {step:?}"
            );
        }
        if end < steps.len() {
            self.tally.given_up += 1;
            return false;
        }
        self.tally.carried_out += 1;
        let id = self
            .pools
            .allocate_anywhere(size_bytes)
            .expect("the plan made room");
        self.add(id, size_bytes);
        true
    }

    /// Releases all that can be released, or a part of it.
    fn shrink(&mut self, target_bytes: u64) {
        let most_bytes = self.pools.reserved_bytes();
        let steps = self
            .pools
            .plan_shrink(&mut self.planner, target_bytes, &is_movable)
            .to_vec();
        for &step in &steps {
            self.step(step);
            assert!(self.pools.reserved_bytes() <= most_bytes, "{step:?}");
        }
        let stats = self.pools.stats();
        let is_near = stats.reserved_bytes <= target_bytes.max(2 * stats.granted_bytes);
        self.tally.shrunk += u64::from(is_near);
        self.tally.stuck += u64::from(!is_near);
        if target_bytes == 0 {
            assert_eq!(stats.empty_slabs, 0);
        }
    }

    fn empty(&mut self) {
        while !self.live.blocks.is_empty() {
            self.free(self.live.blocks.len() - 1);
        }
        self.live.check_pools(&self.pools);
    }
}

/// Random requests and frees. A request without a hole makes a plan. Returns counts of the
/// outcomes.
pub(crate) fn run(law: &Law, unit_bytes: u64, limit_bytes: Option<u64>) -> Tally {
    let seed = from_environment("LAPIDARY_SEED", 1);
    let ops = from_environment("LAPIDARY_OPS", 150_000) / 10;
    let _repeat = Repeat {
        seed,
        what: law.name,
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut subject = Subject::new(unit_bytes);
    let mut target = 100;
    for op in 0..ops {
        if op % 700 == 0 {
            target = random.usize(0..=600);
        }
        let live = subject.live.blocks.len();
        if random.usize(0..target + live + 1) >= live {
            let size_bytes = (law.draw)(&mut random);
            let made = subject.allocate(size_bytes, limit_bytes, &mut random);
            // After a refusal the program frees something.
            if !made {
                subject.free_any(&mut random);
            }
        } else {
            subject.free(random.usize(0..live));
        }
        // Most frees of programs come in bursts that leave survivors between holes.
        if random.u8(..) == 0 {
            for _ in 0..random.usize(0..=subject.live.blocks.len() / 2) {
                subject.free(random.usize(0..subject.live.blocks.len()));
            }
            if random.bool() {
                subject.shrink(random.u64(0..=2) * subject.pools.reserved_bytes() / 3);
            }
        }
    }
    subject.empty();
    Tally {
        peak_live_bytes: subject.pools.stats().peak_requested_bytes,
        ..subject.tally
    }
}

/// Compacts random heaps in slices until nothing is left to do.
pub(crate) fn run_passes(law: &Law, unit_bytes: u64) {
    let seed = from_environment("LAPIDARY_SEED", 1);
    let rounds = from_environment("LAPIDARY_OPS", 150_000) / 7500;
    let _repeat = Repeat {
        seed,
        what: law.name,
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut subject = Subject::new(unit_bytes);
    for _ in 0..rounds {
        for _ in 0..400 {
            let size_bytes = (law.draw)(&mut random);
            subject.allocate(size_bytes, None, &mut random);
        }
        for _ in 0..random.usize(0..=subject.live.blocks.len()) {
            subject.free(random.usize(0..subject.live.blocks.len()));
        }
        tidy_up(&mut subject, 1 << random.u32(12..=24));
    }
    eprintln!("{}: {} moves in passes", law.name, subject.tally.moves);
    assert!(subject.tally.moves > 0);
    subject.empty();
}

fn tidy_up(subject: &mut Subject, slice_bytes: u64) {
    let used = |subject: &Subject| {
        let stats = subject.pools.stats();
        stats.slabs - stats.empty_slabs
    };
    let before = used(subject);
    let most = subject.live.blocks.len() * subject.live.blocks.len() + 1;
    for _ in 0..=most {
        let steps = subject
            .pools
            .plan_pass(&mut subject.planner, slice_bytes, &is_movable)
            .to_vec();
        if steps.is_empty() {
            assert!(used(subject) <= before);
            return;
        }
        let moved_before = subject.pools.stats().moved_bytes;
        for step in steps {
            assert!(matches!(step, Step::Move { .. }), "{step:?}");
            subject.step(step);
        }
        let moved_bytes = subject.pools.stats().moved_bytes - moved_before;
        assert!((1..=slice_bytes).contains(&moved_bytes), "{moved_bytes}");
    }
    panic!("slices of {slice_bytes} bytes do not come to an end");
}
