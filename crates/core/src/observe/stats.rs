//! The memory statistics: a plain value, and the report that it prints.

use std::cmp::Reverse;
use std::fmt;

use crate::engine::{Engine, EngineReport};
use crate::memory::{ClassUse, SlabUse, TagUse, printable, printable_end};
use crate::shortage::{Holder, ReclaimStepUse, ShareUse};
use crate::transfer::StoreUse;
use crate::units::{Bytes, Level};

/// Most holders in the value; the report prints fewer.
pub(super) const HOLDERS: usize = 32;

/// Lines for slabs and for holders in the report.
const SLAB_LINES: usize = 10;
const SHARE_LINES: usize = 6;
const HOLDER_LINES: usize = 10;

/// The report is at most this wide.
const MOST_COLUMNS: usize = 100;

/// Cells in the bar of a slab.
const BAR_CELLS: usize = 24;

/// Memory statistics. All sizes are in bytes.
///
/// `Display` prints a report of at most 40 lines of 100 columns.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// The adapter's name.
    pub adapter: String,
    /// Its graphics API.
    pub backend: String,
    /// See [`Caps::missing_features`](crate::Caps::missing_features).
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub missing_features: Vec<String>,
    /// Requested bytes of the tensors on the device, each padded to 16 bytes.
    pub requested_bytes: Level,
    /// The bytes of their blocks: requested bytes rounded up to granules.
    pub live_bytes: Level,
    /// Storages that have a block. Views share one.
    pub live_storages: Level,
    /// The part of the requested bytes that is saved for backward now. Recorded operations need
    /// these bytes until their backward has run, or until the last tensor that depends on them is
    /// dropped. Inputs and parameters that an operation saved are among them. The report counts
    /// them when it is made.
    pub saved_bytes: u64,
    /// Bytes of tensors that queued work will place. All requests count here first, so `up` is the
    /// sum of all requests. The peak counts only the moments at which work was queued.
    pub pending_bytes: Level,
    /// Free bytes in slabs.
    pub cached_bytes: Level,
    /// Bytes of all slabs. The peak is that of slabs and retiring slabs together.
    pub reserved_bytes: Level,
    /// Bytes of released slabs and staging that submissions still use.
    pub retiring_bytes: Level,
    /// Bytes of tensors in buffers of the app. No sum above includes them.
    pub imported_bytes: Level,
    /// Staging for uploads.
    pub upload_bytes: Level,
    /// Staging for restored tensors.
    pub restore_staging_bytes: Level,
    /// Read-back buffers.
    pub readback_bytes: Level,
    /// Bytes that the driver holds for the whole device, if it reports them. The library asks when
    /// it creates a slab and for each report, so the value may have been higher in between.
    pub driver_bytes: Option<Level>,
    /// The largest hole of all slabs.
    pub largest_hole_bytes: u64,
    /// 1 − largest hole ÷ all holes. 0 when all free bytes are in one hole.
    pub fragmentation: f64,
    /// Evictions of tensors to the host, to a store, to the disk or to their source.
    pub evictions: u64,
    /// Restores of tensors.
    pub restores: u64,
    /// Buffers created for any purpose: slabs, staging, read-back, parameters. A steady loop
    /// creates none.
    pub buffers_created: u64,
    /// Slabs created.
    pub slabs_created: u64,
    /// Slabs released.
    pub slabs_released: u64,
    /// Results that took over the place of an operand that nobody else held. They needed no memory.
    pub donated: u64,
    /// Commands that ran.
    pub commands: u64,
    /// Commands in the queue.
    pub queued: u64,
    /// Submissions.
    pub submissions: u64,
    /// Requests that found no memory.
    pub refusals: u64,
    /// Waits of uploads and restores because all staging was in use.
    pub staging_waits: u64,
    /// Limit of the staging for uploads: the library's own limit, or what the budget leaves.
    pub staging_limit_bytes: u64,
    /// Limit of the bytes on the device, if there is one: the app's, or a smaller one of the
    /// operating system.
    pub budget_bytes: Option<u64>,
    /// All bytes on the device: slabs, staging and retiring memory.
    pub device_bytes: Level,
    /// Copies of tensors in the host's memory, both of evicted tensors and of restored ones.
    pub host_bytes: Level,
    /// Every store of the app, in order: see [`stores`](crate::stores).
    #[cfg_attr(feature = "serde", serde(default))]
    pub stores: Vec<StoreUse>,
    /// Length of the spill file.
    pub disk_bytes: Level,
    /// Part of the spill file that tensors use, with headers and rounding to pages.
    pub spilled_bytes: Level,
    /// Total bytes of tensors written to the host, to a store or to the disk.
    pub evicted_bytes: u64,
    /// Total bytes of tensors that were dropped without a write, because their source, another copy
    /// or a recipe has them. `evicted_bytes` does not count these.
    pub dropped_bytes: u64,
    /// The part of the dropped bytes that only their source has, such as the file of a model.
    #[cfg_attr(feature = "serde", serde(default))]
    pub dropped_to_source_bytes: u64,
    /// Total bytes of restored tensors, and of rows that were read from tensors off the device.
    pub restored_bytes: u64,
    /// Total bytes of tensors that were computed again, because that costs less than to keep them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub recomputed_bytes: u64,
    /// The time of all kernels so far, in nanoseconds, as the engine predicts it. By this it
    /// decides whether to compute a tensor again. The measured times of submissions scale it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kernels_ns: u64,
    /// The longest time of a submission, in nanoseconds, among those that somebody waited for. Work
    /// of a high priority may wait this long for work of a lower one. 0 in a browser.
    #[cfg_attr(feature = "serde", serde(default))]
    pub longest_submission_ns: u64,
    /// The longest time, in nanoseconds, for which work of a high priority may have waited for a
    /// part of what prepares a command of a lower one. Parts are the eviction or the restore of
    /// 8 MiB, some moves of a compaction, and the compilation of a kernel. All evictions because
    /// the budget was lowered count as one part. 0 in a browser and on a simulated device.
    #[cfg_attr(feature = "serde", serde(default))]
    pub longest_hold_ns: u64,
    /// Blocks that were cleared because they passed, or will pass, from one share to another.
    #[cfg_attr(feature = "serde", serde(default))]
    pub hand_overs: u64,
    /// Total bytes of those blocks.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cleared_bytes: u64,
    /// Total bytes of tensors that were moved to make room.
    pub moved_bytes: u64,
    /// How often tensors were moved to make room.
    pub compactions: u64,
    /// What each reclaim step achieved so far, in the order in which the steps run.
    pub reclaim_steps: Vec<ReclaimStepUse>,
    /// Compiled pipelines.
    pub pipelines: u64,
    /// Bind groups in the cache.
    pub bind_groups: u64,
    /// Use of the slabs of each class.
    pub classes: Vec<ClassUse>,
    /// All makers of storages, past and present, the one with most bytes first.
    pub tags: Vec<TagUse>,
    /// Every share of the memory, by path: see [`Gpu::share`](crate::Gpu::share).
    #[cfg_attr(feature = "serde", serde(default))]
    pub shares: Vec<ShareUse>,
    /// Every slab.
    pub slabs: Vec<SlabUse>,
    /// The holders of most bytes, at most 32, greatest first.
    pub holders: Vec<Holder>,
}

impl MemoryStats {
    pub(crate) fn of(engine: &Engine) -> Self {
        Self::from_report(engine, engine.report(HOLDERS))
    }

    pub(super) fn from_report(engine: &Engine, report: EngineReport) -> Self {
        let (alloc, sums) = (report.memory.alloc, report.memory.sums);
        let [upload_bytes, restore_staging_bytes, readback_bytes] = report.levels.staging_bytes;
        let caps = engine.caps();
        MemoryStats {
            adapter: caps.name.clone(),
            backend: caps.backend.clone(),
            missing_features: caps.missing_features.clone(),
            requested_bytes: sums.requested_bytes,
            live_bytes: sums.live_bytes,
            live_storages: sums.storages,
            saved_bytes: report.memory.saved_bytes,
            pending_bytes: report.pending_bytes,
            cached_bytes: sums.cached_bytes,
            reserved_bytes: Level {
                peak: report.levels.slab_bytes.peak,
                ..sums.reserved_bytes
            },
            retiring_bytes: report.levels.retiring_bytes,
            imported_bytes: sums.imported_bytes,
            upload_bytes,
            restore_staging_bytes,
            readback_bytes,
            driver_bytes: engine.driver().driver_bytes(),
            largest_hole_bytes: alloc.largest_hole_bytes,
            fragmentation: alloc.fragmentation,
            evictions: sums.evictions,
            restores: sums.restores,
            buffers_created: report.buffers_created,
            slabs_created: report.slabs_created,
            slabs_released: alloc.slabs_released,
            donated: report.donated,
            commands: report.commands,
            queued: report.queued,
            submissions: report.submissions,
            refusals: report.refusals,
            staging_waits: report.staging_waits,
            staging_limit_bytes: report.staging_limit_bytes,
            budget_bytes: report.budget_bytes,
            device_bytes: report.levels.reserved_bytes,
            host_bytes: report.host_bytes,
            stores: report.stores,
            disk_bytes: report.disk_bytes,
            spilled_bytes: report.spilled_bytes,
            evicted_bytes: report.evicted_bytes,
            dropped_bytes: report.dropped_bytes,
            dropped_to_source_bytes: report.dropped_to_source_bytes,
            restored_bytes: report.restored_bytes,
            recomputed_bytes: report.recomputed_bytes,
            kernels_ns: report.kernels_ns,
            longest_submission_ns: report.longest_submission_ns,
            longest_hold_ns: report.longest_hold_ns,
            hand_overs: report.hand_overs,
            cleared_bytes: report.cleared_bytes,
            moved_bytes: alloc.moved_bytes,
            compactions: report.compactions,
            reclaim_steps: report.reclaim_counts.uses(),
            pipelines: report.pipelines,
            bind_groups: report.bind_groups,
            classes: report.memory.classes.to_vec(),
            tags: report.memory.tags,
            shares: report.memory.shares,
            slabs: report.memory.slabs,
            holders: report.memory.holders,
        }
    }
}

/// Prints `1 slab`, `2 slabs`.
#[derive(Clone, Copy, Debug)]
pub struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted(count, what) = self;
        let plural = if *count == 1 { "" } else { "s" };
        write!(f, "{count} {what}{plural}")
    }
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (adapter, backend) = (printable(&self.adapter, 70), printable(&self.backend, 10));
        writeln!(f, "memory on {adapter} ({backend})")?;
        self.print_rows(f)?;
        writeln!(
            f,
            "  {} in {}, {} queued, {} in an operand's place, {}",
            Counted(self.commands, "command"),
            Counted(self.submissions, "submission"),
            self.queued,
            Counted(self.donated, "result"),
            Counted(self.refusals, "refusal"),
        )?;
        self.print_reclaim(f)?;
        self.print_shares(f)?;
        self.print_slabs(f)?;
        self.print_holders(f)
    }
}

/// Prints a count of any size in few columns, rounded down.
struct Short(u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            count @ 0..1_000_000 => write!(f, "{count}"),
            more => {
                let exponent = more.ilog10();
                let tenths = more / 10_u64.pow(exponent - 1);
                write!(f, "{}.{}e{exponent}", tenths / 10, tenths % 10)
            }
        }
    }
}

/// Prints a row of the report: name, bytes, remark.
fn row(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    bytes: u64,
    remark: fmt::Arguments<'_>,
) -> fmt::Result {
    writeln!(f, "  {name:<9}{:>10}  {remark}", Bytes(bytes))
}

impl MemoryStats {
    /// The sums of the report.
    fn print_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live_bytes = self.live_bytes;
        let remark = format_args!(
            "peak {}, {}, {} of it rounding",
            Bytes(live_bytes.peak),
            Counted(self.live_storages.now, "storage"),
            Bytes(live_bytes.now.saturating_sub(self.requested_bytes.now)),
        );
        row(f, "live", live_bytes.now, remark)?;
        if self.saved_bytes > 0 {
            let remark = "of the live bytes: recorded operations need them for their backward";
            row(f, "saved", self.saved_bytes, format_args!("{remark}"))?;
        }
        let remark = format_args!(
            "free in slabs, largest hole {}, fragmentation {:.0} %",
            Bytes(self.largest_hole_bytes),
            100.0 * self.fragmentation,
        );
        row(f, "cached", self.cached_bytes.now, remark)?;
        let remark = format_args!(
            "peak {}, {} ({} created, {} released)",
            Bytes(self.reserved_bytes.peak),
            Counted(self.slabs.len() as u64, "slab"),
            self.slabs_created,
            self.slabs_released,
        );
        row(f, "reserved", self.reserved_bytes.now, remark)?;
        let remark = format_args!("released, still in use by the device");
        row(f, "retiring", self.retiring_bytes.now, remark)?;
        let (up_bytes, down_bytes) = (self.upload_bytes.now, self.readback_bytes.now);
        let up_bytes = up_bytes.saturating_add(self.restore_staging_bytes.now);
        let remark = format_args!("{} up, {} down", Bytes(up_bytes), Bytes(down_bytes));
        row(f, "staging", up_bytes.saturating_add(down_bytes), remark)?;
        if self.pending_bytes.now > 0 {
            let peak = Bytes(self.pending_bytes.peak);
            let remark = format_args!("asked for by queued work, peak {peak}");
            row(f, "pending", self.pending_bytes.now, remark)?;
        }
        if self.imported_bytes.now > 0 {
            let remark = format_args!("in buffers of the app");
            row(f, "imported", self.imported_bytes.now, remark)?;
        }
        if let Some(budget_bytes) = self.budget_bytes {
            let (budget, peak) = (Bytes(budget_bytes), Bytes(self.device_bytes.peak));
            let remark = format_args!("of a budget of {budget}, peak {peak}");
            row(f, "device", self.device_bytes.now, remark)?;
        }
        self.print_evicted(f)?;
        if self.moved_bytes > 0 {
            let times = Counted(self.compactions, "time");
            row(
                f,
                "moved",
                self.moved_bytes,
                format_args!("{times}, to make room"),
            )?;
        }
        if let Some(bytes) = self.driver_bytes {
            let peak = Bytes(bytes.peak);
            let remark = format_args!("peak {peak}, what the driver holds for this device");
            row(f, "driver", bytes.now, remark)?;
        }
        Ok(())
    }

    /// Bytes of tensors in all stores of the app.
    pub fn store_bytes(&self) -> u64 {
        let bytes = self.stores.iter().map(|store| store.bytes.now);
        bytes.fold(0, u64::saturating_add)
    }

    /// The rows about tensors that left the device.
    fn print_evicted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if [self.evicted_bytes, self.dropped_bytes, self.restored_bytes] != [0; 3] {
            let (host, disk) = (Bytes(self.host_bytes.now), Bytes(self.disk_bytes.now));
            let (peak, used) = (Bytes(self.host_bytes.peak), Bytes(self.spilled_bytes.now));
            let out_bytes = self.host_bytes.now.saturating_add(self.spilled_bytes.now);
            let out_bytes = out_bytes.saturating_add(self.store_bytes());
            let remark =
                format_args!("{host} in the host's memory, peak {peak}; {used} of {disk} on disk");
            row(f, "evicted", out_bytes, remark)?;
            for store in self.stores.iter().filter(|store| store.was_used()) {
                let remark = store.remark();
                row(f, "in store", store.bytes.now, format_args!("{remark}"))?;
            }
            let written = Bytes(self.evicted_bytes);
            let remark = format_args!("so far; {written} were written to these places");
            row(f, "restored", self.restored_bytes, remark)?;
            self.print_dropped(f)?;
        }
        if self.recomputed_bytes > 0 {
            let remark = format_args!("so far, because that costs less than to keep them");
            row(f, "recomputed", self.recomputed_bytes, remark)?;
        }
        Ok(())
    }

    /// The row about tensors that left without a write.
    fn print_dropped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = Bytes(self.dropped_to_source_bytes);
        match (self.dropped_bytes, self.dropped_to_source_bytes) {
            (0, _) => Ok(()),
            (dropped_bytes, 0) => {
                let remark = format_args!("so far, without a write: other copies or recipes stay");
                row(f, "dropped", dropped_bytes, remark)
            }
            (dropped_bytes, source_bytes) if source_bytes >= dropped_bytes => {
                let remark = format_args!("so far, without a write: the source has them");
                row(f, "dropped", dropped_bytes, remark)
            }
            (dropped_bytes, _) => {
                let remark = format_args!("so far, without a write: the source has {source}");
                row(f, "dropped", dropped_bytes, remark)
            }
        }
    }

    /// The reclaim steps that ran: how many tries freed something, of all tries.
    fn print_reclaim(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried = self.reclaim_steps.iter().filter(|one| one.tries > 0);
        let words = tried.map(|one| {
            let (gains, tries) = (Short(one.gains), Short(one.tries));
            format!("{} {gains}/{tries}", one.step.name())
        });
        let words: Vec<String> = words.collect();
        let lead = "  reclaim steps that freed something, of how many tries: ";
        let mut line = String::new();
        for (index, word) in words.iter().enumerate() {
            let fits = line.len() + 2 + word.len() < MOST_COLUMNS;
            match (index, fits) {
                (0, _) => line = format!("{lead}{word}"),
                (_, true) => line += &format!(", {word}"),
                (_, false) => {
                    writeln!(f, "{line},")?;
                    line = format!("    {word}");
                }
            }
        }
        match line.is_empty() {
            true => Ok(()),
            false => writeln!(f, "{line}"),
        }
    }

    fn print_shares(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shares.is_empty() {
            return Ok(());
        }
        writeln!(f, "shares")?;
        for share in self.shares.iter().take(SHARE_LINES) {
            let (path, bytes) = (printable_end(&share.path, 24), Bytes(share.bytes.now));
            let guaranteed = Bytes(share.guaranteed_bytes);
            write!(f, "  {bytes:>10}  {path}: guarantee {guaranteed}, ")?;
            match share.ceiling_bytes {
                Some(bytes) => write!(f, "ceiling {}", Bytes(bytes))?,
                None => f.write_str("no ceiling")?,
            }
            let state = if share.is_closed { ", closed" } else { "" };
            writeln!(
                f,
                ", {} evicted, {} restored{state}",
                Short(share.evictions),
                Short(share.restores)
            )?;
        }
        match self.shares.len().saturating_sub(SHARE_LINES) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }

    fn print_slabs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.slabs.is_empty() {
            return Ok(());
        }
        writeln!(f, "slabs")?;
        let mut slabs: Vec<&SlabUse> = self.slabs.iter().collect();
        slabs.sort_by_key(|slab| Reverse((slab.size_bytes, slab.live_bytes)));
        for slab in slabs.iter().take(SLAB_LINES) {
            // The fields are public, so they may hold any values. The report prints them all the
            // same.
            let size_bytes = u128::from(slab.size_bytes.max(1));
            let live_bytes = u128::from(slab.live_bytes).min(size_bytes);
            let filled = (live_bytes * BAR_CELLS as u128).div_ceil(size_bytes) as usize;
            let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR_CELLS - filled));
            writeln!(
                f,
                "  {:>10} [{bar}] {:>3} %  {}, largest hole {}",
                Bytes(slab.size_bytes),
                (live_bytes * 100 / size_bytes) as u64,
                Counted(u64::from(slab.blocks), "block"),
                Bytes(slab.largest_hole_bytes),
            )?;
        }
        let rest = &slabs[slabs.len().min(SLAB_LINES)..];
        if !rest.is_empty() {
            let (size, live) = rest.iter().fold((0, 0), |(size, live), slab| {
                (
                    u64::saturating_add(size, slab.size_bytes),
                    u64::saturating_add(live, slab.live_bytes),
                )
            });
            let (size, live) = (Bytes(size), Bytes(live));
            writeln!(f, "  and {} more: {live} live of {size}", rest.len())?;
        }
        Ok(())
    }

    fn print_holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() {
            return Ok(());
        }
        writeln!(f, "greatest holders")?;
        // The sum of saved bytes has a line, too.
        let most = HOLDER_LINES - usize::from(self.saved_bytes > 0);
        for holder in self.holders.iter().take(most) {
            let columns = if holder.saved_bytes > 0 { 54 } else { 72 };
            let tag = printable_end(&holder.tag, columns);
            write!(f, "  {:>10}  {tag}", Bytes(holder.bytes))?;
            if holder.storages != 1 {
                write!(f, "  x{}", holder.storages)?;
            }
            if holder.saved_bytes > 0 {
                write!(f, "  {} saved", Bytes(holder.saved_bytes))?;
            }
            writeln!(f)?;
        }
        if self.holders.len() > most {
            writeln!(f, "  and {} more", self.holders.len() - most)?;
        }
        Ok(())
    }
}
