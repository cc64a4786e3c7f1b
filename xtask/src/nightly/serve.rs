//! `examples/serve` under a long load: a flood, long texts, clients that break off. Neither the
//! process nor its bytes on the device grow.

use std::env;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::line::Line;
use crate::load::{self, LONG, LOUD, Load, Program, QUIET};
use crate::process::Result;

/// The length of the load; `LAPIDARY_LOAD_SECONDS` sets another.
const SECONDS: u64 = 600;
const MIB: f64 = (1 << 20) as f64;
/// One of this many samples is printed.
const PRINTED: usize = 10;
const SAMPLE: Duration = Duration::from_secs(2);
/// Most of the last third, relative to the time before it.
const MOST_GROWTH: f64 = 1.05;
/// Most clients that break off between two samples.
const BROKEN: usize = 20;

/// The memory of the process, the memory of the device, and the part of it that tensors take.
const KINDS: [&str; 3] = ["resident", "on the device", "live"];

/// The memory at a moment.
struct Sample {
    /// In the order of [`KINDS`].
    bytes: [f64; KINDS.len()],
}

pub(crate) fn check() -> Result<String> {
    let seconds = match env::var("LAPIDARY_LOAD_SECONDS") {
        Ok(text) => {
            let explain = |_| format!("LAPIDARY_LOAD_SECONDS is no number: {text}.");
            text.parse().map_err(explain)?
        }
        Err(_) => SECONDS,
    };
    load::prepare()?;
    let server = Program::start(&[])?;
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
    let running: Vec<_> = loads
        .into_iter()
        .map(|load| load.start(&server.address))
        .collect::<Result<_>>()?;
    let samples = samples(&server, Duration::from_secs(seconds))?;
    let mut answers = 0.0;
    for running in running {
        let found = running.end()?;
        if found.unavailable > 0.0 {
            return Err("requests were refused, and nothing was wrong.".into());
        }
        answers += found.ok;
    }
    let lines = server.stop()?;
    Line::last("serve", &lines)?.expect("losses", "0")?;
    let grown = judge(&samples)?;
    Ok(format!("{answers} answers, {grown}"))
}

/// Looks at the memory until the time is over. Meanwhile clients break off.
fn samples(server: &Program, time: Duration) -> Result<Vec<Sample>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while start.elapsed() < time {
        (0..BROKEN).for_each(|at| break_off(&server.address, at));
        let metrics = load::page(&server.address, "/metrics")?;
        let bytes = [
            server.resident_bytes()?,
            gauge(&metrics, "lapidary_device_bytes{")?,
            gauge(&metrics, "lapidary_live_bytes{")?,
        ];
        if samples.len() % PRINTED == 0 {
            let mib = bytes.map(|bytes| (bytes / MIB).round());
            println!(
                "after {} s: {KINDS:?} {mib:?} MiB",
                start.elapsed().as_secs()
            );
        }
        samples.push(Sample { bytes });
        std::thread::sleep(SAMPLE);
    }
    Ok(samples)
}

/// Sends a part of a request, and is gone. Some are gone while their texts wait.
fn break_off(address: &str, at: usize) {
    let body = r#"{"texts": ["a client that goes away", "before it has its answer"]}"#;
    let request = format!(
        "POST /embed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n\
         {body}",
        QUIET.1,
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
    value.ok_or(format!("the metrics have no `{name}`."))
}

/// Compares the highest values of the last third with those before it. What grows all the time is
/// higher then. What goes up and down with the sizes of batches is not.
fn judge(samples: &[Sample]) -> Result<String> {
    if samples.len() < 3 {
        return Err(format!("{} samples are too few.", samples.len()));
    }
    let (earlier, last) = samples.split_at(samples.len() / 3 * 2);
    let most = |samples: &[Sample], at: usize| {
        let bytes = samples.iter().map(|sample| sample.bytes[at]);
        bytes.fold(0.0, f64::max)
    };
    let mut found = Vec::new();
    for (at, name) in KINDS.into_iter().enumerate() {
        let (before, after) = (most(earlier, at), most(last, at));
        let mib = |bytes: f64| bytes / MIB;
        if !(after > 0.0 && after <= before * MOST_GROWTH) {
            return Err(format!(
                "the bytes {name} grew from {:.1} to {:.1} MiB.",
                mib(before),
                mib(after)
            ));
        }
        found.push(format!(
            "{name} {:.1} then {:.1} MiB",
            mib(before),
            mib(after)
        ));
    }
    Ok(found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_found_and_a_warm_up_is_none() {
        let sample = |mib: f64| Sample {
            bytes: [mib * 1e6, 1e6, 1e6],
        };
        let judged = |mib: &[f64]| {
            let samples: Vec<_> = mib.iter().map(|&mib| sample(mib)).collect();
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
        assert_eq!(gauge(metrics, "lapidary_live_bytes{"), Ok(42.0));
        assert!(gauge(metrics, "lapidary_device_bytes{").is_err());
    }
}
