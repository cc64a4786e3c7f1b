//! The report that the memory statistics print.

use std::cmp::Reverse;
use std::fmt;

use crate::engine::MemoryStats;
use crate::memory::{SlabUse, printable, printable_end};
use crate::transfer::StoreUse;
use crate::units::Bytes;

/// Lines for slabs and for holders in the report.
const SLAB_LINES: usize = 10;
const SHARE_LINES: usize = 6;
const HOLDER_LINES: usize = 10;

/// The report is at most this wide.
const MOST_COLUMNS: usize = 100;

/// Cells in the bar of a slab.
const BAR_CELLS: usize = 24;

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
        let waits = self.waits();
        if waits.total().times > 0 {
            writeln!(f, "  waited for memory {waits}")?;
        }
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
        let moved_bytes = self.moved_bytes.saturating_add(self.host_moved_bytes);
        if moved_bytes > 0 {
            let remark = format_args!("{}, to make room", Counted(self.compactions, "time"));
            row(f, "moved", moved_bytes, remark)?;
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
            let was_used = |store: &&StoreUse| store.bytes.up > 0 || store.failures > 0;
            for store in self.stores.iter().filter(was_used) {
                let remark = store.remark();
                row(f, "in store", store.bytes.now, format_args!("{remark}"))?;
            }
            self.print_heap(f)?;
            let written = Bytes(self.evicted_bytes);
            let ahead = match self.read_ahead_bytes {
                0 => String::new(),
                bytes => format!("; {} read ahead", Bytes(bytes)),
            };
            let vain = match self.wasted_read_bytes {
                0 => String::new(),
                bytes => format!(", {} in vain", Bytes(bytes)),
            };
            let remark =
                format_args!("so far; {written} were written to these places{ahead}{vain}");
            row(f, "restored", self.restored_bytes, remark)?;
            self.print_dropped(f)?;
        }
        if self.recomputed_bytes > 0 {
            let remark = format_args!("so far, because that costs less than to keep them");
            row(f, "recomputed", self.recomputed_bytes, remark)?;
        }
        Ok(())
    }

    /// The row about the heap in the host's memory.
    fn print_heap(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host_slabs.is_empty() {
            return Ok(());
        }
        let slabs = Counted(self.host_slabs.len() as u64, "slab");
        let free = Bytes(self.host_free_bytes);
        let hole = Bytes(self.host_largest_hole_bytes);
        let remark = format_args!("{slabs} in the host's memory, {free} free, largest hole {hole}");
        row(f, "heap", self.host_slab_bytes.now, remark)
    }

    /// The row about tensors that left without a write.
    fn print_dropped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dropped_bytes, source_bytes) = (self.dropped_bytes, self.dropped_to_source_bytes);
        let who = match source_bytes {
            _ if dropped_bytes == 0 => return Ok(()),
            0 => "other copies or recipes stay".into(),
            bytes if bytes >= dropped_bytes => "the source has them".into(),
            bytes => format!("the source has {}", Bytes(bytes)),
        };
        let remark = format_args!("so far, without a write: {who}");
        row(f, "dropped", dropped_bytes, remark)
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
        // The sum of saved bytes has a line, too, and so have waits and the heap.
        let has_waits = self.waits().total().times > 0;
        let more = [self.saved_bytes > 0, has_waits, !self.host_slabs.is_empty()];
        let most = HOLDER_LINES - more.map(usize::from).iter().sum::<usize>();
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
