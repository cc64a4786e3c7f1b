//! The planner: it tries the means in their order.

use alloc::vec::Vec;

use super::draft::Draft;
use super::query::Query;
use super::step::Step;
use super::windows::Windows;
use crate::config::{Growth, SlabClass, ZONES};
use crate::{AllocError, BlockId, Pools, Relocated, Spot};

/// A hard limit counts as close if it is below this percentage of the mark.
const NEAR_PERCENT: u64 = 125;

/// A plan that releases slabs must copy this many bytes less than a plan that releases none.
const RELEASE_ADVANTAGE_BYTES: u64 = 1 << 20;

/// The tables of planning. They keep their capacity. Any [`Pools`] may use any planner.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    draft: Draft,
    windows: Windows,
    /// The steps of the other plan while the planner compares two.
    other: Vec<Step>,
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
        planner.draft.steps.clear();
        let empty_limit_bytes = self.empty_limit_bytes(growth.class, size_bytes);
        let own = growth.class.zone();
        if (self.carver).has_hole(own, size_bytes, empty_limit_bytes) {
            return Ok(&planner.draft.steps);
        }
        // A program that releases and creates slabs again and again takes any hole: see the policy.
        if growth.class != SlabClass::Small
            && self.is_restless()
            && (1..ZONES).any(|zone| self.carver.has_hole(zone, size_bytes, u64::MAX))
        {
            return Ok(&planner.draft.steps);
        }
        let cap_bytes = limit_bytes.unwrap_or(u64::MAX);
        // Moves free nothing, so no plan makes room where too much is live.
        let live_bytes = self.granted_bytes().saturating_add(growth.least_bytes);
        if live_bytes > cap_bytes.max(self.reserved_bytes()) {
            return Err(AllocError::NeedsSlab {
                requested_bytes: size_bytes,
            });
        }
        let mark_bytes = self.mark_with(size_bytes).min(cap_bytes);
        let never_moves = self.config.move_permille == 0;
        let is_near = cap_bytes / NEAR_PERCENT < mark_bytes / 100;
        let is_tight = never_moves || is_near;
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
            planner.draft.steps.push(Step::Assign { slab, class });
            return Ok(&planner.draft.steps);
        }
        if planner.grow(&query, mark_bytes) {
            return Ok(&planner.draft.steps);
        }
        // Close to a hard limit, moves that keep the classes apart do not pay.
        if is_near && self.has_any_hole(size_bytes) {
            planner.draft.steps.clear();
            return Ok(&planner.draft.steps);
        }
        let allowed_bytes = self.allowed_bytes(&growth, size_bytes, cap_bytes);
        if planner.compact(&query, allowed_bytes) || planner.grow(&query, cap_bytes) {
            return Ok(&planner.draft.steps);
        }
        // The plan gets here only under a hard limit.
        planner.draft.steps.clear();
        if self.has_any_hole(size_bytes) {
            return Ok(&planner.draft.steps);
        }
        query.growth.slab_bytes = growth.least_bytes;
        query.limit_bytes = cap_bytes;
        query.anywhere = true;
        query.is_tight = true;
        if planner.grow(&query, cap_bytes) || planner.compact(&query, u64::MAX) {
            return Ok(&planner.draft.steps);
        }
        planner.draft.steps.clear();
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
        planner.draft.survey(self);
        planner.draft.plan_victims(&query, target_bytes, u64::MAX);
        &planner.draft.steps
    }

    /// Plans moves of at most `limit_bytes` bytes that empty slabs. Slabs that free the most for
    /// each byte moved come first. A slab loses blocks only if this call or further calls can empty
    /// it. The blocks go to fuller slabs, so a sequence of calls ends. No steps if no move is worth
    /// its copies.
    ///
    /// The emptied slabs stay; [`Carver::empty_slabs`](crate::Carver::empty_slabs) lists them.
    pub fn plan_pass<'a>(
        &self,
        planner: &'a mut Planner,
        limit_bytes: u64,
        movable: &dyn Fn(BlockId) -> bool,
    ) -> &'a [Step] {
        let query = Query {
            pools: self,
            growth: Growth::NOTHING,
            limit_bytes,
            anywhere: false,
            is_tight: false,
            movable,
        };
        planner.draft.pass(&query);
        &planner.draft.steps
    }

    /// Moves a live block to a free range of another slab. It only changes the tables, as
    /// [`Carver::relocate`](crate::Carver::relocate) does.
    ///
    /// # Errors
    /// Those of [`Carver::relocate`](crate::Carver::relocate).
    pub fn relocate(&mut self, block: BlockId, to: &Spot) -> Result<Relocated, AllocError> {
        self.carver.relocate(block, to)
    }

    /// The most bytes to move to keep the reserved bytes below the mark: the unused rest of the
    /// moves' share of the allocated bytes. The share doubles if the new slab would pass even the
    /// higher mark.
    fn allowed_bytes(&self, growth: &Growth, size_bytes: u64, cap_bytes: u64) -> u64 {
        let kept_bytes = self.reserved_bytes() - self.empty_bytes();
        // The mark that holds once moves have used up their share.
        let permille = self.config.spent_slack_permille;
        let limit_bytes = (self.mark_above(size_bytes, permille)).min(cap_bytes);
        let may_grow = kept_bytes.saturating_add(growth.slab_bytes) <= limit_bytes;
        let shares = if may_grow { 1 } else { 2 };
        let counters = &self.carver.counters;
        let permille = u128::from(self.config.move_permille) * shares;
        let all = u128::from(counters.granted.raised) * permille / 1000;
        u64::try_from(all)
            .unwrap_or(u64::MAX)
            .saturating_sub(counters.moved_bytes)
    }

    /// Whether a slab of any class has a hole of this size.
    fn has_any_hole(&self, size_bytes: u64) -> bool {
        (0..ZONES).any(|zone| self.carver.has_hole(zone, size_bytes, u64::MAX))
    }

    /// Bytes of all slabs without live blocks.
    fn empty_bytes(&self) -> u64 {
        let slabs = self.carver.empty_slabs();
        slabs.map(|slab| self.slab_bytes(slab)).sum()
    }
}

impl Planner {
    /// The steps of the last plan, for a caller that cannot keep the borrow that planning returned.
    pub fn steps(&self) -> &[Step] {
        &self.draft.steps
    }

    /// Releases empty slabs until the new slab fits under the query's limit or none is left. Then
    /// adds the step for the new slab. Returns whether the total is within `cap_bytes`.
    fn grow(&mut self, query: &Query<'_>, cap_bytes: u64) -> bool {
        self.draft.steps.clear();
        let reserved_bytes = query.pools.reserved_bytes();
        let Some(sum_bytes) = reserved_bytes.checked_add(query.growth.slab_bytes) else {
            return false;
        };
        let excess_bytes = sum_bytes.saturating_sub(query.limit_bytes);
        let released_bytes = self.draft.release(query, excess_bytes);
        self.draft.end_with_slab(query);
        sum_bytes - released_bytes <= cap_bytes
    }

    /// Plans the cheapest moves, of `most_bytes` at most, that make room under the query's limit.
    fn compact(&mut self, query: &Query<'_>, most_bytes: u64) -> bool {
        if most_bytes == 0 {
            return false;
        }
        self.draft.survey(query.pools);
        let hole = self.windows.plan(&mut self.draft, query, most_bytes);
        core::mem::swap(&mut self.draft.steps, &mut self.other);
        self.draft.room.undo_to(0);
        let most_bytes = hole.map_or(most_bytes, |bytes| {
            bytes.saturating_sub(RELEASE_ADVANTAGE_BYTES)
        });
        let target_bytes = query.limit_bytes.checked_sub(query.growth.slab_bytes);
        let is_possible = |target: &u64| most_bytes > 0 && *target >= query.pools.granted_bytes();
        let target_bytes = target_bytes.filter(is_possible);
        if target_bytes.is_some_and(|target| self.draft.plan_victims(query, target, most_bytes)) {
            self.draft.end_with_slab(query);
            return true;
        }
        core::mem::swap(&mut self.draft.steps, &mut self.other);
        hole.is_some()
    }
}
