//! The policy: which slab serves which request, and when empty slabs are given back.
//!
//! | request | slab |
//! | --- | --- |
//! | up to 256 KiB | 2 to 16 MiB: a quarter of all such slabs; shared by small requests only |
//! | below 4 MiB | 4 to 16 MiB: about what is live |
//! | from 4 MiB | its own size in steps of 64 KiB, which later requests may split |
//! | from 128 MiB | its own size, shared with nobody; a later request takes it that needs most of it |
//!
//! **The high-water rule.** A slab that would push the reserved bytes over the mark, the larger of
//! the highest reserved so far and 1.02 times the highest live so far, is made only after empty
//! slabs were released until it does not: as few as that takes, since each may be wanted again. On
//! recorded training and inference runs that is worth more than every other choice together.
//! Releasing earlier would create the same slabs again and again; never releasing keeps what only
//! the first phase of a program needed.
//!
//! **An empty slab changes its class** once so many slabs were released and the mark has not moved.
//! A program whose phases need tensors of other sizes then settles to few driver calls. A slab that
//! is far larger than what would be created stays what it is.
//!
//! **Moves before growth.** Where releasing is not enough, live blocks are moved together (the
//! folder `compact` plans it), and only where that does not help either the mark rises. A program
//! that repeats itself moves blocks while its mark still rises, and then no more. Moves have a
//! share of the allocated bytes; beyond it the mark may rise to 1.07 times the highest live first,
//! and beyond twice that share it simply rises.
//!
//! **Very large requests keep to themselves.** A slab of half the program's memory that a survivor
//! pins can be neither released nor emptied elsewhere. The price is slabs released and made again
//! where a program alternates between sizes. So it holds while the mark still rises, which is when
//! a lower peak can be won; once 16 slabs were released and the mark has not moved, whoever finds
//! no hole may take any, and a program that repeats itself settles to no driver calls.
//!
//! **A hard limit** that the caller names takes the place of the mark where it is lower. Close to
//! it slabs are made no larger than the request and any hole will do, in slabs of any kind: both
//! leave odd slabs behind, which is why neither is done earlier.
//!
//! The small and the middle pool come from PyTorch's caching allocator.

use alloc::string::String;

use super::carver::Carver;
use super::config::{Growth, PoolConfig, SlabClass, ZONES};
use super::holes::LOOKS;
use super::stats::{AllocStats, SlabInfo};
use super::{AllocError, Block, BlockId, SlabId};

/// A slab for small requests takes this part of all such slabs.
const SMALL_SLAB_SHARE: u64 = 4;

/// Blocks of all sizes in slabs of a few kinds. It decides and counts; the caller has the buffers.
///
/// When [`Pools::allocate`] says [`AllocError::NeedsSlab`], the caller asks for a plan
/// ([`Pools::plan`]) and carries it out. One that never moves anything asks what to create,
/// releases what it is told to, and adds the new slab; if it cannot create one, nothing has
/// changed.
///
/// ```
/// use lapidary_alloc::{AllocError, BlockId, PoolConfig, Pools};
///
/// fn allocate(pools: &mut Pools, size_bytes: u64) -> Result<BlockId, AllocError> {
///     match pools.allocate(size_bytes) {
///         Err(AllocError::NeedsSlab { .. }) => {}
///         done => return done,
///     }
///     let growth = pools.growth(size_bytes)?;
///     while let Some(slab) = pools.next_release(&growth) {
///         // Destroy the buffer here.
///         pools.remove_slab(slab)?;
///     }
///     // Create a buffer of `growth.slab_bytes` here.
///     pools.add_slab(&growth)?;
///     pools.allocate(size_bytes)
/// }
///
/// let mut pools = Pools::new(PoolConfig::new(256, 1 << 30))?;
/// let block = allocate(&mut pools, 1000)?;
/// assert_eq!(pools.stats().reserved_bytes, 2 << 20);
/// pools.free(block)?;
/// assert_eq!(pools.empty_slabs().count(), 1);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pools {
    pub(super) carver: Carver,
    pub(super) config: PoolConfig,
    /// The mark's own record of the highest levels, which resetting the statistics leaves alone.
    highest_reserved_bytes: u64,
    highest_requested_bytes: u64,
    /// The mark when a slab was last added, and the slabs released since it was lower.
    last_mark_bytes: u64,
    releases_at_mark: u64,
}

impl Pools {
    /// Pools without slabs.
    ///
    /// # Errors
    /// [`AllocError::UnitSize`] unless the granule is a power of two of at most 64 KiB,
    /// [`AllocError::SlabSize`] if the largest slab is below one granule.
    pub fn new(mut config: PoolConfig) -> Result<Pools, AllocError> {
        let carver = Carver::with_zones(config.unit_bytes, ZONES)?;
        let limit_bytes = carver.max_slab_bytes();
        if config.max_slab_bytes < config.unit_bytes {
            return Err(AllocError::SlabSize {
                size_bytes: config.max_slab_bytes,
                limit_bytes,
            });
        }
        config.max_slab_bytes = config.max_slab_bytes.min(limit_bytes) & !(config.unit_bytes - 1);
        Ok(Pools {
            carver,
            config,
            highest_reserved_bytes: 0,
            highest_requested_bytes: 0,
            last_mark_bytes: 0,
            releases_at_mark: 0,
        })
    }

    /// The sizes that these pools go by.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Takes a block out of the slabs there are. O(1).
    ///
    /// # Errors
    /// [`AllocError::NeedsSlab`] when none has room (see [`Pools::growth`]),
    /// [`AllocError::NeverFits`] above the largest slab, [`AllocError::TableFull`].
    #[inline]
    pub fn allocate(&mut self, size_bytes: u64) -> Result<BlockId, AllocError> {
        self.check_fits(size_bytes)?;
        let class = self.class(size_bytes);
        let empty_limit_bytes = self.empty_limit_bytes(class, size_bytes);
        let block = self
            .carver
            .allocate_in(class.zone(), size_bytes, empty_limit_bytes, LOOKS)?;
        self.note_requested();
        Ok(block)
    }

    /// As [`Pools::allocate`], from any slab whatever the policy says: for when no other slab can
    /// be had. O(1).
    ///
    /// # Errors
    /// As [`Pools::allocate`].
    pub fn allocate_anywhere(&mut self, size_bytes: u64) -> Result<BlockId, AllocError> {
        self.check_fits(size_bytes)?;
        let own = self.class(size_bytes).zone();
        let zones = core::iter::once(own).chain((0..ZONES).filter(|&zone| zone != own));
        let mut block = Err(AllocError::NeedsSlab {
            requested_bytes: size_bytes,
        });
        for zone in zones {
            block = self
                .carver
                .allocate_in(zone, size_bytes, u64::MAX, u32::MAX);
            if !matches!(block, Err(AllocError::NeedsSlab { .. })) {
                break;
            }
        }
        let block = block?;
        self.note_requested();
        Ok(block)
    }

    /// Gives a block back. O(1).
    ///
    /// # Errors
    /// [`AllocError::StaleBlock`] when it was freed before or is another allocator's.
    #[inline]
    pub fn free(&mut self, block: BlockId) -> Result<(), AllocError> {
        self.carver.free(block)
    }

    /// Where a block is. O(1).
    ///
    /// # Errors
    /// [`AllocError::StaleBlock`] when it was freed or is another allocator's.
    #[inline]
    pub fn block(&self, block: BlockId) -> Result<Block, AllocError> {
        self.carver.block(block)
    }

    /// The slab to create for a request that no hole serves. O(1).
    ///
    /// # Errors
    /// [`AllocError::NeverFits`] above the largest slab.
    pub fn growth(&self, size_bytes: u64) -> Result<Growth, AllocError> {
        self.check_fits(size_bytes)?;
        let config = &self.config;
        let class = self.class(size_bytes);
        let slab_bytes = match class {
            SlabClass::Small => self.small_slab_bytes(),
            SlabClass::Middle => self.middle_slab_bytes(size_bytes),
            SlabClass::Own | SlabClass::Alone => round_up(size_bytes, config.own_step_bytes),
        };
        // Rounding the request up cannot pass the largest slab, which is a multiple of the granule.
        let least_bytes = round_up(size_bytes.max(1), config.unit_bytes);
        let slab_bytes = round_up(slab_bytes.min(config.max_slab_bytes), config.unit_bytes);
        let slab_bytes = slab_bytes.clamp(least_bytes, config.max_slab_bytes);
        Ok(Growth {
            class,
            slab_bytes,
            least_bytes,
        })
    }

    /// A quarter of what slabs for small requests hold already. A program of many small tensors
    /// then has a few slabs, and gives few of them back when it turns to larger tensors.
    fn small_slab_bytes(&self) -> u64 {
        let zone = SlabClass::Small.zone();
        let wanted_bytes = self.carver.zones[zone as usize].reserved_bytes / SMALL_SLAB_SHARE;
        let least_bytes = self.config.small_slab_bytes;
        let most_bytes = self.config.middle_slab_bytes.max(least_bytes);
        let slab_bytes = wanted_bytes.checked_next_power_of_two();
        slab_bytes
            .unwrap_or(u64::MAX)
            .clamp(least_bytes, most_bytes)
    }

    /// As much as is live, so that a small program holds little, between the least request that
    /// gets a slab of its own size and what the configuration says.
    fn middle_slab_bytes(&self, size_bytes: u64) -> u64 {
        let requested_bytes = self.carver.counters.requested.now;
        let live_bytes = requested_bytes.max(self.highest_requested_bytes);
        let wanted_bytes = live_bytes.saturating_add(size_bytes);
        let least_bytes = self.config.own_request_bytes;
        let slab_bytes = wanted_bytes.checked_next_power_of_two();
        let slab_bytes = slab_bytes.unwrap_or(u64::MAX).max(least_bytes);
        slab_bytes.min(self.config.middle_slab_bytes)
    }

    /// The empty slab to release before a slab for `growth` is made, by the high-water rule; ask
    /// again after each one, until there is none. The smallest that is enough by itself, or else
    /// the largest. O(empty slabs).
    pub fn next_release(&self, growth: &Growth) -> Option<SlabId> {
        let reserved_bytes = self.reserved_bytes().saturating_add(growth.slab_bytes);
        let excess_bytes = reserved_bytes.saturating_sub(self.mark_bytes());
        if excess_bytes == 0 {
            return None;
        }
        let sizes = self.empty_slabs().map(|slab| (self.slab_bytes(slab), slab));
        let is_better = |a: u64, b: u64| match (a >= excess_bytes, b >= excess_bytes) {
            (true, true) => a < b,
            (a_is_enough, b_is_enough) => a_is_enough || (!b_is_enough && a > b),
        };
        let best = sizes.reduce(|best, next| {
            if is_better(next.0, best.0) {
                next
            } else {
                best
            }
        });
        best.map(|(_, slab)| slab)
    }

    /// The size of a slab that is there.
    pub(super) fn slab_bytes(&self, slab: SlabId) -> u64 {
        self.carver.unit.bytes(self.carver.slabs[slab.index].size)
    }

    /// The reserved bytes that are passed only when no empty slab is left to release.
    pub fn mark_bytes(&self) -> u64 {
        self.mark_with(0)
    }

    /// The mark as it will be once a request is served.
    pub(super) fn mark_with(&self, size_bytes: u64) -> u64 {
        self.mark_above(size_bytes, self.config.slack_permille)
    }

    /// The mark that holds while moves are too many.
    pub(super) fn spent_mark_with(&self, size_bytes: u64) -> u64 {
        self.mark_above(size_bytes, self.config.spent_slack_permille)
    }

    fn mark_above(&self, size_bytes: u64, slack_permille: u64) -> u64 {
        let live_bytes = self
            .carver
            .counters
            .requested
            .now
            .saturating_add(size_bytes);
        let live = u128::from(live_bytes.max(self.highest_requested_bytes));
        let with_slack = live * (1000 + u128::from(slack_permille)) / 1000;
        self.highest_reserved_bytes
            .max(u64::try_from(with_slack).unwrap_or(u64::MAX))
    }

    /// Lowers the mark to the present levels: what was needed once is not kept for its return. For
    /// after a trim, or where a program turns to other work.
    pub fn reset_mark(&mut self) {
        self.highest_reserved_bytes = self.carver.counters.reserved.now;
        self.highest_requested_bytes = self.carver.counters.requested.now;
        self.last_mark_bytes = 0;
        self.releases_at_mark = 0;
    }

    /// Adds the slab that the caller made for `growth`. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabSize`] if its size is no slab's, [`AllocError::TableFull`].
    pub fn add_slab(&mut self, growth: &Growth) -> Result<SlabId, AllocError> {
        let mark_bytes = self.mark_bytes();
        let slab = self
            .carver
            .add_slab_in(growth.class.zone(), growth.slab_bytes)?;
        self.highest_reserved_bytes = self
            .highest_reserved_bytes
            .max(self.carver.counters.reserved.now);
        if mark_bytes > self.last_mark_bytes {
            self.last_mark_bytes = mark_bytes;
            self.releases_at_mark = 0;
        }
        Ok(slab)
    }

    /// Lets a slab without live blocks serve requests of another class. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabInUse`] while a block is live in it, [`AllocError::StaleSlab`].
    pub fn assign(&mut self, slab: SlabId, class: SlabClass) -> Result<(), AllocError> {
        self.carver.assign(slab, class.zone())
    }

    /// Removes a slab without live blocks. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabInUse`] while a block is live in it, [`AllocError::StaleSlab`].
    pub fn remove_slab(&mut self, slab: SlabId) -> Result<(), AllocError> {
        self.carver.remove_slab(slab)?;
        self.releases_at_mark += 1;
        Ok(())
    }

    /// The slabs without live blocks, longest unused first. O(1) a step.
    pub fn empty_slabs(&self) -> impl Iterator<Item = SlabId> {
        self.carver.empty_slabs()
    }

    /// What a slab holds. O(blocks and holes in it).
    ///
    /// # Errors
    /// [`AllocError::StaleSlab`] when it was removed or is another allocator's.
    pub fn slab(&self, slab: SlabId) -> Result<SlabInfo, AllocError> {
        self.carver.slab(slab)
    }

    /// All slabs, by index. Each step walks one slab.
    pub fn slabs(&self) -> impl Iterator<Item = SlabInfo> {
        self.carver.slabs()
    }

    /// Bytes of all slabs. O(1).
    pub fn reserved_bytes(&self) -> u64 {
        self.carver.counters.reserved.now
    }

    /// All numbers at once. O(slabs + holes in the highest bins in use).
    pub fn stats(&self) -> AllocStats {
        self.carver.stats()
    }

    /// Sets every peak of the statistics to the present level; the mark stays. O(1).
    pub fn reset_peaks(&mut self) {
        self.carver.reset_peaks();
    }

    /// Walks all tables; see [`Carver::check_invariants`].
    ///
    /// # Errors
    /// The first broken promise, in words.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.carver.check_invariants()
    }

    #[inline]
    fn note_requested(&mut self) {
        let now = self.carver.counters.requested.now;
        self.highest_requested_bytes = self.highest_requested_bytes.max(now);
    }

    #[inline]
    fn check_fits(&self, size_bytes: u64) -> Result<(), AllocError> {
        let limit_bytes = self.config.max_slab_bytes;
        if size_bytes > limit_bytes {
            return Err(AllocError::NeverFits {
                requested_bytes: size_bytes,
                limit_bytes,
            });
        }
        Ok(())
    }

    /// The largest empty slab that a request may take; see the module's documentation.
    #[inline]
    pub(super) fn empty_limit_bytes(&self, class: SlabClass, size_bytes: u64) -> u64 {
        if class != SlabClass::Alone {
            return u64::MAX;
        }
        let excess_percent = u128::from(self.config.alone_excess_percent);
        let limit_bytes = u128::from(size_bytes) * (100 + excess_percent) / 100;
        // The slab that is made for a request serves it, whatever the configuration.
        u64::try_from(limit_bytes)
            .unwrap_or(u64::MAX)
            .max(round_up(size_bytes, self.config.own_step_bytes))
    }

    /// Were slabs released again and again although the mark stays?
    pub(super) fn is_restless(&self) -> bool {
        self.releases_at_mark >= self.config.release_allowance
    }

    #[inline]
    pub(super) fn class(&self, size_bytes: u64) -> SlabClass {
        if size_bytes <= self.config.small_request_bytes {
            SlabClass::Small
        } else if size_bytes < self.config.own_request_bytes {
            SlabClass::Middle
        } else if size_bytes < self.config.alone_request_bytes {
            SlabClass::Own
        } else {
            SlabClass::Alone
        }
    }
}

/// The next multiple of `step`, or `u64::MAX` where there is none.
fn round_up(bytes: u64, step: u64) -> u64 {
    bytes
        .checked_next_multiple_of(step.max(1))
        .unwrap_or(u64::MAX)
}
