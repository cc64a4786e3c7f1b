//! Reports of a shortage: who holds memory, what shares may hold, how often each reclaim step ran
//! and helped. And the error of a request that found no room. `engine/reclaim.rs` executes the
//! steps.

use std::fmt;

use crate::units::{Bytes, Level};

/// Out of memory: the request and the state of the memory when it failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Bytes of the command's operands and results that needed a place.
    pub requested_bytes: u64,
    /// Bytes of all live tensors.
    pub live_bytes: u64,
    /// Bytes of all slabs.
    pub reserved_bytes: u64,
    /// Bytes of released slabs that the device still uses.
    pub retiring_bytes: u64,
    /// Bytes of the largest free range inside the slabs.
    pub largest_hole_bytes: u64,
    /// Bytes of pinned tensors, which can neither move nor be evicted.
    pub pinned_bytes: u64,
    /// Bytes of tensors that recorded operations saved for their backward.
    pub saved_bytes: u64,
    /// The budget of the device's bytes. `None` if there is no budget.
    pub budget_bytes: Option<u64>,
    /// The reclaim steps that ran, in this order, and their results.
    pub reclaim_steps: Vec<ReclaimStepUse>,
    /// The place in the source that made the tensor that found no room.
    pub made_at: String,
    /// The place in the source that made the tensor beside which it may not lie: the same call of
    /// [`with_bound`](crate::Gpu::with_bound) binds that one with another access.
    pub apart_from: Option<String>,
    /// The share that asked, if it was one.
    pub share: Option<Box<ShareUse>>,
    /// The largest holders of memory, largest first.
    pub holders: Vec<Holder>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: {} for the tensor made at {} found no room",
            Bytes(self.requested_bytes),
            self.made_at,
        )?;
        if let Some(other) = &self.apart_from {
            write!(
                f,
                " in another buffer than the tensor made at {other}, which the same call binds with \
                 another access"
            )?;
        }
        write!(
            f,
            ": {} live, {} reserved, {} retiring, largest hole {}",
            Bytes(self.live_bytes),
            Bytes(self.reserved_bytes),
            Bytes(self.retiring_bytes),
            Bytes(self.largest_hole_bytes),
        )?;
        if self.pinned_bytes > 0 {
            write!(f, ", {} pinned", Bytes(self.pinned_bytes))?;
        }
        if self.saved_bytes > 0 {
            write!(f, ", {} saved for backward", Bytes(self.saved_bytes))?;
        }
        if let Some(budget_bytes) = self.budget_bytes {
            write!(f, " within a budget of {}", Bytes(budget_bytes))?;
        }
        if let Some(share) = &self.share {
            write!(
                f,
                "; its share `{}` holds {} and is guaranteed {}",
                share.path,
                Bytes(share.bytes.now),
                Bytes(share.guaranteed_bytes),
            )?;
            if let Some(ceiling_bytes) = share.ceiling_bytes {
                write!(f, ", at most {}", Bytes(ceiling_bytes))?;
            }
        }
        let of_use = self.reclaim_steps.iter().filter(|one| one.freed_bytes > 0);
        for (index, one) in of_use.enumerate() {
            let lead = if index == 0 { "; freed by" } else { "," };
            write!(f, "{lead} {} {}", one.step.name(), Bytes(one.freed_bytes))?;
        }
        for (index, holder) in self.holders.iter().enumerate() {
            let lead = if index == 0 { "; most is held by" } else { "," };
            write!(f, "{lead} {} ({}", holder.tag, Bytes(holder.bytes))?;
            if holder.saved_bytes > 0 {
                write!(f, ", {} saved", Bytes(holder.saved_bytes))?;
            }
            f.write_str(")")?;
        }
        if self.apart_from.is_some() {
            return f.write_str(
                ". Drop tensors or pins, or raise the budget, and call `with_bound` again. Or bind \
                 both with `Access::Write`, and declare both `read_write` in the shader",
            );
        }
        if self.live_bytes == 0 && self.reserved_bytes == 0 && self.retiring_bytes == 0 {
            // The app has no tensor that it could drop.
            return f.write_str(
                ". This Gpu holds no memory: the request is more than the device has left. Use \
                 smaller tensors, or close other programs that use the device, and force again",
            );
        }
        if self.saved_bytes > self.live_bytes / 2 {
            f.write_str(
                ". Most live bytes wait for a backward: call `backward` earlier, compute under \
                 `no_grad`, or use `checkpoint`",
            )?;
        }
        f.write_str(". Drop tensors and force again: the work is still queued")
    }
}

/// A holder of memory: a place in the source, with a name if it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct Holder {
    /// The place in the source that made the tensors: `name (file:line)` or `file:line`.
    pub tag: String,
    /// The bytes of these tensors on the device.
    pub bytes: u64,
    /// The number of their storages.
    pub storages: u64,
    /// The part of `bytes` that is saved for backward, as
    /// [`MemoryStats::saved_bytes`](crate::stats::MemoryStats::saved_bytes) says.
    pub saved_bytes: u64,
}

/// What a share holds and may hold: see [`GpuMemory::share_use`](crate::GpuMemory::share_use).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct ShareUse {
    /// The names of the shares around it and its own, with `/` between them.
    pub path: String,
    /// Room for this many bytes whenever it wants them.
    pub guaranteed_bytes: u64,
    /// The most bytes that it may hold; `None` if only what surrounds it has a limit.
    pub ceiling_bytes: Option<u64>,
    /// Bytes of its tensors on the device, and of those in shares within it, in whole granules.
    pub bytes: Level,
    /// The part of the present bytes that is in no share within it.
    pub own_bytes: u64,
    /// Evictions of its own tensors, to make room for itself or for others.
    pub evictions: u64,
    /// Restores of its own tensors.
    pub restores: u64,
    /// Its commands run before those of lower priorities.
    pub priority: i8,
    /// Requests that found no room within its ceiling, or none that it was allowed to take.
    pub refusals: u64,
    /// Whether it was closed. Its tensors live on until the app drops them.
    pub is_closed: bool,
}

impl ShareUse {
    /// The bytes beyond the guarantee. Others may take them back at any time.
    pub fn borrowed_bytes(&self) -> u64 {
        self.bytes.now.saturating_sub(self.guaranteed_bytes)
    }

    /// The guaranteed bytes that it does not hold, so that others may borrow them.
    pub fn unused_bytes(&self) -> u64 {
        self.guaranteed_bytes.saturating_sub(self.bytes.now)
    }
}

/// Declares the steps, in order: documentation, variant, and the name that reports and files have.
macro_rules! steps {
    ($($(#[doc = $doc:literal])* $step:ident = $name:literal,)*) => {
        /// One step to make room. Reclaim executes the steps in the order of [`ReclaimStep::ALL`],
        /// which is the order below, until there is room.
        /// [`MemoryStats::reclaim_steps`](crate::stats::MemoryStats::reclaim_steps) and
        /// [`OutOfMemory::reclaim_steps`](crate::stats::OutOfMemory::reclaim_steps) count the
        /// results of each step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum ReclaimStep {
            $($(#[doc = $doc])* #[cfg_attr(feature = "serde", serde(rename = $name))] $step,)*
            /// A step of another version, in a file that it wrote. No step of this version.
            #[cfg_attr(feature = "serde", serde(rename = "other", other))]
            Other,
        }

        impl ReclaimStep {
            /// All steps, in the order in which reclaim executes them.
            pub const ALL: [ReclaimStep; [$($name),*].len()] = [$(ReclaimStep::$step),*];

            /// The name that reports print, in lower case.
            pub fn name(self) -> &'static str {
                match self {
                    $(ReclaimStep::$step => $name,)*
                    ReclaimStep::Other => "other",
                }
            }
        }
    };
}

steps! {
    /// Take note of submissions that the device has finished.
    Retire = "retire",
    /// Release empty staging and read-back buffers.
    Caches = "caches",
    /// Ask the app.
    Callbacks = "callbacks",
    /// Release empty slabs.
    Trim = "trim",
    /// Move blocks together.
    Compact = "compact",
    /// Wait for submissions that still use released slabs.
    Wait = "wait",
    /// Evict tensors to the host's memory. A tensor whose bytes are also elsewhere is dropped
    /// without a copy; it competes with the others as a victim.
    Host = "host",
    /// Evict tensors to the stores of the app, one after the other, by the same rules.
    Store = "store",
    /// Evict tensors to the disk, by the same rules.
    Disk = "disk",
    /// Drop tensors whose bytes are also elsewhere, if no tensor can be evicted.
    Drop = "drop",
    /// Evict even the operands of the next command, and restore them side by side.
    Repack = "repack",
}

impl ReclaimStep {
    /// Whether the step writes tensors to a tier, and drops those that need no copy.
    fn evicts(self) -> bool {
        matches!(
            self,
            ReclaimStep::Host | ReclaimStep::Store | ReclaimStep::Disk
        )
    }

    /// Whether the step moves bytes to or from the host. Before the first such step, reclaim lets
    /// the slabs grow past the soft budget.
    pub(crate) fn has_traffic(self) -> bool {
        self.evicts() || matches!(self, ReclaimStep::Drop | ReclaimStep::Repack)
    }
}

/// The results of one reclaim step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ReclaimStepUse {
    /// The step.
    pub step: ReclaimStep,
    /// How often the step ran. A run of `host`, `store` or `disk` that only dropped tensors is one
    /// of `drop`; one that also dropped some is one of both. A step runs once for each request, or
    /// lowered limit, that needs it, and again each time after it freed something. It does not run
    /// on a device that lacks it, or when it is of no use at that moment.
    #[cfg_attr(feature = "serde", serde(default))]
    pub tries: u64,
    /// How often a run freed something.
    #[cfg_attr(feature = "serde", serde(default))]
    pub gains: u64,
    /// The bytes that all runs freed.
    #[cfg_attr(feature = "serde", serde(default))]
    pub freed_bytes: u64,
}

impl ReclaimStepUse {
    /// What came after an earlier moment.
    pub(crate) fn since(&self, before: &ReclaimStepUse) -> Self {
        ReclaimStepUse {
            step: self.step,
            tries: self.tries.saturating_sub(before.tries),
            gains: self.gains.saturating_sub(before.gains),
            freed_bytes: self.freed_bytes.saturating_sub(before.freed_bytes),
        }
    }
}

/// Reads the results of the steps. Those of steps that this version does not know become one.
#[cfg(feature = "serde")]
pub(crate) fn read_uses<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Vec<ReclaimStepUse>, D::Error> {
    let mut uses: Vec<ReclaimStepUse> = serde::Deserialize::deserialize(from)?;
    uses.sort_by_key(|one| one.step == ReclaimStep::Other);
    uses.dedup_by(|next, one| {
        let are_others = [one.step, next.step] == [ReclaimStep::Other; 2];
        if are_others {
            one.tries = one.tries.saturating_add(next.tries);
            one.gains = one.gains.saturating_add(next.gains);
            one.freed_bytes = one.freed_bytes.saturating_add(next.freed_bytes);
        }
        are_others
    });
    Ok(uses)
}

/// What a run of a reclaim step freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freed {
    /// All bytes that became free.
    pub(crate) bytes: u64,
    /// The part of them that was dropped without a copy, because the bytes are elsewhere.
    pub(crate) dropped_bytes: u64,
}

impl Freed {
    /// The steps to which the freed bytes count. Where an evicting step only drops, nothing reaches
    /// its tier, so reports must not name the tier.
    pub(crate) fn by_step(self, step: ReclaimStep) -> impl Iterator<Item = (ReclaimStep, u64)> {
        let dropped_bytes = self.dropped_bytes.min(self.bytes);
        let is_dropped = dropped_bytes > 0 && step.evicts();
        let written_bytes = match is_dropped {
            true => self.bytes - dropped_bytes,
            false => self.bytes,
        };
        let written = (!is_dropped || written_bytes > 0).then_some((step, written_bytes));
        let dropped = is_dropped.then_some((ReclaimStep::Drop, dropped_bytes));
        written.into_iter().chain(dropped)
    }
}

/// The results of every reclaim step, in the order of [`ReclaimStep::ALL`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimCounts([ReclaimStepUse; ReclaimStep::ALL.len()]);

impl Default for ReclaimCounts {
    fn default() -> Self {
        ReclaimCounts(ReclaimStep::ALL.map(|step| ReclaimStepUse {
            step,
            tries: 0,
            gains: 0,
            freed_bytes: 0,
        }))
    }
}

impl ReclaimCounts {
    /// Counts a run of a step and what it freed.
    pub(crate) fn enter(&mut self, step: ReclaimStep, freed: Freed) {
        for (step, freed_bytes) in freed.by_step(step) {
            let of = &mut self.0[step as usize];
            of.tries += 1;
            of.gains += u64::from(freed_bytes > 0);
            of.freed_bytes += freed_bytes;
        }
    }

    /// The results of all steps.
    pub(crate) fn uses(&self) -> Vec<ReclaimStepUse> {
        self.0.to_vec()
    }

    /// The results of the steps that ran.
    pub(crate) fn tried(&self) -> Vec<ReclaimStepUse> {
        let tried = self.0.iter().filter(|one| one.tries > 0);
        tried.copied().collect()
    }
}
