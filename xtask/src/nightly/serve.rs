//! `examples/serve` under a long load: a flood, long texts, clients that break off. Neither the
//! process nor its bytes on the device grow.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{self, LONG, LOUD, Load, Program, QUIET};
use crate::process::{Context, Result, Shell, ensure};

/// The length of the load; `LAPIDARY_LOAD_SECONDS` sets another.
const SECONDS: u64 = 600;
const MIB: f64 = (1 << 20) as f64;
const SAMPLE: Duration = Duration::from_secs(2);
/// Most of the last third, relative to the time before it.
const MOST_GROWTH: f64 = 1.05;
/// Most clients that break off between two samples.
const BROKEN: usize = 20;

/// The bytes at a moment: of the process, on the device, and of tensors there.
type Sample = [f64; 3];
const KINDS: [&str; 3] = ["resident", "on the device", "live"];

pub(super) fn check(sh: &Shell) -> Result<String> {
    let seconds = sh
        .var("LAPIDARY_LOAD_SECONDS")
        .map_or(Ok(SECONDS), |text| text.parse());
    let seconds = seconds.context("LAPIDARY_LOAD_SECONDS is no number")?;
    load::prepare(sh)?;
    let server = Program::start(sh, &[])?;
    let load = |tenant, connections, words, pause_ms| Load {
        tenant,
        connections,
        seconds,
        words,
        pause_ms,
    };
    let loads = [
        load(LOUD, 100, 1, 0),
        load(LONG, 4, 60, 0),
        load(QUIET, 1, 3, 100),
    ];
    let running = loads.map(|load| load.start(sh, &server.address));
    let samples = samples(sh, &server, Duration::from_secs(seconds))?;
    let mut answers = 0.0;
    for running in running {
        let found = running?.end()?;
        ensure!(
            found.unavailable == 0.0,
            "requests were refused, and nothing was wrong"
        );
        answers += found.ok;
    }
    server.stop(sh, "losses is 0")?;
    Ok(format!("{answers} answers, {}", judge(&samples)?))
}

/// Looks at the memory until the time is over. Meanwhile clients break off.
fn samples(sh: &Shell, server: &Program, time: Duration) -> Result<Vec<Sample>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while start.elapsed() < time {
        (0..BROKEN).for_each(|at| break_off(&server.address, at));
        let metrics = load::page(sh, &server.address, "/metrics")?;
        let sample = [
            server.resident_bytes()?,
            gauge(&metrics, "lapidary_device_bytes{")?,
            gauge(&metrics, "lapidary_live_bytes{")?,
        ];
        if samples.len() % 10 == 0 {
            let mib = sample.map(|bytes| (bytes / MIB).round());
            println!(
                "after {} s: {KINDS:?} {mib:?} MiB",
                start.elapsed().as_secs()
            );
        }
        samples.push(sample);
        thread::sleep(SAMPLE);
    }
    Ok(samples)
}

/// Sends a part of a request, and is gone. Some are gone while their texts wait.
fn break_off(address: &str, at: usize) {
    let body = r#"{"texts": ["a client that goes away", "before it has its answer"]}"#;
    let request = format!(
        "POST /embed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer the-key-of-{QUIET}-0\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let end = request.len() * (at + 1) / BROKEN;
    if let Ok(mut stream) = TcpStream::connect(address) {
        // The server may have closed it, which is its right.
        let _ = stream.write_all(&request.as_bytes()[..end]);
    }
}

/// The value of the first metric whose line begins like this.
fn gauge(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.with_context(|| format!("the metrics have no `{name}`"))
}

/// Compares the highest values of the last third with those before it. What grows all the time is
/// higher then. What goes up and down with the sizes of batches is not.
fn judge(samples: &[Sample]) -> Result<String> {
    ensure!(samples.len() >= 3, "{} samples are too few", samples.len());
    let (earlier, last) = samples.split_at(samples.len() / 3 * 2);
    let mut found = Vec::new();
    for (at, name) in KINDS.into_iter().enumerate() {
        let [before, after] = [earlier, last].map(|samples| {
            let bytes = samples.iter().map(|sample| sample[at]);
            bytes.fold(0.0, f64::max) / MIB
        });
        found.push(format!("{name} {before:.1} then {after:.1} MiB"));
        ensure!(
            after > 0.0 && after <= before * MOST_GROWTH,
            "it grew: {}",
            found[at]
        );
    }
    Ok(found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_found_and_a_warm_up_is_none() {
        let judged = |mib: &[f64]| {
            let samples: Vec<_> = mib.iter().map(|mib| [mib * 1e6, 1e6, 1e6]).collect();
            judge(&samples)
        };
        assert!(judged(&[1.0, 5.0, 9.0, 8.0, 9.3, 9.1]).is_ok());
        assert!(judged(&[1.0, 5.0, 9.0, 8.0, 9.0, 9.6]).is_err());
        assert!(judged(&[1.0, 1.0]).is_err());
        assert!(judged(&[0.0; 9]).is_err());
    }

    #[test]
    fn a_gauge_is_read_and_a_missing_one_is_told() {
        let metrics = "# TYPE lapidary_live_bytes gauge\nlapidary_live_bytes{adapter=\"a b\"} 42\n";
        assert_eq!(
            gauge(metrics, "lapidary_live_bytes{").expect("it is there"),
            42.0
        );
        assert!(gauge(metrics, "lapidary_device_bytes{").is_err());
    }
}
