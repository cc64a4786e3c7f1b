//! What is told of a shortage: who holds memory, the reclaim steps by name and how often each was
//! of use (`engine/reclaim.rs` climbs them), and the error of a request that found no room.

use std::fmt;

use crate::units::Bytes;

/// Why there is no room now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Bytes of the command's operands and results that had to be placed.
    pub requested_bytes: u64,
    /// Bytes of all live tensors.
    pub live_bytes: u64,
    /// Bytes of all slabs.
    pub reserved_bytes: u64,
    /// Bytes of slabs given back that the device still uses.
    pub retiring_bytes: u64,
    /// The largest free range inside the slabs.
    pub largest_hole_bytes: u64,
    /// Bytes of tensors that are pinned, and so can neither move nor leave.
    pub pinned_bytes: u64,
    /// What the device's bytes are limited to, if they are.
    pub budget_bytes: Option<u64>,
    /// What was tried to make room, in this order, and what came of it.
    pub reclaim_steps: Vec<ReclaimStepUse>,
    /// Where the tensor that found no room was made.
    pub made_at: String,
    /// Those who hold most, greatest first.
    pub holders: Vec<Holder>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: {} for the tensor made at {} found no room: {} live, {} reserved, \
             {} retiring, largest hole {}",
            Bytes(self.requested_bytes),
            self.made_at,
            Bytes(self.live_bytes),
            Bytes(self.reserved_bytes),
            Bytes(self.retiring_bytes),
            Bytes(self.largest_hole_bytes),
        )?;
        if self.pinned_bytes > 0 {
            write!(f, ", {} pinned", Bytes(self.pinned_bytes))?;
        }
        if let Some(budget_bytes) = self.budget_bytes {
            write!(f, " within a budget of {}", Bytes(budget_bytes))?;
        }
        let of_use = self.reclaim_steps.iter().filter(|one| one.freed_bytes > 0);
        for (index, one) in of_use.enumerate() {
            let lead = if index == 0 { "; freed by" } else { "," };
            write!(f, "{lead} {} {}", one.step.name(), Bytes(one.freed_bytes))?;
        }
        for (index, holder) in self.holders.iter().enumerate() {
            let lead = if index == 0 { "; most is held by" } else { "," };
            write!(f, "{lead} {} ({})", holder.tag, Bytes(holder.bytes))?;
        }
        if self.live_bytes == 0 && self.reserved_bytes == 0 && self.retiring_bytes == 0 {
            // There is nothing of ours that could be dropped.
            return f.write_str(
                ". Nothing is held here: it is more than the device has left for this program. Use \
                 smaller tensors, or end what else uses the device, and force again",
            );
        }
        f.write_str(". Drop tensors and force again: the work is still queued")
    }
}

/// Who holds memory: a place in the source, with its name if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Holder {
    /// Where the tensors were made: `name (file:line)` or `file:line`.
    pub tag: String,
    /// Their bytes on the device.
    pub bytes: u64,
    /// How many storages that is.
    pub storages: u64,
}

/// One thing to try when there is no room. All are tried in the order of [`ReclaimStep::ALL`],
/// which is the one below, until there is room;
/// [`MemoryStats::reclaim_steps`](crate::MemoryStats::reclaim_steps) and
/// [`OutOfMemory::reclaim_steps`](crate::OutOfMemory::reclaim_steps) tell what came of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum ReclaimStep {
    /// Noticing what the device has finished.
    Retire,
    /// Giving back staging and read-back buffers that hold nothing.
    Caches,
    /// Asking the app.
    Callbacks,
    /// Giving back slabs that hold nothing.
    Trim,
    /// Moving blocks together.
    Compact,
    /// Waiting for submissions that still use slabs given back.
    Wait,
    /// Evicting tensors to the host's memory. Those whose bytes are elsewhere too are only given
    /// up, and chosen together with the others.
    Host,
    /// Evicting tensors to disk, in the same way.
    Disk,
    /// Giving up tensors whose bytes are elsewhere too, where nothing can be evicted.
    Drop,
    /// Evicting even the tensors that the work at hand needs, to restore them side by side.
    Repack,
}

impl ReclaimStep {
    /// All of them, in the order in which they are run.
    pub const ALL: [ReclaimStep; 10] = [
        ReclaimStep::Retire,
        ReclaimStep::Caches,
        ReclaimStep::Callbacks,
        ReclaimStep::Trim,
        ReclaimStep::Compact,
        ReclaimStep::Wait,
        ReclaimStep::Host,
        ReclaimStep::Disk,
        ReclaimStep::Drop,
        ReclaimStep::Repack,
    ];

    /// In lower case, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            ReclaimStep::Retire => "retire",
            ReclaimStep::Caches => "caches",
            ReclaimStep::Callbacks => "callbacks",
            ReclaimStep::Trim => "trim",
            ReclaimStep::Compact => "compact",
            ReclaimStep::Wait => "wait",
            ReclaimStep::Drop => "drop",
            ReclaimStep::Host => "host",
            ReclaimStep::Disk => "disk",
            ReclaimStep::Repack => "repack",
        }
    }

    /// Does it cost traffic with the host? Before those the soft budget is passed.
    pub(crate) fn has_traffic(self) -> bool {
        matches!(
            self,
            ReclaimStep::Drop | ReclaimStep::Host | ReclaimStep::Disk | ReclaimStep::Repack
        )
    }
}

/// What came of one reclaim step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ReclaimStepUse {
    /// Which.
    pub step: ReclaimStep,
    /// How often it was run: once for each request, or limit that was lowered, that came so far,
    /// and again after each time that it freed something. One that a device has not, or that is no
    /// use at that moment, is not climbed.
    pub tries: u64,
    /// How often that freed something. All others were in vain.
    pub gains: u64,
    /// The bytes that it freed.
    pub freed_bytes: u64,
}

/// What came of every reclaim step, in the order of [`ReclaimStep::ALL`].
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
    /// A reclaim step was run, and freed so much.
    pub(crate) fn enter(&mut self, step: ReclaimStep, freed_bytes: u64) {
        let of = &mut self.0[step as usize];
        of.tries += 1;
        of.gains += u64::from(freed_bytes > 0);
        of.freed_bytes += freed_bytes;
    }

    /// All reclaim steps.
    pub(crate) fn uses(&self) -> Vec<ReclaimStepUse> {
        self.0.to_vec()
    }

    /// Those that were run.
    pub(crate) fn tried(&self) -> Vec<ReclaimStepUse> {
        let tried = self.0.iter().filter(|one| one.tries > 0);
        tried.copied().collect()
    }
}
