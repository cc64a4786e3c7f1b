//! Events reach the app's own subscriber and recorder, if the features are on, and nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lapidary::DType;
#[cfg(feature = "metrics")]
use lapidary::jobs::Job;
use lapidary::shares::ShareOptions;
use lapidary::sim::{Fault, FaultKind, Site};
#[cfg(feature = "metrics")]
use lapidary::{Error, Gpu};

use super::open_scarce;

/// A program that runs short of memory and finally loses its device.
fn program() {
    let (gpu, sim) = open_scarce();
    let share = ShareOptions::guaranteed(0).with_ceiling(1 << 20);
    let app = gpu.share("app", share).unwrap();
    let _marks = [(app.gpu(), 50), (app.gpu(), 50), (&gpu, 50)]
        .map(|(gpu, percent)| gpu.memory().on_watermark(percent, |_| ()));
    for _ in 0..3 {
        app.zeros(&[200_000], DType::F32).unwrap().force().unwrap();
    }
    let make = |len| gpu.zeros(&[len], DType::F32).unwrap();
    let held: Vec<_> = (0..5).map(|_| make(300_000)).collect();
    held.iter().for_each(|one| one.force().unwrap());
    let pins: Vec<_> = held[3..].iter().map(|one| one.pin().unwrap()).collect();
    assert!(make(500_000).force().is_err());
    drop((held, pins));
    gpu.flush().unwrap();
    #[cfg(feature = "metrics")]
    gpu.memory().record_metrics();
    sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
    let lost = (make(5) + 1.0).unwrap();
    (0..3).for_each(|_| assert!(lost.force().is_err()));
}

/// Names of spans, and messages of events with their fields.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

struct Fields<'a>(&'a mut String);

impl tracing::field::Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl tracing::Subscriber for Collected {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "lapidary"
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut text = format!("span {}", span.metadata().name());
        span.record(&mut Fields(&mut text));
        self.0.lock().unwrap().push(text);
        tracing::span::Id::from_u64(1 + self.1.fetch_add(1, Ordering::Relaxed))
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut Fields(&mut text));
        self.0.lock().unwrap().push(text);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_subscriber_hears_of_passes_reclaim_steps_refusals_and_the_loss() {
    let collected = Collected::default();
    tracing::subscriber::with_default(collected.clone(), program);
    let told = collected.0.lock().unwrap();
    let count = |beginning: &str| told.iter().filter(|one| one.starts_with(beginning)).count();
    if cfg!(not(feature = "tracing")) {
        assert_eq!(told[..], [""; 0]);
        return;
    }
    for span in [
        "flush",
        "execution_pass",
        "submission ops=",
        "eviction missing_bytes=",
    ] {
        assert!(count(&format!("span {span}")) > 0, "{span}: {told:?}");
    }
    assert!(
        count("INFO message=a reclaim step made room step=\"host\" freed_bytes=") > 0,
        "{told:?}"
    );
    let refused =
        "WARN message=a tensor found no room bytes=2000000 made_at=\"tests/engine/telemetry.rs:";
    assert_eq!(count(refused), 1, "{told:?}");
    // Twice for each of three rises: two callbacks have this mark.
    let of_app = "WARN message=memory rose to a watermark share=\"app\" percent=50 bytes=800";
    assert_eq!(count(of_app), 6, "{told:?}");
    let of_device = "WARN message=memory rose to a watermark share=\"the device\" percent=50";
    assert!(count(of_device) > 0, "{told:?}");
    assert_eq!(
        count("ERROR message=the device is lost reason="),
        1,
        "{told:?}"
    );
}

/// The last value of each metric.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>);

struct Number(Recorded, String);

impl Number {
    fn set_to(&self, value: f64) {
        (self.0.0.lock().unwrap()).insert(self.1.clone(), value);
    }
}

impl metrics::GaugeFn for Number {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.set_to(value);
    }
}

impl metrics::CounterFn for Number {
    fn increment(&self, _: u64) {}
    fn absolute(&self, value: u64) {
        self.set_to(value as f64);
    }
}

impl metrics::Recorder for Recorded {
    fn describe_counter(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(Arc::new(Number(self.clone(), named(key))))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(Arc::new(Number(self.clone(), named(key))))
    }

    fn register_histogram(
        &self,
        _: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

/// Shares and jobs that come and go, recorded in between by `record`.
#[cfg(feature = "metrics")]
fn come_and_go(mut told: impl FnMut(&dyn Fn()) -> BTreeMap<String, f64>) {
    let (gpu, _sim) = open_scarce();
    let mut record = || told(&|| gpu.memory().record_metrics());
    let ceiling = ShareOptions::guaranteed(0).with_ceiling(1 << 20);
    let held = |gpu: &Gpu| {
        let x = gpu.zeros(&[1 << 10], DType::F32).unwrap();
        x.force().unwrap();
        x
    };
    // It also rises from nothing to most of the ceiling.
    let refused = |gpu: &Gpu| {
        let most = gpu.zeros(&[200_000], DType::F32).unwrap();
        let _pin = most.pin().unwrap();
        let more = gpu.zeros(&[200_000], DType::F32).unwrap().force();
        assert!(matches!(more, Err(Error::OutOfMemory(_))), "{more:?}");
    };
    let [one, two] = [(); 2].map(|()| gpu.share("app", ceiling).unwrap());
    let marks = one.memory().on_watermark(50, |_| ());
    refused(&one);
    drop(marks);
    let tensors = [held(&one), held(&one), held(&two)];
    let now = record();
    // Two living shares of one path are one sum.
    assert_eq!(now["lapidary_share_bytes app"], 3.0 * 4096.0);
    assert_eq!(now["lapidary_share_ceiling_bytes app"], f64::from(2 << 20));
    assert_eq!(now["lapidary_share_refusals_total app"], 1.0);
    assert_eq!(now["lapidary_watermarks_total app 50"], 1.0);
    refused(&two);
    drop((tensors, one, two));
    gpu.flush().unwrap();
    let now = record();
    for gauge in ["bytes", "bytes_peak", "guaranteed_bytes", "ceiling_bytes"] {
        assert_eq!(now[&format!("lapidary_share_{gauge} app")], 0.0, "{gauge}");
    }
    assert_eq!(now["lapidary_share_refusals_total app"], 2.0);
    // A later share counts on, and so does its watermark.
    let later = gpu.share("app", ceiling).unwrap();
    assert_eq!(record()["lapidary_share_refusals_total app"], 2.0);
    let _marks = later.memory().on_watermark(50, |_| ());
    refused(&later);
    let now = record();
    assert_eq!(now["lapidary_share_refusals_total app"], 3.0);
    assert_eq!(now["lapidary_watermarks_total app 50"], 2.0);
    // Jobs have one label for each share around them.
    for round in 0..20 {
        let job = Job::new(&format!("request {round}"), 1 << 20);
        let running = gpu.jobs().admit(job).unwrap();
        refused(&running);
        let x = held(&running);
        assert_eq!(record()["lapidary_share_bytes (jobs)"], 4096.0);
        drop(x);
    }
    let now = record();
    assert_eq!(now["lapidary_share_bytes (jobs)"], 0.0);
    assert_eq!(now["lapidary_share_refusals_total (jobs)"], 20.0);
    let labels = now
        .keys()
        .filter(|name| name.starts_with("lapidary_share_bytes "));
    assert_eq!(labels.count(), 2, "{now:?}");
}

#[cfg(feature = "metrics")]
#[test]
fn series_of_shares_outlive_them_and_are_few() {
    let recorded = Recorded::default();
    come_and_go(|record| {
        metrics::with_local_recorder(&recorded, record);
        recorded.0.lock().unwrap().clone()
    });
}

/// The name and the labels, without the adapter's label.
fn named(key: &metrics::Key) -> String {
    let mut labels = key.labels();
    assert!(labels.any(|label| label.key() == "adapter" && label.value() == "simulated device"));
    let others = key.labels().filter(|label| label.key() != "adapter");
    let others = others.map(|label| format!(" {}", label.value()));
    format!("{}{}", key.name(), others.collect::<String>())
}

#[test]
fn a_recorder_is_told_the_numbers_when_the_app_asks() {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, program);
    let told = recorded.0.lock().unwrap();
    if cfg!(not(feature = "metrics")) {
        assert!(told.is_empty());
        return;
    }
    let number = |name: &str| *told.get(name).unwrap_or_else(|| panic!("{name}: {told:?}"));
    assert_eq!(number("lapidary_live_bytes"), 0.0);
    assert!(number("lapidary_live_bytes_peak") >= 2.0 * 1_200_000.0);
    assert_eq!(number("lapidary_budget_bytes"), f64::from(4 << 20));
    assert_eq!(number("lapidary_allocations_total"), 8.0);
    assert_eq!(number("lapidary_refusals_total"), 1.0);
    assert!(number("lapidary_evictions_total") >= 2.0);
    assert!(number("lapidary_freed_bytes_total host") > 0.0);
    assert!(
        number("lapidary_reclaim_step_tries_total host")
            >= number("lapidary_reclaim_step_gains_total host")
    );
    assert!(number("lapidary_reclaim_step_gains_total host") > 0.0);
    assert!(number("lapidary_pending_bytes_peak") >= 1_200_000.0);
    assert_eq!(number("lapidary_watermarks_total app 50"), 6.0);
    assert!(number("lapidary_watermarks_total the device 50") > 0.0);
    assert!(told.keys().all(|name| name.starts_with("lapidary_")));
}

/// Whoever adds a number to the statistics adds it to the metrics.
#[cfg(feature = "metrics")]
#[test]
fn a_recorder_is_told_every_number() {
    use lapidary::stats::NumberValue;

    let (gpu, _sim) = open_scarce();
    let held = gpu.zeros(&[1 << 10], DType::F32).unwrap();
    held.force().unwrap();
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || gpu.memory().record_metrics());
    let told = recorded.0.lock().unwrap();
    let number = |name: &str| *told.get(name).unwrap_or_else(|| panic!("{name}: {told:?}"));
    let stats = gpu.memory().stats();
    for one in stats.numbers().filter(|one| one.name != "queued") {
        let name = format!("lapidary_{}", one.name);
        match one.value {
            NumberValue::Level(level) => {
                let found = [number(&name), number(&format!("{name}_peak"))];
                assert_eq!(found, [level.now as f64, level.peak as f64], "{one:?}");
            }
            NumberValue::Now(now) => assert_eq!(number(&name), now as f64, "{one:?}"),
            NumberValue::Ratio(ratio) => assert_eq!(number(&name), ratio, "{one:?}"),
            NumberValue::Total(total) => {
                assert_eq!(number(&format!("{name}_total")), total as f64, "{one:?}");
            }
            _ => panic!("{one:?}"),
        }
    }
    assert_eq!(number("lapidary_queued_commands"), 0.0);
    assert_eq!(number("lapidary_slabs"), 1.0);
    assert_eq!(number("lapidary_allocated_bytes_total"), 4096.0);
}
