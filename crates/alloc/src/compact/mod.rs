//! Compaction as a plan: which live blocks to move where, so that a request finds room.
//!
//! ```text
//! hole     [ a |  hole  | b |  hole  | c ]    b moves to another slab: one hole where there were two
//! release  [ a |            hole         ]    a moves away, the slab is given back, another is made
//! create   [ a |    hole    | b |  hole  ]    a and b fit in no hole: a small slab is made for them first
//! ```
//!
//! Nothing here moves anything. A plan is a list of [`Step`]s over the tables as they are; whoever
//! carries them out may stop after any of them, because each leaves the tables complete and holds
//! nothing in reserve. Blocks may be freed in the meantime: a step that concerns one is skipped,
//! and the plan still serves. Once others have allocated it may not, and a step that does not apply
//! any more is refused.
//!
//! The search is greedy and bounded: [`MOST_WINDOWS`] windows, [`MOST_SLABS`] slabs and
//! [`MOST_NODES`] blocks and holes are looked at, whatever there is, and for a slice of compaction
//! (`pass`) only as many as the slice may concern. A [`Planner`] keeps its
//! tables, so that planning takes nothing from the heap once they have grown.
//!
//! **The order of the means**, each tried only when those before it do not do: a hole that the
//! short search overlooked; an empty slab of another class, once slabs come and go for nothing;
//! another slab under the mark, after releasing what is empty; the
//! cheapest moves that keep below the mark; another slab above the mark. Under a hard limit that
//! forbids the last: any hole in slabs of any kind, a slab no larger than the request, and moves
//! whatever they cost.

use alloc::vec::Vec;

mod pass;
mod room;
mod sorted;
mod survey;
mod victims;
mod windows;

use super::config::{Growth, SlabClass, ZONES};
use super::nodes::Node;
use super::{AllocError, BlockId, Pools, SlabId, Spot};
use room::Room;
use windows::Window;

/// How many places are tried in which a window of the request's size could be emptied.
const MOST_WINDOWS: usize = 40;
/// How many slabs are looked at for windows and victims.
const MOST_SLABS: usize = 200;
/// How many blocks and holes are walked over for one plan.
const MOST_NODES: usize = 1 << 14;
/// An empty slab of another class is at most so many times as large as the one that it replaces, or
/// as a large one for middle requests.
const MOST_EXCESS: u64 = 4;
/// A hard limit is close below this share of the mark.
const NEAR_PERCENT: u64 = 125;
/// A plan that gives slabs back must save so many bytes of copies against one that does not.
const RELEASE_ADVANTAGE_BYTES: u64 = 1 << 20;

/// One thing to do, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give this slab back: [`Pools::remove_slab`]. It is empty when its turn comes.
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
        /// The block, whose handle stays good.
        block: BlockId,
        /// Where it goes.
        to: Spot,
    },
    /// Create a slab, for the blocks of the steps that follow or for the request:
    /// [`Pools::add_slab`].
    Create(Growth),
    /// Move a block into the slab that the last [`Step::Create`] has made, and copy the bytes.
    MoveToNew {
        /// The block, whose handle stays good.
        block: BlockId,
        /// Where it goes in that slab.
        offset_bytes: u64,
    },
}

/// The tables of planning, kept for their capacity. Any [`Pools`] may use any planner.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    steps: Vec<Step>,
    /// The other plan, while two are compared.
    other: Vec<Step>,
    room: Room,
    slabs: Vec<Candidate>,
    windows: Vec<Window>,
    pieces: Vec<windows::Piece>,
    blocks: Vec<Tenant>,
    /// The empty slabs with their bytes, the smallest first.
    empty: Vec<(u64, SlabId)>,
    /// Of every slab by index whether the plan gives it back or fills it.
    fates: Vec<Fate>,
}

/// A slab as it is when planning begins, in granules.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    index: u32,
    zone: u8,
    size: u64,
    live: u64,
}

/// A block of a slab that is to be emptied, in granules.
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
    /// The steps of the last plan, for whoever cannot hold on to what planning returned.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// What is asked of a plan.
struct Query<'a> {
    pools: &'a Pools,
    growth: Growth,
    /// What slabs may take together, at any moment.
    limit_bytes: u64,
    /// Any hole will do, in slabs of any kind.
    anywhere: bool,
    /// A hard limit is close, or blocks never move: what lies badly can hardly be mended.
    is_tight: bool,
    movable: &'a dyn Fn(BlockId) -> bool,
}

impl Query<'_> {
    /// The least bytes that serve the request, in granules.
    fn size(&self) -> u64 {
        self.pools
            .carver
            .unit
            .granules_ceil(self.growth.least_bytes)
            .0
    }

    /// What a block is by its size.
    fn class_of(&self, tenant: &Tenant) -> SlabClass {
        let carver = &self.pools.carver;
        let node = &carver.nodes[tenant.node];
        let bytes = carver.unit.bytes(node.size()) - node.slack_bytes();
        self.pools.class(bytes)
    }

    /// Where a block belongs by its size.
    fn zone_of(&self, tenant: &Tenant) -> u8 {
        self.class_of(tenant).zone()
    }

    /// An empty slab of another class that serves in the place of a new one: the smallest. Only
    /// for a program that goes round in circles, and far from a hard limit.
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
    /// What to do so that a request that [`Pools::allocate`] had no room for finds it. After all
    /// steps, [`Pools::allocate_anywhere`] succeeds; after none, if there are none.
    ///
    /// `limit_bytes` is what all slabs together may take, at any moment; the policy stays below it
    /// where it can, and without one it is never short of a plan. A step may wait for the one
    /// before: where a released slab still counts, whoever creates the next one waits until it is
    /// gone. Only blocks that are `movable` move.
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
    /// [`AllocError::NeedsSlab`] when nothing makes room within the limit,
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
        // A program that goes round in circles takes what there is: see the policy.
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
        // Only a hard limit leads here.
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

    /// What to do so that no more than `target_bytes` are reserved, or as little more as moving the
    /// `movable` blocks can do: for when a limit has sunk, or memory is to be given back. At no
    /// moment more is reserved than now.
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

    /// Moves a live block to a free range of another slab: bookkeeping only, as
    /// [`Carver::relocate`](super::Carver::relocate).
    ///
    /// # Errors
    /// As there.
    pub fn relocate(&mut self, block: BlockId, to: &Spot) -> Result<super::Relocated, AllocError> {
        self.carver.relocate(block, to)
    }

    /// How many bytes may be moved to keep the reserved ones below the mark: what is left of the
    /// moves' share, or of twice that where even a higher mark would not do.
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
    /// Releases empty slabs until the new slab fits under the query's limit or none is left, and
    /// creates it if that is within `cap_bytes`.
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
    /// As few slabs as that takes, since each may be wanted again. Close to a hard limit the
    /// longest unused go first instead: large slabs are hard to have back there.
    fn release(&mut self, query: &Query<'_>, excess_bytes: u64) -> u64 {
        let pools = query.pools;
        self.empty.clear();
        if excess_bytes > 0 {
            let sizes = pools
                .empty_slabs()
                .map(|slab| (pools.slab_bytes(slab), slab));
            self.empty.extend(sizes);
        }
        // The longest unused comes last, of those of one size too.
        self.empty.reverse();
        if !query.is_tight {
            self.empty.sort_by_key(|(bytes, _)| *bytes);
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

    /// Plans the cheapest moves that make room under the query's limit, of `most_bytes` at most.
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

/// Behind which index the smallest slab lies that is enough by itself, or else the largest one.
fn after_best(by_size: &[(u64, SlabId)], excess_bytes: u64) -> usize {
    let enough = by_size.partition_point(|(bytes, _)| *bytes < excess_bytes);
    match by_size.get(enough) {
        Some((best_bytes, _)) => by_size.partition_point(|(bytes, _)| bytes <= best_bytes),
        None => by_size.len(),
    }
}
