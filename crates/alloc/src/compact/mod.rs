//! Compaction as a plan: which live blocks to move where, so that a request finds a hole.
//!
//! ```text
//! hole     [ a |  hole  | b |  hole  | c ]    b moves to another slab: one hole where there were two
//! release  [ a |            hole         ]    a moves away, the slab is given back, another is made
//! create   [ a |    hole    | b |  hole  ]    a and b fit in no hole: a small slab is made for them first
//! ```
//!
//! A planner moves nothing. A plan is a list of [`Step`]s over the present tables. The caller
//! executes the steps and may stop after any of them: each step leaves the tables complete and
//! reserves nothing for later steps. Blocks may be freed in the meantime. The caller then skips the
//! steps of such a block, and the plan still serves. If other blocks were allocated meanwhile, the
//! plan may fail: the pools refuse a step that does not apply any more.
//!
//! The search is greedy and bounded. It looks at no more than [`MOST_WINDOWS`] windows,
//! [`MOST_SLABS`] slabs, and [`MOST_NODES`] blocks and holes. For a slice of compaction (`pass`) it
//! looks only at as many as the slice may concern. A [`Planner`] keeps its tables, so planning
//! takes nothing from the heap once they have grown.
//!
//! **The order of the means.** The planner tries each only if those before it are not enough:
//!
//! 1. A hole that the short search overlooked.
//! 2. An empty slab of another class, once slabs are released and created again and again.
//! 3. Another slab below the mark, after the release of empty slabs.
//! 4. The cheapest moves that keep the reserved bytes below the mark.
//! 5. Another slab above the mark.
//!
//! A hard limit may forbid the last. Then the planner takes any hole in slabs of any kind, a slab
//! no larger than the request, and moves at any cost.

use alloc::vec::Vec;

mod pass;
mod room;
mod sorted;
mod survey;
mod victims;
mod windows;

use super::config::{Growth, SlabClass, ZONES};
use super::nodes::Node;
use super::order::{Key, Sorter};
use super::{AllocError, BlockId, Pools, SlabId, Spot};
use room::Room;
use windows::Window;

/// The most windows to try. A window is a range of the request's size that moves could empty.
const MOST_WINDOWS: usize = 40;
/// The most slabs to search for windows and victims.
const MOST_SLABS: usize = 200;
/// The most blocks and holes to look at for one plan.
const MOST_NODES: usize = 1 << 14;
/// An empty slab of another class may replace a new one if it is at most this many times as large.
/// [`PoolConfig::middle_slab_bytes`](super::PoolConfig) counts if that is larger than the new slab.
const MOST_EXCESS: u64 = 4;
/// A hard limit counts as close if it is below this percentage of the mark.
const NEAR_PERCENT: u64 = 125;
/// A plan that releases slabs must copy this many bytes less than a plan that releases none.
const RELEASE_ADVANTAGE_BYTES: u64 = 1 << 20;

/// One step of a plan. The caller executes the steps in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Release this slab: [`Pools::remove_slab`]. The earlier steps have emptied it.
    Release(SlabId),
    /// Let this empty slab serve requests of another class: [`Pools::assign`].
    Assign {
        /// The slab.
        slab: SlabId,
        /// The class of the request.
        class: SlabClass,
    },
    /// Move a block into a hole of another slab: [`Pools::relocate`], and copy the bytes.
    Move {
        /// The block, whose handle stays valid.
        block: BlockId,
        /// The new place of the block.
        to: Spot,
    },
    /// Create a slab for the blocks of the next steps, or for the request: [`Pools::add_slab`].
    Create(Growth),
    /// Move a block into the slab that the last [`Step::Create`] created, and copy the bytes.
    MoveToNew {
        /// The block, whose handle stays valid.
        block: BlockId,
        /// The offset of the block in that slab, in bytes.
        offset_bytes: u64,
    },
}

/// The tables of planning. They keep their capacity. Any [`Pools`] may use any planner.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    steps: Vec<Step>,
    /// The steps of the other plan while the planner compares two.
    other: Vec<Step>,
    room: Room,
    sorter: Sorter,
    slabs: Vec<Candidate>,
    windows: Vec<Window>,
    pieces: Vec<windows::Piece>,
    blocks: Vec<Tenant>,
    /// The empty slabs with their bytes, the smallest first.
    empty: Vec<(u64, SlabId)>,
    /// By slab index, whether the plan releases the slab or moves blocks into it.
    fates: Vec<Fate>,
}

/// A slab at the start of planning. Sizes are in granules.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    index: u32,
    zone: u8,
    size: u64,
    live: u64,
}

impl Candidate {
    /// The key that puts the emptiest slab first. Thousandths are exact enough for this choice.
    fn emptiest_first(&self) -> Key {
        (self.live * 1000 / self.size, self.live, self.index.into())
    }
}

/// A block of a slab that the plan empties. Sizes are in granules.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    size: u64,
    offset: u64,
    node: u32,
}

impl Tenant {
    fn new((index, node): (u32, &Node)) -> Self {
        Tenant {
            size: node.size().0,
            offset: node.offset().0,
            node: index,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Stays,
    Receives,
    Leaves,
}

impl Planner {
    /// The steps of the last plan, for a caller that cannot keep the borrow that planning returned.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// The request and the limits of a plan.
struct Query<'a> {
    pools: &'a Pools,
    growth: Growth,
    /// The most bytes that all slabs together may take, at any moment.
    limit_bytes: u64,
    /// Whether blocks may go into slabs of any class.
    anywhere: bool,
    /// Whether a hard limit is close or blocks never move. A bad placement can then hardly be
    /// corrected.
    is_tight: bool,
    movable: &'a dyn Fn(BlockId) -> bool,
}

impl Query<'_> {
    /// The size of the request in granules.
    fn size(&self) -> u64 {
        self.pools
            .carver
            .unit
            .granules_ceil(self.growth.least_bytes)
            .0
    }

    /// The class that fits the size of a block.
    fn class_of(&self, tenant: &Tenant) -> SlabClass {
        let carver = &self.pools.carver;
        let node = &carver.nodes[tenant.node];
        let bytes = carver.unit.bytes(node.size()) - node.slack_bytes();
        self.pools.class(bytes)
    }

    /// The zone that fits the size of a block.
    fn zone_of(&self, tenant: &Tenant) -> u8 {
        self.class_of(tenant).zone()
    }

    /// The smallest empty slab of another class that can replace a new one. `None` close to a hard
    /// limit, and `None` unless the program releases and creates slabs again and again.
    fn assignable(&self) -> Option<SlabId> {
        let pools = self.pools;
        if self.is_tight || !pools.is_restless() {
            return None;
        }
        let usual_bytes = self.growth.slab_bytes.max(pools.config.middle_slab_bytes);
        let most_bytes = usual_bytes.saturating_mul(MOST_EXCESS);
        let alone = SlabClass::Alone.zone();
        let is_shared = |slab: &SlabId| pools.carver.slabs[slab.index].zone != alone;
        let shared = pools.empty_slabs().filter(is_shared);
        let sizes = shared.map(|slab| (pools.slab_bytes(slab), slab));
        let serves = self.growth.least_bytes..=most_bytes;
        let serving = sizes.filter(|(bytes, _)| serves.contains(bytes));
        let best = serving.min_by_key(|(bytes, _)| *bytes);
        best.map(|(_, slab)| slab)
    }

    fn handle(&self, node: u32) -> BlockId {
        BlockId {
            index: node,
            generation: self.pools.carver.nodes[node].up,
        }
    }
}

impl Pools {
    /// The steps after which a request finds room that [`Pools::allocate`] refused. Once the caller
    /// has executed them all, [`Pools::allocate_anywhere`] succeeds. The list may be empty.
    ///
    /// `limit_bytes` is the most that all slabs together may take, at any moment. The policy stays
    /// below the limit where it can. Without a limit there always is a plan. A step may wait for
    /// the one before. If a released slab still counts against the budget, the caller waits until
    /// it is destroyed, and then creates the next one. Only blocks that are `movable` move.
    ///
    /// ```
    /// use lapidary_alloc::{AllocError, BlockId, Planner, PoolConfig, Pools, Step, Spot};
    ///
    /// fn allocate(
    ///     pools: &mut Pools,
    ///     planner: &mut Planner,
    ///     size_bytes: u64,
    /// ) -> Result<BlockId, AllocError> {
    ///     match pools.allocate(size_bytes) {
    ///         Err(AllocError::NeedsSlab { .. }) => {}
    ///         done => return done,
    ///     }
    ///     let mut created = None;
    ///     for step in pools.plan(planner, size_bytes, None, &|_| true)? {
    ///         match *step {
    ///             // Destroy the buffer as well.
    ///             Step::Release(slab) => pools.remove_slab(slab)?,
    ///             Step::Assign { slab, class } => pools.assign(slab, class)?,
    ///             // Record a copy as well.
    ///             Step::Move { block, to } => drop(pools.relocate(block, &to)?),
    ///             // Create a buffer.
    ///             Step::Create(growth) => created = Some(pools.add_slab(&growth)?),
    ///             // Record a copy as well.
    ///             Step::MoveToNew { block, offset_bytes } => {
    ///                 let slab = created.expect("a slab was created before");
    ///                 pools.relocate(block, &Spot::new(slab, offset_bytes))?;
    ///             }
    ///         }
    ///     }
    ///     pools.allocate_anywhere(size_bytes)
    /// }
    ///
    /// let mut pools = Pools::new(PoolConfig::new(256, 1 << 30))?;
    /// let block = allocate(&mut pools, &mut Planner::default(), 1000)?;
    /// assert_eq!(pools.reserved_bytes(), 2 << 20);
    /// # Ok::<(), AllocError>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocError::NeedsSlab`] when no plan makes room within the limit,
    /// [`AllocError::NeverFits`] above the largest slab.
    pub fn plan<'a>(
        &self,
        planner: &'a mut Planner,
        size_bytes: u64,
        limit_bytes: Option<u64>,
        movable: &dyn Fn(BlockId) -> bool,
    ) -> Result<&'a [Step], AllocError> {
        let mut growth = self.growth(size_bytes)?;
        planner.steps.clear();
        let empty_limit_bytes = self.empty_limit_bytes(growth.class, size_bytes);
        if self.has_hole(growth.class.zone(), size_bytes, empty_limit_bytes) {
            return Ok(&planner.steps);
        }
        // A program that releases and creates slabs again and again takes any hole: see the policy.
        if growth.class != SlabClass::Small
            && self.is_restless()
            && (1..ZONES).any(|zone| self.has_hole(zone, size_bytes, u64::MAX))
        {
            return Ok(&planner.steps);
        }
        let cap_bytes = limit_bytes.unwrap_or(u64::MAX);
        let mark_bytes = self.mark_with(size_bytes).min(cap_bytes);
        let never_moves = self.config.move_permille == 0;
        let is_tight = never_moves || cap_bytes / NEAR_PERCENT < mark_bytes / 100;
        if is_tight && growth.class == SlabClass::Small {
            growth.slab_bytes = growth.slab_bytes.min(self.config.small_slab_bytes);
            growth.slab_bytes = growth.slab_bytes.max(growth.least_bytes);
        }
        let mut query = Query {
            pools: self,
            growth,
            limit_bytes: mark_bytes,
            anywhere: false,
            is_tight,
            movable,
        };
        if let Some(slab) = query.assignable() {
            let class = growth.class;
            planner.steps.push(Step::Assign { slab, class });
            return Ok(&planner.steps);
        }
        if planner.grow(&query, mark_bytes) {
            return Ok(&planner.steps);
        }
        let allowed_bytes = self.allowed_bytes(&growth, size_bytes, cap_bytes);
        if planner.compact(&query, allowed_bytes) || planner.grow(&query, cap_bytes) {
            return Ok(&planner.steps);
        }
        // The plan gets here only under a hard limit.
        planner.steps.clear();
        if (0..ZONES).any(|zone| self.has_hole(zone, size_bytes, u64::MAX)) {
            return Ok(&planner.steps);
        }
        query.growth.slab_bytes = growth.least_bytes;
        query.limit_bytes = cap_bytes;
        query.anywhere = true;
        query.is_tight = true;
        if planner.grow(&query, cap_bytes) || planner.compact(&query, u64::MAX) {
            return Ok(&planner.steps);
        }
        planner.steps.clear();
        Err(AllocError::NeedsSlab {
            requested_bytes: size_bytes,
        })
    }

    /// The steps that lower the reserved bytes to `target_bytes`, or as near to it as moves of the
    /// `movable` blocks can get. For use after a limit was lowered, or to give memory back. The
    /// reserved bytes never rise above their present level meanwhile.
    pub fn plan_shrink<'a>(
        &self,
        planner: &'a mut Planner,
        target_bytes: u64,
        movable: &dyn Fn(BlockId) -> bool,
    ) -> &'a [Step] {
        let query = Query {
            pools: self,
            growth: Growth::NOTHING,
            limit_bytes: self.reserved_bytes(),
            anywhere: true,
            is_tight: true,
            movable,
        };
        planner.survey(self);
        planner.plan_victims(&query, target_bytes, u64::MAX);
        &planner.steps
    }

    /// Moves a live block to a free range of another slab. It only changes the tables, as
    /// [`Carver::relocate`](super::Carver::relocate) does.
    ///
    /// # Errors
    /// Those of [`Carver::relocate`](super::Carver::relocate).
    pub fn relocate(&mut self, block: BlockId, to: &Spot) -> Result<super::Relocated, AllocError> {
        self.carver.relocate(block, to)
    }

    /// The most bytes to move to keep the reserved bytes below the mark: the unused rest of the
    /// moves' share of the allocated bytes. The share doubles if the new slab would pass even the
    /// higher mark.
    fn allowed_bytes(&self, growth: &Growth, size_bytes: u64, cap_bytes: u64) -> u64 {
        let kept_bytes = self.reserved_bytes() - self.empty_bytes();
        let limit_bytes = self.spent_mark_with(size_bytes).min(cap_bytes);
        let may_grow = kept_bytes.saturating_add(growth.slab_bytes) <= limit_bytes;
        let shares = if may_grow { 1 } else { 2 };
        let counters = &self.carver.counters;
        let permille = u128::from(self.config.move_permille) * shares;
        let all = u128::from(counters.granted.raised) * permille / 1000;
        u64::try_from(all)
            .unwrap_or(u64::MAX)
            .saturating_sub(counters.moved_bytes)
    }

    /// Bytes of all slabs without live blocks.
    fn empty_bytes(&self) -> u64 {
        let slabs = self.carver.empty_slabs();
        slabs.map(|slab| self.slab_bytes(slab)).sum()
    }

    fn has_hole(&self, zone: u8, size_bytes: u64, empty_limit_bytes: u64) -> bool {
        self.carver.has_hole(zone, size_bytes, empty_limit_bytes)
    }
}

impl Planner {
    /// Releases empty slabs until the new slab fits under the query's limit or none is left. Then
    /// adds the step that creates it. Returns whether the total is within `cap_bytes`.
    fn grow(&mut self, query: &Query<'_>, cap_bytes: u64) -> bool {
        self.steps.clear();
        let reserved_bytes = query.pools.reserved_bytes();
        let Some(sum_bytes) = reserved_bytes.checked_add(query.growth.slab_bytes) else {
            return false;
        };
        let excess_bytes = sum_bytes.saturating_sub(query.limit_bytes);
        let released_bytes = self.release(query, excess_bytes);
        self.steps.push(Step::Create(query.growth));
        sum_bytes - released_bytes <= cap_bytes
    }

    /// Releases empty slabs of at least `excess_bytes` together, or all of them. Returns their
    /// bytes.
    ///
    /// It releases as few slabs as possible, since the program may need each again. Close to a hard
    /// limit it releases the longest unused first: a large slab is hard to create again there.
    fn release(&mut self, query: &Query<'_>, excess_bytes: u64) -> u64 {
        let pools = query.pools;
        self.empty.clear();
        if excess_bytes > 0 {
            for slab in pools.empty_slabs() {
                let bytes = pools.slab_bytes(slab);
                // The longest unused comes last, also among slabs of one size.
                let place = match query.is_tight {
                    true => 0,
                    false => self.empty.partition_point(|(other, _)| *other < bytes),
                };
                self.empty.insert(place, (bytes, slab));
            }
        }
        let mut released_bytes = 0;
        while released_bytes < excess_bytes {
            let after = match query.is_tight {
                true => self.empty.len(),
                false => after_best(&self.empty, excess_bytes - released_bytes),
            };
            let Some(index) = after.checked_sub(1) else {
                break;
            };
            let (bytes, slab) = self.empty.remove(index);
            self.steps.push(Step::Release(slab));
            released_bytes += bytes;
        }
        released_bytes
    }

    /// Plans the cheapest moves, of `most_bytes` at most, that make room under the query's limit.
    fn compact(&mut self, query: &Query<'_>, most_bytes: u64) -> bool {
        self.survey(query.pools);
        let hole = self.plan_window(query, most_bytes);
        core::mem::swap(&mut self.steps, &mut self.other);
        self.room.undo_to(0);
        let most_bytes = hole.map_or(most_bytes, |bytes| {
            bytes.saturating_sub(RELEASE_ADVANTAGE_BYTES)
        });
        let target_bytes = query.limit_bytes.checked_sub(query.growth.slab_bytes);
        if target_bytes.is_some_and(|target| self.plan_victims(query, target, most_bytes)) {
            self.steps.push(Step::Create(query.growth));
            return true;
        }
        core::mem::swap(&mut self.steps, &mut self.other);
        hole.is_some()
    }
}

/// The index after the smallest slab that is large enough alone, else after the largest slab.
fn after_best(by_size: &[(u64, SlabId)], excess_bytes: u64) -> usize {
    let enough = by_size.partition_point(|(bytes, _)| *bytes < excess_bytes);
    match by_size.get(enough) {
        Some((best_bytes, _)) => by_size.partition_point(|(bytes, _)| bytes <= best_bytes),
        None => by_size.len(),
    }
}
