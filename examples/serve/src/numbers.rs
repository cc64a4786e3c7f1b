//! Metrics for Prometheus. Labels are names of tenants and status codes, so their number is
//! limited.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
const TEXTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The exporter of this process. `None` if the program has a recorder of another kind.
pub(crate) fn exporter() -> Option<&'static PrometheusHandle> {
    static EXPORTER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || {
        let builder = PrometheusBuilder::new();
        let builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)
            .ok()?;
        let builder = builder
            .set_buckets_for_metric(Matcher::Full("serve_batch_texts".into()), TEXTS)
            .ok()?;
        let exporter = builder.install_recorder().ok()?;
        describe();
        Some(exporter)
    };
    EXPORTER.get_or_init(install).as_ref()
}

fn describe() {
    describe_counter!("serve_requests_total", "Requests, by tenant and status");
    describe_histogram!(
        "serve_request_seconds",
        "From the head of a request to its answer, with status 200"
    );
    describe_gauge!("serve_waiting_texts", "Texts that wait, by tenant");
    describe_histogram!("serve_batch_texts", "Texts in a batch");
    describe_histogram!("serve_batch_seconds", "Time of a batch on the device");
    describe_counter!(
        "serve_pauses_total",
        "Batches that paused for a tenant that had less"
    );
    describe_counter!(
        "serve_splits_total",
        "Batches that found no room and were cut in half"
    );
    describe_counter!("serve_losses_total", "Devices that were lost");
    describe_counter!(
        "serve_abandoned_total",
        "Batches that nobody waited for any more"
    );
}

/// `tenant` is `-` for a request without a valid key.
pub(crate) fn request(tenant: &str, status: u16, time: Duration) {
    let labels = [
        ("tenant", tenant.to_owned()),
        ("status", status.to_string()),
    ];
    counter!("serve_requests_total", &labels).increment(1);
    if status == 200 {
        histogram!("serve_request_seconds", "tenant" => tenant.to_owned()).record(time);
    }
}

pub(crate) fn waiting(tenant: &str, texts: usize) {
    gauge!("serve_waiting_texts", "tenant" => tenant.to_owned()).set(texts as f64);
}

pub(crate) fn batch(texts: usize, time: Duration) {
    histogram!("serve_batch_texts").record(texts as f64);
    histogram!("serve_batch_seconds").record(time);
}

pub(crate) fn pause() {
    counter!("serve_pauses_total").increment(1);
}

pub(crate) fn split() {
    counter!("serve_splits_total").increment(1);
}

pub(crate) fn loss() {
    counter!("serve_losses_total").increment(1);
}

pub(crate) fn abandoned() {
    counter!("serve_abandoned_total").increment(1);
}
