//! Suggestions made from a snapshot, in sentences with figures.

mod waiting;

use std::cmp::Reverse;
use std::fmt;

use rustc_hash::FxHashMap;

use super::Snapshot;
use crate::memory::{Block, BlockState, SlabMap, printable_end};
use crate::shortage::ShareUse;
use crate::transfer::UPLOAD_LIMIT_BYTES;
use crate::units::{Bytes, MIB};

/// Suggestions about fewer bytes are left out.
const LEAST_BYTES: u64 = MIB;

/// A tensor that this many commands did not use counts as unused.
const IDLE_COMMANDS: u32 = 1000;

/// With fewer submissions or released slabs, a program is still starting.
const LEAST_SUBMISSIONS: u64 = 100;
const LEAST_RELEASED: u64 = 16;

/// Staging gets at most 1/8 of a budget; the rest is for tensors.
const STAGING_PART: u64 = 8;

/// What a suggestion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Topic {
    /// Tensors are evicted and restored because the live ones do not all fit.
    Budget,
    /// A few long-lived blocks keep mostly free slabs.
    Fragmentation,
    /// A few pinned blocks keep mostly free slabs.
    Pinned,
    /// Live tensors are not used.
    Unused,
    /// Memory is short, and much of it waits for a backward.
    Saved,
    /// A share does not fit below its ceiling.
    Share,
    /// Transfers wait for staging memory.
    Staging,
    /// Passes wait for memory much of the time.
    Waiting,
    /// The host reads slabs in its own memory slowly.
    SlowReads,
    /// Small tensors take whole granules.
    Rounding,
    /// Slabs are released and created again.
    Churn,
    /// The device gets its work in very small batches.
    Flushing,
    /// The app opened its device without features that make work faster.
    Features,
}

/// One suggestion.
///
/// `Display` prints the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Suggestion {
    /// The subject of the suggestion.
    pub topic: Topic,
    /// The bytes concerned; 0 if the suggestion is about time.
    pub bytes: u64,
    /// The finding and what to do.
    pub text: String,
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Snapshot {
    /// Suggestions in sentences with figures, the one about most bytes first. Empty if there is
    /// nothing to improve.
    pub fn advice(&self) -> Vec<Suggestion> {
        let rules = [
            Self::budget,
            Self::fragmentation,
            Self::pinned,
            Self::unused,
            Self::saved,
            Self::share,
            Self::staging,
            Self::waiting,
            Self::slow_reads,
            Self::rounding,
            Self::churn,
            Self::flushing,
            Self::features,
        ];
        let mut all: Vec<Suggestion> = rules.iter().filter_map(|rule| rule(self)).collect();
        all.sort_by_key(|one| Reverse(one.bytes));
        all
    }

    fn budget(&self) -> Option<Suggestion> {
        let budget_bytes = self.stats.budget_bytes?;
        let short_bytes = self.short_bytes()?;
        if self.stats.restores == 0 {
            return None;
        }
        let holder = match self.stats.holders.first() {
            Some(holder) => format!("; most is held by {}", printable_end(&holder.tag, 72)),
            None => String::new(),
        };
        // A model reads all of its weights for each token, so it can only make them smaller.
        let is_of_sources = self.stats.dropped_to_source_bytes > self.stats.evicted_bytes;
        let help = match is_of_sources {
            true => "load weights in fewer bits (`ModelFile::weights_as`)",
            false => "keep fewer tensors alive at once",
        };
        let text = format!(
            "the budget of {} is short by {}: tensors were restored {} times, {} in all, because \
             the live tensors do not all fit. Raise the budget (`GpuMemory::set_budget`), or \
             {help}{holder}.",
            Bytes(budget_bytes),
            Bytes(short_bytes),
            self.stats.restores,
            Bytes(self.stats.restored_bytes),
        );
        suggest(Topic::Budget, short_bytes, text)
    }

    /// Slabs that are mostly free, and the sum of their free bytes. A giant has its slab for
    /// itself.
    fn sparse(&self) -> (Vec<&SlabMap>, u64) {
        let is_sparse = |slab: &&SlabMap| {
            let live_bytes = granted_bytes(&slab.blocks);
            live_bytes > 0 && live_bytes < slab.size_bytes / 4
        };
        let sparse: Vec<&SlabMap> = self.slabs.iter().filter(is_sparse).collect();
        let free_bytes = free_bytes(&sparse);
        let used = self.slabs.iter().filter(|slab| !slab.blocks.is_empty());
        let used_bytes = used.fold(0, |sum: u64, slab| sum.saturating_add(slab.size_bytes));
        let is_much = free_bytes >= 4 * LEAST_BYTES && free_bytes >= used_bytes / 8;
        if is_much && sparse.len() > 1 {
            (sparse, free_bytes)
        } else {
            (Vec::new(), 0)
        }
    }

    fn fragmentation(&self) -> Option<Suggestion> {
        let (slabs, free_bytes) = self.sparse();
        let blocks = slabs.iter().flat_map(|slab| &slab.blocks);
        let (mut count, mut bytes) = (0_u64, 0_u64);
        for block in blocks.clone() {
            count += 1;
            bytes = bytes.saturating_add(block.granted_bytes);
        }
        let (tag, _) = self.greatest(blocks)?;
        let text = format!(
            "{} slabs with {} free are kept by {count} blocks, {} in all, that outlived their \
             neighbours; most are of {}. Create long-lived tensors before short-lived ones, or call \
             `GpuMemory::compact` between two steps: it moves the blocks together.",
            slabs.len(),
            Bytes(free_bytes),
            Bytes(bytes),
            self.tag_name(tag),
        );
        suggest(Topic::Fragmentation, free_bytes, text)
    }

    fn pinned(&self) -> Option<Suggestion> {
        let (mut slabs, _) = self.sparse();
        let is_pinned = |block: &&Block| block.state == BlockState::Pinned;
        slabs.retain(|slab| slab.blocks.iter().any(|block| is_pinned(&block)));
        let pinned = slabs.iter().flat_map(|slab| &slab.blocks).filter(is_pinned);
        let free_bytes = free_bytes(&slabs);
        let count = pinned.clone().count();
        let (tag, _) = self.greatest(pinned)?;
        let text = format!(
            "{count} pinned tensors keep {} slabs with {} free; most are of {}. Pin a tensor only while \
             its place must not change: a pin ends when its guard is dropped.",
            slabs.len(),
            Bytes(free_bytes),
            self.tag_name(tag),
        );
        suggest(Topic::Pinned, free_bytes, text)
    }

    fn unused(&self) -> Option<Suggestion> {
        let idle = self
            .blocks()
            .filter(|block| block.idle_commands >= IDLE_COMMANDS);
        let (tag, bytes) = self.greatest(idle.clone())?;
        if bytes < self.stats.live_bytes.now / 16 {
            return None;
        }
        let of_tag = idle.filter(|block| block.tag == tag);
        let commands = of_tag.clone().map(|block| block.idle_commands).min()?;
        let text = format!(
            "{} in {} tensors of {} were not used by the last {commands} commands and take {} % of the live \
             bytes. Drop them. If they are needed later, `advise(Advice::Late)` makes them the first to be \
             evicted, and `evict` evicts them at once.",
            Bytes(bytes),
            of_tag.count(),
            self.tag_name(tag),
            percent(bytes, self.stats.live_bytes.now),
        );
        suggest(Topic::Unused, bytes, text)
    }

    fn saved(&self) -> Option<Suggestion> {
        let (bytes, live_bytes) = (self.stats.saved_bytes, self.stats.live_bytes.now);
        let is_short = self.stats.refusals > 0 || self.stats.restores > 0;
        if !is_short || bytes < live_bytes / 2 {
            return None;
        }
        let (tag, _) = self.greatest(self.blocks().filter(|block| block.is_saved))?;
        let text = format!(
            "{} of the {} live bytes, {} %, are saved for a backward that has not run; most are of {}. Call \
             `backward` earlier, compute under `no_grad` what needs no gradients, or let `Gpu::checkpoint` \
             compute again instead of saving.",
            Bytes(bytes),
            Bytes(live_bytes),
            percent(bytes, live_bytes),
            self.tag_name(tag),
        );
        suggest(Topic::Saved, bytes, text)
    }

    /// A share that evicts its own while others leave memory free.
    fn share(&self) -> Option<Suggestion> {
        let is_full = |share: &&ShareUse| {
            let ceiling_bytes = share.ceiling_bytes.unwrap_or(u64::MAX);
            share.restores > 0 && share.bytes.peak >= ceiling_bytes / 10 * 9
        };
        let full = self.stats.shares.iter().filter(is_full);
        let share = full.max_by_key(|share| share.restores)?;
        let ceiling_bytes = share.ceiling_bytes?;
        let (free, bytes) = match self.stats.budget_bytes {
            Some(budget_bytes) => {
                let free_bytes = budget_bytes.saturating_sub(self.stats.device_bytes.now);
                let free_bytes = free_bytes.saturating_add(self.stats.cached_bytes.now);
                let free = format!("{} of the device are free", Bytes(free_bytes));
                (free, free_bytes.min(ceiling_bytes))
            }
            None => ("the device has no budget".into(), ceiling_bytes),
        };
        let text = format!(
            "the share `{}` fills its ceiling of {}, and its tensors were restored {} times, while \
             {free}. Raise its ceiling (`Share::resize`), or keep fewer of its tensors alive at \
             once.",
            printable_end(&share.path, 60),
            Bytes(ceiling_bytes),
            share.restores,
        );
        suggest(Topic::Share, bytes, text)
    }

    fn staging(&self) -> Option<Suggestion> {
        let limit_bytes = self.stats.staging_limit_bytes;
        let share_bytes = self.stats.budget_bytes.unwrap_or(u64::MAX) / STAGING_PART;
        let helps_bytes = UPLOAD_LIMIT_BYTES.min(share_bytes);
        let more_bytes = helps_bytes.checked_sub(limit_bytes)?;
        if self.stats.staging_waits < LEAST_SUBMISSIONS || more_bytes == 0 {
            return None;
        }
        let text = format!(
            "transfers looked for memory {} times because staging, which may take {}, was full. \
             Give it more (`Budget::staging_bytes`): up to {} helps.",
            self.stats.staging_waits,
            Bytes(limit_bytes),
            Bytes(helps_bytes),
        );
        suggest(Topic::Staging, more_bytes, text)
    }

    fn rounding(&self) -> Option<Suggestion> {
        let live_bytes = self.stats.live_bytes.now;
        let bytes = live_bytes.checked_sub(self.stats.requested_bytes.now)?;
        if bytes < live_bytes / 8 {
            return None;
        }
        let is_small = |block: &&Block| block.size_bytes < self.granule_bytes;
        let small = self.blocks().filter(is_small);
        let count = small.clone().count();
        let (tag, _) = self.greatest_of(small, |block| {
            block.granted_bytes.saturating_sub(block.size_bytes)
        })?;
        let text = format!(
            "{} of the {} live bytes, {} %, is rounding: {count} tensors are smaller than a granule, the {} that \
             a block has at least; most are of {}. Keep small tensors together in one tensor, and use views of \
             it (`slice`, `narrow`).",
            Bytes(bytes),
            Bytes(live_bytes),
            percent(bytes, live_bytes),
            Bytes(self.granule_bytes),
            self.tag_name(tag),
        );
        suggest(Topic::Rounding, bytes, text)
    }

    fn churn(&self) -> Option<Suggestion> {
        let (created, released) = (self.stats.slabs_created, self.stats.slabs_released);
        let there = self.slabs.len() as u64;
        if released < LEAST_RELEASED || released < there.saturating_mul(4) {
            return None;
        }
        let bytes = self.stats.reserved_bytes.peak;
        let limit_bytes = self.stats.budget_bytes.unwrap_or(u64::MAX);
        if self.stats.restores > 0 && bytes >= limit_bytes / 4 * 3 {
            // Eviction releases slabs to stay within the budget. Reserving them does not prevent
            // that.
            return None;
        }
        let text = format!(
            "{created} slabs were created and {released} released, {} in all: the same memory is released \
             and created again. Call `GpuMemory::reserve({bytes})` once before the loop, or trim less often \
             (`GpuMemory::release_idle_after`).",
            Bytes(self.stats.reserved_bytes.up),
        );
        suggest(Topic::Churn, bytes, text)
    }

    fn flushing(&self) -> Option<Suggestion> {
        let (commands, submissions) = (self.stats.commands, self.stats.submissions);
        // Evictions, restores and waits for staging cause submissions too.
        let moves = (self.stats.evictions)
            .saturating_add(self.stats.restores)
            .saturating_add(self.stats.staging_waits);
        let is_moving = moves >= submissions / 4;
        if submissions < LEAST_SUBMISSIONS || is_moving || commands >= submissions.saturating_mul(4)
        {
            return None;
        }
        let text = format!(
            "{commands} commands ran in {submissions} submissions, fewer than 4 in each. Reading, forcing or \
             flushing in a loop makes the host and the device wait for each other. Read less often, or keep \
             several reads under way (`Tensor::to_vec_async`)."
        );
        Some(about_time(Topic::Flushing, text))
    }

    fn features(&self) -> Option<Suggestion> {
        let missing = &self.stats.missing_features;
        let names = missing.join("; ");
        let text = format!(
            "the app's device lacks what its adapter has and makes work faster: {names}. Open it with \
             `required_features: lapidary::interop::wanted_features(&adapter)`, and with \
             `required_limits: adapter.limits()`."
        );
        (!missing.is_empty()).then(|| about_time(Topic::Features, text))
    }

    /// The blocks on the device.
    fn blocks(&self) -> impl Iterator<Item = &Block> + Clone {
        self.slabs.iter().flat_map(|slab| &slab.blocks)
    }

    /// The tag with most bytes in these blocks.
    fn greatest<'a>(&self, blocks: impl Iterator<Item = &'a Block>) -> Option<(u32, u64)> {
        self.greatest_of(blocks, |block| block.granted_bytes)
    }

    fn greatest_of<'a>(
        &self,
        blocks: impl Iterator<Item = &'a Block>,
        bytes: impl Fn(&Block) -> u64,
    ) -> Option<(u32, u64)> {
        let mut by_tag = FxHashMap::default();
        for block in blocks {
            let sum: &mut u64 = by_tag.entry(block.tag).or_default();
            *sum = sum.saturating_add(bytes(block));
        }
        (by_tag.into_iter()).max_by_key(|&(tag, bytes)| (bytes, Reverse(tag)))
    }
}

fn suggest(topic: Topic, bytes: u64, text: String) -> Option<Suggestion> {
    (bytes >= LEAST_BYTES).then_some(Suggestion { topic, bytes, text })
}

/// A suggestion about time: no bytes are concerned.
fn about_time(topic: Topic, text: String) -> Suggestion {
    let bytes = 0;
    Suggestion { topic, bytes, text }
}

fn granted_bytes(blocks: &[Block]) -> u64 {
    let granted = blocks.iter().map(|block| block.granted_bytes);
    granted.fold(0, u64::saturating_add)
}

/// The bytes of these slabs that no block takes.
fn free_bytes(slabs: &[&SlabMap]) -> u64 {
    let free = slabs.iter();
    let free = free.map(|slab| slab.size_bytes.saturating_sub(granted_bytes(&slab.blocks)));
    free.fold(0, u64::saturating_add)
}

fn percent(part: u64, whole: u64) -> u128 {
    u128::from(part) * 100 / u128::from(whole.max(1))
}
