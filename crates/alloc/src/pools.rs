//! The policy: which slab serves which request, and when empty slabs are released.
//!
//! | request | slab |
//! | --- | --- |
//! | up to 256 KiB | 2 to 16 MiB: a quarter of all such slabs; shared by small requests only |
//! | below 4 MiB | 4 to 16 MiB: about as much as is live, or less in a series of one size |
//! | from 4 MiB | its own size in steps of 64 KiB; later requests may split it |
//! | from 128 MiB | its own size, shared with nobody; reused by a request that needs most of it |
//!
//! **The high-water rule.** The high-water mark is the larger of two levels: the highest reserved
//! bytes so far, and 1.02 times the highest live bytes so far. If a new slab would push reserved
//! bytes over the mark, empty slabs are released first. As few as possible are released, since the
//! program may need each again. On recorded training and inference runs this rule saves more than
//! all other choices together. If slabs were released earlier, the program would create them again
//! and again. Without releases it would keep slabs that only its first phase needed.
//!
//! **An empty slab changes its class** once 16 slabs were released and the mark has not moved. A
//! program whose phases need tensors of other sizes then settles to few driver calls. A slab that
//! is far larger than the slab that would be created keeps its class. No plan releases a slab for
//! another one of its size: the slab stays and changes its class.
//!
//! **Moves before growth.** If releases are not enough, live blocks are moved together, as the
//! folder `compact` plans. The mark rises only if moves do not help either. A program that repeats
//! itself moves blocks while its mark still rises, and then no more. Moves may copy a share of the
//! allocated bytes. Beyond that share the mark may first rise to 1.07 times the highest live bytes.
//! Beyond twice the share it rises without limit.
//!
//! **A series of one size.** A program may fill slab after slab with blocks of one size, as the
//! pages of a cache are. Then slabs of the middle class hold a whole number of them, and have half
//! the size until much is live. So little of the last slab is unused. With smaller slabs, a kernel
//! that reads a table of blocks would need more bindings.
//!
//! **Very large requests share no slabs.** Such a slab may be half of the program's memory. A small
//! block that lives on in it would prevent its release. The price: a program that alternates
//! between sizes releases and creates slabs. So the rule holds only while the mark rises, because
//! only then can it lower the peak. Once 16 slabs were released and the mark has not moved, a
//! request that finds no hole may take any hole. A program that repeats itself then settles to no
//! driver calls.
//!
//! **A hard limit** of the caller replaces the mark if it is lower. Close to the limit, slabs are
//! no larger than the request, and blocks may go into slabs of any class. Both leave slabs of odd
//! sizes and classes behind, so neither is done earlier.
//!
//! The small and the middle pool come from PyTorch's caching allocator.

use core::ops::Deref;

use super::carver::Carver;
use super::config::{Growth, PoolConfig, SlabClass, ZONES};
use super::holes::LOOKS;
use super::{AllocError, BlockId, SlabId};

/// A new slab for small requests takes a quarter of the bytes of all such slabs.
const SMALL_SLAB_SHARE: u64 = 4;

/// So many middle slabs one after the other for one size are a series. Training creates fewer.
const SERIES_SLABS: u32 = 3;

/// The further slabs of a series have half the largest size until so many of the largest are live.
const SERIES_LARGE_SLABS: u64 = 16;

/// Blocks of all sizes in slabs of a few classes. The pools decide and count; the caller owns the
/// buffers.
///
/// When [`Pools::allocate`] returns [`AllocError::NeedsSlab`], the caller asks for a plan
/// ([`Pools::plan`]) and executes it. A caller that never moves blocks asks for the size of a slab
/// ([`Pools::growth`]), releases the slabs of [`Pools::next_release`], and adds the new slab. If it
/// cannot create the buffer, the pools have lost only these empty slabs.
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
    /// The highest levels for the mark. A reset of the statistics does not change them.
    highest_reserved_bytes: u64,
    highest_requested_bytes: u64,
    /// The highest mark at which a slab was added. The next field counts the releases since then.
    last_mark_bytes: u64,
    releases_at_mark: u64,
    /// The request that the last middle slab was for, and how many in a row were for its size.
    series_bytes: u64,
    series_slabs: u32,
}

/// What the pools tell of their blocks and slabs, their carver tells.
impl Deref for Pools {
    type Target = Carver;

    #[inline]
    fn deref(&self) -> &Carver {
        &self.carver
    }
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
        Ok(Pools::empty(carver, config))
    }

    fn empty(carver: Carver, config: PoolConfig) -> Pools {
        Pools {
            carver,
            config,
            highest_reserved_bytes: 0,
            highest_requested_bytes: 0,
            last_mark_bytes: 0,
            releases_at_mark: 0,
            series_bytes: 0,
            series_slabs: 0,
        }
    }

    /// Forgets all slabs with their blocks, as when their device is lost. The totals and the peaks
    /// of the statistics stay.
    pub fn clear(&mut self) {
        let counters = self.carver.counters.emptied();
        *self = Pools::empty(Carver::empty(self.carver.unit, ZONES), self.config);
        self.carver.counters = counters;
    }

    /// The configuration of these pools.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Allocates a block in the present slabs. O(1).
    ///
    /// # Errors
    /// [`AllocError::NeedsSlab`] when no slab has a hole that fits (see [`Pools::growth`]),
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

    /// As [`Pools::allocate`], but from any slab, against the policy. For callers that cannot get
    /// another slab. O(holes in the request's bin of each class).
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

    /// Frees a block. O(1).
    ///
    /// # Errors
    /// [`AllocError::StaleBlock`] when the block was freed before or belongs to another allocator.
    #[inline]
    pub fn free(&mut self, block: BlockId) -> Result<(), AllocError> {
        self.carver.free(block)
    }

    /// The slab to create for a request that finds no hole. O(1).
    ///
    /// # Errors
    /// [`AllocError::NeverFits`] above the largest slab.
    pub fn growth(&self, size_bytes: u64) -> Result<Growth, AllocError> {
        self.check_fits(size_bytes)?;
        let config = &self.config;
        let class = self.class(size_bytes);
        let slab_bytes = match class {
            SlabClass::Small => self.small_slab_bytes(),
            SlabClass::Middle if self.is_series(size_bytes) => self.series_slab_bytes(size_bytes),
            SlabClass::Middle => self.middle_slab_bytes(size_bytes),
            SlabClass::Own | SlabClass::Alone => round_up(size_bytes, config.own_step_bytes),
        };
        // Rounding the request up cannot pass the largest slab, which is a multiple of the granule.
        let least_bytes = self.block_bytes(size_bytes);
        let slab_bytes = round_up(slab_bytes.min(config.max_slab_bytes), config.unit_bytes);
        let slab_bytes = slab_bytes.clamp(least_bytes, config.max_slab_bytes);
        Ok(Growth {
            class,
            slab_bytes,
            least_bytes,
        })
    }

    /// A quarter of the bytes that slabs for small requests already have. A program of many small
    /// tensors then has few slabs, and releases few of them when it turns to larger tensors.
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

    /// As many bytes as are live, so that a small program reserves little. The least is
    /// `own_request_bytes`, the most `middle_slab_bytes` of the configuration.
    fn middle_slab_bytes(&self, size_bytes: u64) -> u64 {
        let least_bytes = self.config.own_request_bytes;
        let slab_bytes = self.live_with(size_bytes).checked_next_power_of_two();
        let slab_bytes = slab_bytes.unwrap_or(u64::MAX).max(least_bytes);
        slab_bytes.min(self.config.middle_slab_bytes)
    }

    /// A whole number of blocks in the largest middle slab, or in half of it.
    fn series_slab_bytes(&self, size_bytes: u64) -> u64 {
        let most_bytes = self.config.middle_slab_bytes;
        let is_large = self.live_with(size_bytes) / SERIES_LARGE_SLABS >= most_bytes;
        let slab_bytes = if is_large { most_bytes } else { most_bytes / 2 };
        slab_bytes - slab_bytes % self.block_bytes(size_bytes)
    }

    /// Were the last middle slabs for this size?
    fn is_series(&self, size_bytes: u64) -> bool {
        self.series_slabs >= SERIES_SLABS && self.series_bytes == self.block_bytes(size_bytes)
    }

    /// The highest live bytes so far, and this request.
    fn live_with(&self, size_bytes: u64) -> u64 {
        let requested_bytes = self.carver.counters.requested.now;
        let live_bytes = requested_bytes.max(self.highest_requested_bytes);
        live_bytes.saturating_add(size_bytes)
    }

    fn block_bytes(&self, size_bytes: u64) -> u64 {
        round_up(size_bytes.max(1), self.config.unit_bytes)
    }

    /// The empty slab to release before the slab for `growth` is created, by the high-water rule.
    /// The caller asks again after each release, until the answer is `None`. The answer is the
    /// smallest slab that is enough alone, or else the largest. O(empty slabs).
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

    /// The size of a present slab in bytes.
    pub(super) fn slab_bytes(&self, slab: SlabId) -> u64 {
        self.carver.unit.bytes(self.carver.slabs[slab.index].size)
    }

    /// The mark in bytes. The reserved bytes pass it only when no empty slab is left to release.
    pub fn mark_bytes(&self) -> u64 {
        self.mark_with(0)
    }

    /// The mark after a request of this size was served.
    pub(super) fn mark_with(&self, size_bytes: u64) -> u64 {
        self.mark_above(size_bytes, self.config.slack_permille)
    }

    pub(super) fn mark_above(&self, size_bytes: u64, slack_permille: u64) -> u64 {
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

    /// Lowers the mark to the present levels, so that slabs of an earlier peak are not kept. For
    /// use after a trim, or when a program turns to other work.
    pub fn reset_mark(&mut self) {
        self.highest_reserved_bytes = self.carver.counters.reserved.now;
        self.highest_requested_bytes = self.carver.counters.requested.now;
        self.last_mark_bytes = 0;
        self.releases_at_mark = 0;
    }

    /// Adds the slab that the caller created for `growth`. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabSize`] if the size is below one granule or above the largest slab,
    /// [`AllocError::TableFull`] when the tables have no free entry.
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
        // Close to a hard limit a slab holds one request, whatever the next one is.
        if growth.class == SlabClass::Middle && growth.slab_bytes > growth.least_bytes {
            let is_same = self.series_bytes == growth.least_bytes;
            self.series_slabs = if is_same {
                self.series_slabs.saturating_add(1)
            } else {
                1
            };
            self.series_bytes = growth.least_bytes;
        }
        Ok(slab)
    }

    /// Lets a slab without live blocks serve requests of another class. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabInUse`] while a block is live in it, [`AllocError::StaleSlab`] when it was
    /// removed before or belongs to another allocator.
    pub fn assign(&mut self, slab: SlabId, class: SlabClass) -> Result<(), AllocError> {
        self.carver.assign(slab, class.zone())
    }

    /// Removes a slab without live blocks. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabInUse`] while a block is live in it, [`AllocError::StaleSlab`] when it was
    /// removed before or belongs to another allocator.
    pub fn remove_slab(&mut self, slab: SlabId) -> Result<(), AllocError> {
        self.carver.remove_slab(slab)?;
        self.releases_at_mark += 1;
        Ok(())
    }

    /// Bytes of all slabs. O(1).
    pub fn reserved_bytes(&self) -> u64 {
        self.carver.counters.reserved.now
    }

    /// Bytes of all blocks in use. O(1).
    pub fn granted_bytes(&self) -> u64 {
        self.carver.counters.granted.now()
    }

    /// Bytes of blocks moved so far. O(1).
    pub fn moved_bytes(&self) -> u64 {
        self.carver.counters.moved_bytes
    }

    /// Sets every peak of the statistics to the present level. The mark stays. O(1).
    pub fn reset_peaks(&mut self) {
        self.carver.reset_peaks();
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

    /// The largest empty slab that a request may take, by the rules of the module's documentation.
    #[inline]
    pub(super) fn empty_limit_bytes(&self, class: SlabClass, size_bytes: u64) -> u64 {
        if class != SlabClass::Alone {
            return u64::MAX;
        }
        let excess_percent = u128::from(self.config.alone_excess_percent);
        let limit_bytes = u128::from(size_bytes) * (100 + excess_percent) / 100;
        // The slab that was created for a request must serve it, whatever the configuration.
        u64::try_from(limit_bytes)
            .unwrap_or(u64::MAX)
            .max(round_up(size_bytes, self.config.own_step_bytes))
    }

    /// Whether at least `release_allowance` slabs were released since the mark last rose.
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

/// The next multiple of `step`, or `u64::MAX` on overflow.
fn round_up(bytes: u64, step: u64) -> u64 {
    bytes
        .checked_next_multiple_of(step.max(1))
        .unwrap_or(u64::MAX)
}
