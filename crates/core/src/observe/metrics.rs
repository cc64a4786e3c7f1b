//! The statistics as gauges and counters of the crate `metrics`, recorded when the app asks.

use ::metrics::{SharedString, counter, gauge};

use crate::engine::{Calls, MemoryStats, Number, NumberValue};
use crate::memory::share_series::ShareSum;

impl MemoryStats {
    /// Passes the numbers to the recorder that the app installed, with the sums of shares, and with
    /// how often watermarks were reached.
    pub(crate) fn record(&self, shares: &[ShareSum], watermarks: Calls) {
        let adapter: SharedString = self.adapter.clone().into();
        let now = |name: String, value: f64| {
            gauge!(name, "adapter" => adapter.clone()).set(value);
        };
        let sum = |name: String, total: u64| {
            counter!(name, "adapter" => adapter.clone()).absolute(total);
        };
        for Number { name, value, .. } in self.numbers() {
            let name = match name {
                "queued" => "lapidary_queued_commands".into(),
                name => format!("lapidary_{name}"),
            };
            match value {
                NumberValue::Level(level) => {
                    now(format!("{name}_peak"), level.peak as f64);
                    now(name, level.now as f64);
                }
                NumberValue::Now(amount) => now(name, amount as f64),
                NumberValue::Ratio(ratio) => now(name, ratio),
                NumberValue::Total(total) => sum(format!("{name}_total"), total),
            }
        }
        now("lapidary_slabs".into(), self.slabs.len() as f64);
        sum("lapidary_allocations_total".into(), self.live_storages.up);
        sum("lapidary_allocated_bytes_total".into(), self.live_bytes.up);
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
        ("lapidary_share_evictions_total", sum.counts.evictions),
        ("lapidary_share_restores_total", sum.counts.restores),
        ("lapidary_share_refusals_total", sum.counts.refusals),
    ] {
        counter!(name, &labels).absolute(total);
    }
}
