//! What a dry run found.

use std::fmt;

use crate::engine::{DryCounts, MemoryStats};
use crate::memory::printable_end;
use crate::observe::Counted;
use crate::shortage::{Holder, ReclaimStepUse};
use crate::units::Bytes;

/// Lines for holders in the report.
const HOLDER_LINES: usize = 10;

/// Columns for the name of a holder in the report.
const TAG_COLUMNS: usize = 60;

/// The memory and the traffic that a program would have, as [`Gpu::dry_run`](crate::Gpu::dry_run)
/// finds it. All sizes are in bytes.
///
/// `Display` prints a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct DryRun {
    /// Most bytes of tensors on the device, those from before the program included.
    pub peak_live_bytes: u64,
    /// Most bytes of tensors beyond those that were on the device before the program. It is what a
    /// [`Job`](crate::jobs::Job) says of itself.
    pub peak_added_bytes: u64,
    /// Most bytes of slabs.
    pub peak_reserved_bytes: u64,
    /// Most bytes on the device: slabs, staging, and memory that submissions still use.
    pub peak_device_bytes: u64,
    /// Most bytes of evicted tensors in the host's memory.
    pub peak_host_bytes: u64,
    /// Most bytes of slabs of a [heap](crate::Options::host_heap) in the host's memory. With their
    /// free room, they count for [`Budget::host_bytes`](crate::Budget::host_bytes).
    pub peak_host_slab_bytes: u64,
    /// Most bytes in the stores of the app, each at its peak.
    pub peak_store_bytes: u64,
    /// Greatest length of the spill file.
    pub peak_disk_bytes: u64,
    /// Bytes of tensors on the device at the end, while the program's result is held.
    pub live_after_bytes: u64,
    /// Limit of the bytes on the device, if there is one.
    pub budget_bytes: Option<u64>,
    /// Who holds the live bytes at their peak, by the line that made the tensors, the most bytes
    /// first. A view counts for the tensor that it belongs to. Their `saved_bytes` are 0: which
    /// tensors are saved for backward at the peak is not known.
    pub holders: Vec<Holder>,
    /// Launches of kernels, after fusion.
    pub launches: u64,
    /// Bytes of uploads.
    pub uploaded_bytes: u64,
    /// How often tensors were evicted.
    pub evictions: u64,
    /// Bytes of tensors written to the host, to a store or to the disk.
    pub evicted_bytes: u64,
    /// Bytes of tensors that were dropped, because a source, a copy or a recipe has them.
    pub dropped_bytes: u64,
    /// How often tensors were restored.
    pub restores: u64,
    /// Bytes of restored tensors.
    pub restored_bytes: u64,
    /// Bytes of tensors that were moved to make room.
    pub moved_bytes: u64,
    /// Requests that found no memory.
    pub refusals: u64,
    /// What each reclaim step achieved, without those that did not run.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::shortage::read_uses")
    )]
    pub reclaim_steps: Vec<ReclaimStepUse>,
    /// Bytes of tensors that were dropped and computed again.
    pub recomputed_bytes: u64,
    /// Estimated time of the launches on the device, in nanoseconds, without those that compute
    /// tensors again. The estimate is a guess for the kind of device, scaled by the times of the
    /// submissions that this device has run.
    pub compute_ns: u64,
    /// Estimated time in which tensors are computed again, in nanoseconds.
    pub recompute_ns: u64,
    /// Estimated time of evictions and restores, in nanoseconds. The speeds are those that this
    /// device's restores had so far. Evictions are taken to be as fast.
    pub transfer_ns: u64,
}

impl DryRun {
    pub(crate) fn new(counts: DryCounts) -> Self {
        let (stats, before, account) = (counts.stats, counts.before, counts.account);
        let since = |total: fn(&MemoryStats) -> u64| total(&stats).saturating_sub(total(&before));
        let both = stats.reclaim_steps.iter().zip(&before.reclaim_steps);
        let reclaim_steps = both.map(|(now, before)| now.since(before));
        let reclaim_steps = reclaim_steps.filter(|one| one.tries > 0).collect();
        DryRun {
            peak_live_bytes: stats.live_bytes.peak,
            peak_added_bytes: (stats.live_bytes.peak).saturating_sub(before.live_bytes.now),
            peak_reserved_bytes: stats.reserved_bytes.peak,
            peak_device_bytes: stats.device_bytes.peak,
            peak_host_bytes: stats.host_bytes.peak,
            peak_host_slab_bytes: stats.host_slab_bytes.peak,
            peak_store_bytes: stats.stores.iter().map(|store| store.bytes.peak).sum(),
            peak_disk_bytes: stats.disk_bytes.peak,
            live_after_bytes: stats.live_bytes.now,
            budget_bytes: stats.budget_bytes,
            launches: account.launches,
            uploaded_bytes: account.uploaded_bytes,
            evictions: since(|stats| stats.evictions),
            evicted_bytes: since(|stats| stats.evicted_bytes),
            dropped_bytes: since(|stats| stats.dropped_bytes),
            restores: since(|stats| stats.restores),
            restored_bytes: since(|stats| stats.restored_bytes),
            moved_bytes: since(|stats| stats.moved_bytes),
            refusals: since(|stats| stats.refusals),
            reclaim_steps,
            recomputed_bytes: since(|stats| stats.recomputed_bytes),
            compute_ns: account.compute_ns as u64,
            recompute_ns: account.recompute_ns as u64,
            transfer_ns: account.transfer_ns,
            holders: counts.holders,
        }
    }

    /// The most bytes on the device and everywhere else, perhaps at different moments.
    pub(crate) fn held_bytes(&self) -> u64 {
        let elsewhere = [
            self.peak_host_bytes,
            self.peak_store_bytes,
            self.peak_disk_bytes,
        ];
        elsewhere.iter().fold(self.peak_device_bytes, |sum, bytes| {
            sum.saturating_add(*bytes)
        })
    }

    /// Whether the program runs within the budget, without a tensor that has to leave the device.
    /// Evictions that the program asks for do not count.
    pub fn fits(&self) -> bool {
        let mut steps = self.reclaim_steps.iter();
        self.refusals == 0 && steps.all(|one| one.freed_bytes == 0 || !one.step.has_traffic())
    }

    /// The program's time within the budget, as a multiple of its time without one. It is 1 plus
    /// transfers and what is computed again ÷ launches. Devices that transfer while they compute
    /// are faster than this.
    pub fn slowdown(&self) -> f64 {
        let more_ns = self.transfer_ns.saturating_add(self.recompute_ns);
        1.0 + more_ns as f64 / self.compute_ns.max(1) as f64
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "dry run: {} launched", Counted(self.launches, "kernel"))?;
        let mut row = |name: &str, bytes: u64, rest: String| {
            writeln!(f, "  {name:<9}{:>10}  {rest}", Bytes(bytes))
        };
        let after = format!("at the peak; {} at the end", Bytes(self.live_after_bytes));
        row("live", self.peak_live_bytes, after)?;
        row("reserved", self.peak_reserved_bytes, "in slabs".into())?;
        let budget = match self.budget_bytes {
            Some(budget_bytes) => format!("of a budget of {}", Bytes(budget_bytes)),
            None => "without a budget".into(),
        };
        row("device", self.peak_device_bytes, budget)?;
        row("uploaded", self.uploaded_bytes, "in all".into())?;
        if self.evictions > 0 || self.restores > 0 {
            let (host, disk) = (Bytes(self.peak_host_bytes), Bytes(self.peak_disk_bytes));
            let times = Counted(self.evictions, "time");
            let stores = match self.peak_store_bytes {
                0 => String::new(),
                bytes => format!("{} in stores, ", Bytes(bytes)),
            };
            let evicted =
                format!("{times}; {host} in the host's memory, {stores}{disk} on disk at most");
            row("evicted", self.evicted_bytes, evicted)?;
            if self.peak_host_slab_bytes > 0 {
                let what = "of slabs in the host's memory at most".into();
                row("heap", self.peak_host_slab_bytes, what)?;
            }
            let times = Counted(self.restores, "time");
            let slowdown = self.slowdown();
            let back = format!("{times}; estimated to take {slowdown:.2} × the time");
            row("restored", self.restored_bytes, back)?;
            if self.dropped_bytes > 0 {
                let why = "without a write: a source or a copy has them".into();
                row("dropped", self.dropped_bytes, why)?;
            }
            if self.recomputed_bytes > 0 {
                let why = "again, because that takes less time".into();
                row("computed", self.recomputed_bytes, why)?;
            }
            let steps = self.reclaim_steps.iter().filter(|one| one.freed_bytes > 0);
            for one in steps {
                let freed = format!("freed by `{}` in {}", one.step.name(), one.gains);
                row("", one.freed_bytes, freed)?;
            }
        }
        if self.refusals > 0 {
            writeln!(f, "  {} found no room", Counted(self.refusals, "request"))?;
        }
        writeln!(f, "held at the peak")?;
        for holder in self.holders.iter().take(HOLDER_LINES) {
            writeln!(
                f,
                "  {:>10}  {} by {}",
                Bytes(holder.bytes),
                Counted(holder.storages, "tensor"),
                printable_end(&holder.tag, TAG_COLUMNS),
            )?;
        }
        let rest = self.holders.iter().skip(HOLDER_LINES);
        // The fields may hold any values.
        let rest_bytes = rest.fold(0, |sum: u64, holder| sum.saturating_add(holder.bytes));
        match rest_bytes {
            0 => Ok(()),
            _ => writeln!(f, "  {:>10}  by others", Bytes(rest_bytes)),
        }
    }
}

/// The largest batch that fits, as [`Gpu::fit_batch`](crate::Gpu::fit_batch) finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Fit {
    /// The batch.
    pub batch: usize,
    /// The dry run of this batch.
    pub report: DryRun,
}
