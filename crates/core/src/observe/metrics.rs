//! The statistics as gauges and counters of the crate `metrics`, recorded when the app asks.

use ::metrics::{SharedString, counter, gauge};

use super::MemoryStats;
use crate::engine::Calls;
use crate::memory::share_series::ShareSum;
use crate::units::Level;

impl MemoryStats {
    /// Passes the numbers to the recorder that the app installed, with the sums of shares, and with
    /// how often watermarks were reached.
    pub(crate) fn record(&self, shares: &[ShareSum], watermarks: Calls) {
        let adapter: SharedString = self.adapter.clone().into();
        let now = |name: &'static str, value: u64| {
            gauge!(name, "adapter" => adapter.clone()).set(value as f64);
        };
        for (name, peak, level) in self.levels() {
            now(name, level.now);
            now(peak, level.peak);
        }
        now("lapidary_largest_hole_bytes", self.largest_hole_bytes);
        now("lapidary_saved_bytes", self.saved_bytes);
        now("lapidary_queued_commands", self.queued);
        now("lapidary_slabs", self.slabs.len() as u64);
        now("lapidary_pipelines", self.pipelines);
        now("lapidary_bind_groups", self.bind_groups);
        if let Some(bytes) = self.budget_bytes {
            now("lapidary_budget_bytes", bytes);
        }
        if let Some(bytes) = self.driver_bytes {
            now("lapidary_driver_bytes", bytes.now);
            now("lapidary_driver_bytes_peak", bytes.peak);
        }
        gauge!("lapidary_fragmentation", "adapter" => adapter.clone()).set(self.fragmentation);
        for (name, total) in self.totals() {
            counter!(name, "adapter" => adapter.clone()).absolute(total);
        }
        for store in &self.stores {
            let labels = [
                ("adapter", adapter.clone()),
                ("store", store.name.clone().into()),
            ];
            gauge!("lapidary_store_bytes", &labels).set(store.bytes.now as f64);
            gauge!("lapidary_store_bytes_peak", &labels).set(store.bytes.peak as f64);
            for (name, total) in [
                ("lapidary_store_written_bytes_total", store.written_bytes),
                ("lapidary_store_read_bytes_total", store.read_bytes),
                ("lapidary_store_failures_total", store.failures),
                ("lapidary_store_lost_total", store.lost),
            ] {
                counter!(name, &labels).absolute(total);
            }
        }
        shares.iter().for_each(|sum| record_share(&adapter, sum));
        for ((share, percent), calls) in watermarks {
            let labels = [
                ("adapter", adapter.clone()),
                ("share", share.map_or("the device".into(), Into::into)),
                ("percent", percent.to_string().into()),
            ];
            counter!("lapidary_watermarks_total", &labels).absolute(calls);
        }
        for one in &self.reclaim_steps {
            for (name, total) in [
                ("lapidary_freed_bytes_total", one.freed_bytes),
                ("lapidary_reclaim_step_tries_total", one.tries),
                ("lapidary_reclaim_step_gains_total", one.gains),
            ] {
                counter!(name, "adapter" => adapter.clone(), "step" => one.step.name())
                    .absolute(total);
            }
        }
    }

    fn levels(&self) -> [(&'static str, &'static str, &Level); 15] {
        macro_rules! level {
            ($field:ident) => {
                (
                    concat!("lapidary_", stringify!($field)),
                    concat!("lapidary_", stringify!($field), "_peak"),
                    &self.$field,
                )
            };
        }
        [
            level!(requested_bytes),
            level!(live_bytes),
            level!(live_storages),
            level!(pending_bytes),
            level!(cached_bytes),
            level!(reserved_bytes),
            level!(retiring_bytes),
            level!(imported_bytes),
            level!(upload_bytes),
            level!(restore_staging_bytes),
            level!(readback_bytes),
            level!(device_bytes),
            level!(host_bytes),
            level!(disk_bytes),
            level!(spilled_bytes),
        ]
    }

    fn totals(&self) -> [(&'static str, u64); 21] {
        [
            ("lapidary_allocations_total", self.live_storages.up),
            ("lapidary_allocated_bytes_total", self.live_bytes.up),
            ("lapidary_evictions_total", self.evictions),
            ("lapidary_restores_total", self.restores),
            ("lapidary_buffers_created_total", self.buffers_created),
            ("lapidary_slabs_created_total", self.slabs_created),
            ("lapidary_slabs_released_total", self.slabs_released),
            ("lapidary_donated_total", self.donated),
            ("lapidary_commands_total", self.commands),
            ("lapidary_submissions_total", self.submissions),
            ("lapidary_refusals_total", self.refusals),
            ("lapidary_staging_waits_total", self.staging_waits),
            ("lapidary_compactions_total", self.compactions),
            ("lapidary_hand_overs_total", self.hand_overs),
            ("lapidary_cleared_bytes_total", self.cleared_bytes),
            ("lapidary_moved_bytes_total", self.moved_bytes),
            ("lapidary_evicted_bytes_total", self.evicted_bytes),
            ("lapidary_dropped_bytes_total", self.dropped_bytes),
            (
                "lapidary_dropped_to_source_bytes_total",
                self.dropped_to_source_bytes,
            ),
            ("lapidary_recomputed_bytes_total", self.recomputed_bytes),
            ("lapidary_restored_bytes_total", self.restored_bytes),
        ]
    }
}

fn record_share(adapter: &SharedString, sum: &ShareSum) {
    let labels = [
        ("adapter", adapter.clone()),
        ("share", sum.label.clone().into()),
    ];
    let now = |name: &'static str, value: u64| gauge!(name, &labels).set(value as f64);
    now("lapidary_share_bytes", sum.bytes);
    now("lapidary_share_bytes_peak", sum.peak_bytes);
    now("lapidary_share_guaranteed_bytes", sum.guaranteed_bytes);
    if let Some(bytes) = sum.ceiling_bytes {
        now("lapidary_share_ceiling_bytes", bytes);
    }
    for (name, total) in [
        ("lapidary_share_evictions_total", sum.evictions),
        ("lapidary_share_restores_total", sum.restores),
        ("lapidary_share_refusals_total", sum.refusals),
    ] {
        counter!(name, &labels).absolute(total);
    }
}
