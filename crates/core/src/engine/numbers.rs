//! The table of the statistics: each number once, with its kind, its name and its documentation.
//!
//! The fields of [`MemoryStats`], their JSON, the metrics, the page and the engine's [`Counters`]
//! follow from it. To add a counter of the engine, add a row to `counted`, and count where the work
//! is done: `state.counters.name += 1`. A number that another part has is a row of `taken`.
//! `Engine::report` takes it from there, and does not compile before.

use crate::memory::{ClassUse, SlabUse, TagUse};
use crate::shortage::{Holder, ReclaimCounts, ReclaimStepUse, ShareUse};
use crate::transfer::StoreUse;
use crate::units::Level;
use crate::waits::{MakerWaits, Waited, Waits};

/// A number of the statistics: see [`MemoryStats::numbers`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Number {
    /// The name of its field.
    pub name: &'static str,
    /// What it is, in sentences: the documentation of its field.
    pub help: &'static str,
    /// Its kind and its value.
    pub value: NumberValue,
}

/// The value of a [`Number`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
#[non_exhaustive]
pub enum NumberValue {
    /// An amount that rises and falls, with its peak.
    Level(Level),
    /// An amount that rises and falls.
    Now(u64),
    /// A ratio.
    Ratio(f64),
    /// A sum that only rises.
    Total(u64),
}

fn level(level: impl Into<Option<Level>>) -> Option<NumberValue> {
    level.into().map(NumberValue::Level)
}

fn now(amount: impl Into<Option<u64>>) -> Option<NumberValue> {
    amount.into().map(NumberValue::Now)
}

fn ratio(ratio: f64) -> Option<NumberValue> {
    Some(NumberValue::Ratio(ratio))
}

fn total(sum: u64) -> Option<NumberValue> {
    Some(NumberValue::Total(sum))
}

/// Declares what follows from the table.
macro_rules! table {
    (
        taken { $($(#[doc = $doc:literal])* $kind:ident $name:ident: $type:ty,)* }
        counted { $($(#[doc = $counted_doc:literal])* total $counted:ident,)* }
        others { $($(#[$meta:meta])* $other:ident: $other_type:ty,)* }
        within { $($(#[doc = $inner_doc:literal])* $inner:ident: $inner_type:ty,)* }
    ) => {
        /// Memory statistics. All sizes are in bytes.
        ///
        /// `Display` prints a report of at most 40 lines of 100 columns.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default))]
        #[non_exhaustive]
        pub struct MemoryStats {
            $($(#[doc = $doc])* pub $name: $type,)*
            $($(#[doc = $counted_doc])* pub $counted: u64,)*
            $($(#[$meta])* pub $other: $other_type,)*
        }

        impl MemoryStats {
            /// Every number, with its name and what it is: for a monitoring system, for example. A
            /// number that this device does not have is left out. Those of shares, stores, makers,
            /// slabs and reclaim steps are not among them.
            ///
            /// ```
            /// use lapidary_core::stats::{MemoryStats, NumberValue};
            ///
            /// for number in MemoryStats::default().numbers() {
            ///     if let NumberValue::Total(total) = number.value {
            ///         println!("# HELP {} {}\n{0} {total}", number.name, number.help);
            ///     }
            /// }
            /// ```
            pub fn numbers(&self) -> impl Iterator<Item = Number> {
                let rows = [
                    $(($kind(self.$name), stringify!($name), concat!($($doc),*)),)*
                    $((total(self.$counted), stringify!($counted), concat!($($counted_doc),*)),)*
                ];
                rows.into_iter().filter_map(|(value, name, help)| {
                    let (help, value) = (help.trim_start(), value?);
                    Some(Number { name, help, value })
                })
            }
        }

        /// What the code that does the work counts, since the engine was opened.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $counted_doc])* pub(crate) $counted: u64,)*
            $($(#[doc = $inner_doc])* pub(super) $inner: $inner_type,)*
        }

        /// What the parts of the engine tell beside the counters.
        pub(super) struct Taken {
            $(pub(super) $name: $type,)*
            $(pub(super) $other: $other_type,)*
        }

        impl Counters {
            /// The statistics.
            pub(super) fn with(&self, taken: Taken) -> MemoryStats {
                MemoryStats {
                    $($name: taken.$name,)*
                    $($counted: self.$counted,)*
                    $($other: taken.$other,)*
                }
            }
        }
    };
}

table! {
    // What the parts of the engine have.
    taken {
        /// Requested bytes of the tensors on the device, each padded to 16 bytes.
        level requested_bytes: Level,
        /// The bytes of their blocks: requested bytes rounded up to granules. Canaries of the
        /// diagnostics count too.
        level live_bytes: Level,
        /// Storages that have a block. Views share one.
        level live_storages: Level,
        /// The part of the requested bytes that is saved for backward now. Recorded operations need
        /// these bytes until their backward has run, or until the last tensor that depends on them
        /// is dropped. Inputs and parameters that an operation saved are among them. The report
        /// counts them when it is made.
        now saved_bytes: u64,
        /// Bytes of tensors that queued work will place. All requests count here first, so `up` is
        /// the sum of all requests. The peak counts only the moments at which work was queued.
        level pending_bytes: Level,
        /// Free bytes in slabs.
        level cached_bytes: Level,
        /// Bytes of all slabs. The peak is that of slabs and retiring slabs together.
        level reserved_bytes: Level,
        /// Bytes of released slabs and staging that submissions still use.
        level retiring_bytes: Level,
        /// Bytes of tensors in buffers of the app. No sum above includes them.
        level imported_bytes: Level,
        /// Staging for uploads.
        level upload_bytes: Level,
        /// Staging for restored tensors.
        level restore_staging_bytes: Level,
        /// Read-back buffers.
        level readback_bytes: Level,
        /// Bytes that the driver holds for the whole device, if it reports them. The library asks
        /// when it creates a slab and for each report, so the value may have been higher in
        /// between.
        level driver_bytes: Option<Level>,
        /// All bytes on the device: slabs, staging and retiring memory.
        level device_bytes: Level,
        /// Limit of the bytes on the device, if there is one: the app's, or a smaller one of the
        /// operating system.
        now budget_bytes: Option<u64>,
        /// Copies of tensors in the host's memory, both of evicted tensors and of restored ones.
        level host_bytes: Level,
        /// Slabs in the host's memory that hold such copies. They count for the host's budget, and
        /// the copies in them do not.
        level host_slab_bytes: Level,
        /// Free bytes in these slabs of the host's memory.
        now host_free_bytes: u64,
        /// The largest hole of these slabs. For a tensor that is larger than all holes, the engine
        /// creates one more slab or moves others. Otherwise it is evicted to a store or to the
        /// disk.
        now host_largest_hole_bytes: u64,
        /// Bytes a second that the device copies to slabs in the host's memory, as it measured by
        /// its own clock. `None` before it copied some tensors of 1 MiB and more, and on a
        /// simulated device.
        now host_evict_bytes_per_s: Option<u64>,
        /// Bytes a second that the device copies from these slabs.
        now host_restore_bytes_per_s: Option<u64>,
        /// Length of the spill file.
        level disk_bytes: Level,
        /// Part of the spill file that tensors use, with headers and rounding to pages.
        level spilled_bytes: Level,
        /// The largest hole of all slabs.
        now largest_hole_bytes: u64,
        /// 1 − largest hole ÷ all holes. 0 when all free bytes are in one hole.
        ratio fragmentation: f64,
        /// Limit of the staging for uploads: the library's own limit, or what the budget leaves.
        now staging_limit_bytes: u64,
        /// Commands in the queue.
        now queued: u64,
        /// Compiled pipelines.
        now pipelines: u64,
        /// Bind groups in the cache.
        now bind_groups: u64,
        /// Evictions of tensors to the host, to a store, to the disk or to their source.
        total evictions: u64,
        /// Restores of tensors.
        total restores: u64,
        /// Buffers created for any purpose: slabs, staging, read-back, parameters. A steady loop
        /// creates none.
        total buffers_created: u64,
        /// Slabs released.
        total slabs_released: u64,
        /// Total bytes of tensors that were moved to make room.
        total moved_bytes: u64,
        /// The time of all kernels so far, in nanoseconds, as the engine predicts it. By this it
        /// decides whether to compute a tensor again. The measured times of submissions scale it.
        total kernels_ns: u64,
        /// The longest time of a submission, in nanoseconds, among those that somebody waited for.
        /// Work of a high priority may wait this long for work of a lower one. 0 in a browser.
        now longest_submission_ns: u64,
        /// The longest time, in nanoseconds, for which work of a high priority may have waited for
        /// a part of what prepares a command of a lower one. Parts are the eviction or the restore
        /// of 8 MiB, some moves of a compaction, and the compilation of a kernel. All evictions
        /// because the budget was lowered count as one part. 0 in a browser and on a simulated
        /// device.
        now longest_hold_ns: u64,
    }
    // Totals that the engine counts.
    counted {
        /// Slabs created.
        total slabs_created,
        /// Results that took over the place of an operand that nobody else held. They needed no
        /// memory.
        total donated,
        /// Commands that ran.
        total commands,
        /// Submissions.
        total submissions,
        /// Total bytes that the host itself read from slabs in its memory, in parts of 64 KiB and
        /// more: to move them on because the host's limit was lowered, or to read rows of a table.
        total host_read_bytes,
        /// The time of these reads, in nanoseconds, without waits. 0 on a simulated device whose
        /// reads take no time.
        total host_read_ns,
        /// Requests that found no memory.
        total refusals,
        /// Searches of uploads and restores for staging, because all of it was in use: waits for
        /// the device, and reclaim.
        total staging_waits,
        /// How often tensors were moved to make room, on the device or in the host's memory.
        total compactions,
        /// Total bytes of tensors that were moved from one slab in the host's memory to another.
        total host_moved_bytes,
        /// Total bytes of tensors written to the host, to a store or to the disk.
        total evicted_bytes,
        /// Total bytes of tensors that were dropped without a write, because their source, another
        /// copy or a recipe has them. `evicted_bytes` does not count these.
        total dropped_bytes,
        /// The part of the dropped bytes that only their source has, such as the file of a model.
        total dropped_to_source_bytes,
        /// Total bytes of restored tensors, and of rows that were read from tensors off the device.
        total restored_bytes,
        /// Total bytes that were read ahead of need from the disk and from sources, and used.
        total read_ahead_bytes,
        /// Total bytes that were read ahead in vain: their tensors were freed, written or restored
        /// otherwise, or the host's memory was needed.
        total wasted_read_bytes,
        /// Total bytes of tensors that were computed again, because that costs less than to keep
        /// them.
        total recomputed_bytes,
        /// Blocks that were cleared because they passed, or will pass, from one share to another.
        total hand_overs,
        /// Total bytes of those blocks.
        total cleared_bytes,
        /// How often execution passes waited for the device because memory was short: for memory
        /// that was released, for moves, or for a slab to be mapped. Waits for reads of the app and
        /// for the end of the queue do not count. A dry run counts none.
        total device_waits,
        /// The time of these waits, in nanoseconds. 0 in a browser and on a simulated device.
        total device_wait_ns,
        /// How often passes waited, because memory was short, for bytes on their way between the
        /// device and the host's memory: of evictions, or of restores whose staging was in use.
        total host_waits,
        /// The time of these waits, in nanoseconds. 0 in a browser and on a simulated device.
        total host_wait_ns,
        /// How often passes waited for stores of the app: to evict tensors there, or to restore
        /// them.
        total store_waits,
        /// The time of these waits, in nanoseconds. 0 in a browser and on a simulated device.
        total store_wait_ns,
        /// How often passes read from the disk or a source, or wrote to the disk: to evict tensors
        /// there, or to restore them.
        total disk_waits,
        /// The time of these waits, in nanoseconds. 0 in a browser and on a simulated device.
        total disk_wait_ns,
    }
    // Names and lists.
    others {
        /// The adapter's name.
        adapter: String,
        /// Its graphics API.
        backend: String,
        /// See [`Caps::missing_features`](crate::Caps::missing_features).
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
        missing_features: Vec<String>,
        /// What each reclaim step achieved so far, in the order in which the steps run.
        #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::shortage::read_uses"))]
        reclaim_steps: Vec<ReclaimStepUse>,
        /// Use of the slabs of each class.
        classes: Vec<ClassUse>,
        /// Every store of the app, in order: see [`stores`](crate::stores).
        stores: Vec<StoreUse>,
        /// Every share of the memory, by path: see [`Gpu::share`](crate::Gpu::share).
        shares: Vec<ShareUse>,
        /// All makers of storages, past and present, the one with most bytes first.
        tags: Vec<TagUse>,
        /// Every slab of the device.
        slabs: Vec<SlabUse>,
        /// Every slab in the host's memory: see [`Options::host_heap`](crate::Options::host_heap).
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
        host_slabs: Vec<SlabUse>,
        /// The holders of most bytes, at most 32, greatest first.
        holders: Vec<Holder>,
        /// The makers for whose tensors passes waited most, the longest waits first, at most 8:
        /// until there was room for a new tensor, or until the bytes of an evicted one were back.
        memory_waits: Vec<MakerWaits>,
    }
    // What the engine counts for itself.
    within {
        /// The commands that no rematerializer recorded. Those of rematerializers may be undone and
        /// run again.
        commands_of_app: u64,
        /// Submissions that the driver refused.
        refused_submissions: u64,
        /// The predicted time of all launches, before the meter scales it.
        predicted_ns: f64,
        /// The runs of each reclaim step and their results.
        reclaim_counts: ReclaimCounts,
        /// The most bytes without a place at the time of an append.
        peak_pending_bytes: u64,
    }
}

/// The waits are rows of the table, so that monitoring systems get them as numbers.
macro_rules! waits {
    ($($vis:vis $of:ident),*) => {$(
        impl $of {
            /// The waits of execution passes for memory, by what they waited for.
            $vis fn waits(&self) -> Waits {
                Waits {
                    device: Waited::new(self.device_waits, self.device_wait_ns),
                    host: Waited::new(self.host_waits, self.host_wait_ns),
                    store: Waited::new(self.store_waits, self.store_wait_ns),
                    disk: Waited::new(self.disk_waits, self.disk_wait_ns),
                }
            }
        }
    )*};
}

waits!(pub MemoryStats, pub(crate) Counters);

impl Counters {
    /// The commands of the app that have run, and the refused submissions.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.commands_of_app, self.refused_submissions)
    }
}
