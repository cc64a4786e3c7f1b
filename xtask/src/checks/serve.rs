//! `examples/serve` under load on the loopback: what batching gains, what a flood costs others, and
//! what clients see of a lost device. At night a long load, with long texts and clients that break
//! off: neither the process nor its bytes on the device grow.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::load::{self, LONG, LOUD, Load, QUIET, Server};
use crate::process::{Context, Result, Shell, ensure};

/// Least throughput of batches, relative to one request at a time.
const LEAST_GAIN: f64 = 3.0;
/// Most of a quiet tenant's p95 beside a flood, relative to its own alone.
const MOST_DELAY: f64 = 2.0;
/// Rounds. The best counts: other programs use the cores too.
const ROUNDS: usize = 4;
const SECONDS: u64 = 6;

/// One request at a time.
const ONE: Load = Load(LOUD, 1, SECONDS, 1, 0);
/// As many as may wait, and none is refused.
const MANY: Load = Load(LOUD, 60, SECONDS, 1, 0);
/// Far more than may wait, without a pause after a refusal.
const FLOOD: Load = Load(LOUD, 120, SECONDS + 3, 1, 0);
/// Somebody who asks, and reads the answer.
const CALM: Load = Load(QUIET, 1, SECONDS, 1, 20);

pub(crate) fn check(sh: &Shell) -> Result<String> {
    load::prepare(sh)?;
    let server = Server::start(sh, &[])?;
    for path in ["/health/live", "/health/ready"] {
        server.page(sh, path)?;
    }
    // The server finds out how large a batch may be.
    MANY.run(sh, &server)?;
    let (mut gain, mut delay) = (0.0_f64, f64::INFINITY);
    for _ in 0..ROUNDS {
        let (one, many) = (ONE.run(sh, &server)?, MANY.run(sh, &server)?);
        let alone = CALM.run(sh, &server)?;
        let flood = FLOOD.start(sh, &server)?;
        // The flood has filled its queue when the other begins.
        thread::sleep(Duration::from_secs(1));
        let beside = CALM.run(sh, &server)?;
        // Only the flood is refused.
        let flood = load::ended(flood)?;
        ensure!(flood.full > 0.0, "a flood was answered: {flood:?}");
        gain = gain.max(many.per_second / one.per_second);
        delay = delay.min(beside.p95_seconds / alone.p95_seconds);
        println!("gain {gain:.2}, delay {delay:.2}");
        if gain >= LEAST_GAIN && delay <= MOST_DELAY {
            break;
        }
    }
    let metrics = server.page(sh, "/metrics")?;
    for name in "serve_batch_texts_count lapidary_share_bytes serve_pauses_total".split(' ') {
        ensure!(metrics.contains(name), "the metrics have no {name}");
    }
    server.stop(sh, "losses is 0")?;
    ensure!(
        gain >= LEAST_GAIN && delay <= MOST_DELAY,
        "batches have {gain:.2} times the throughput of one request at a time, at least \
         {LEAST_GAIN}; a flood makes a quiet tenant's p95 {delay:.2} times as long, at most \
         {MOST_DELAY}"
    );

    // A device that is lost all the time costs no request.
    let server = Server::start(sh, &["--lose-every", "20"])?;
    Load(LOUD, 8, SECONDS, 1, 0).run(sh, &server)?;
    server.stop(sh, "losses >= 1")?;
    Ok(format!("batches {gain:.1} x, beside a flood {delay:.2} x"))
}

/// The length of the long load; `LAPIDARY_LOAD_SECONDS` sets another.
const LONG_SECONDS: u64 = 600;
const MIB: f64 = (1 << 20) as f64;
const SAMPLE: Duration = Duration::from_secs(2);
/// Most of the last third, relative to the time before it.
const MOST_GROWTH: f64 = 1.05;
/// Most clients that break off between two samples.
const BROKEN: usize = 20;

/// The bytes at a moment: of the process, on the device, and of tensors there.
type Sample = [f64; 3];
const KINDS: [&str; 3] = ["resident", "on the device", "live"];

pub(crate) fn long(sh: &Shell) -> Result<String> {
    let seconds = sh.var("LAPIDARY_LOAD_SECONDS");
    let seconds = seconds.map_or(Ok(LONG_SECONDS), |text| text.parse());
    let seconds = seconds.context("LAPIDARY_LOAD_SECONDS is no number")?;
    load::prepare(sh)?;
    let server = Server::start(sh, &[])?;
    let loads = [
        Load(LOUD, 100, seconds, 1, 0),
        Load(LONG, 4, seconds, 60, 0),
        Load(QUIET, 1, seconds, 3, 9),
    ];
    let running = loads.map(|load| load.start(sh, &server));
    let samples = samples(sh, &server, Duration::from_secs(seconds))?;
    let mut answers = 0.0;
    for running in running {
        answers += load::ended(running?)?.ok;
    }
    server.stop(sh, "losses is 0")?;
    Ok(format!("{answers} answers, {}", judge(&samples)?))
}

/// Looks at the memory until the time is over. Meanwhile clients break off.
fn samples(sh: &Shell, server: &Server, time: Duration) -> Result<Vec<Sample>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while start.elapsed() < time {
        (0..BROKEN).for_each(|at| break_off(&server.address, at));
        let metrics = server.page(sh, "/metrics")?;
        let gauge = |name| gauge(&metrics, name);
        let [device, live] = ["lapidary_device_bytes{", "lapidary_live_bytes{"].map(gauge);
        let sample = [server.resident_bytes()?, device?, live?];
        if samples.len() % 10 == 0 {
            let (seconds, mib) = (start.elapsed().as_secs(), sample.map(|bytes| bytes / MIB));
            println!("after {seconds} s: {KINDS:?} {mib:.0?} MiB");
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
        let is_steady = after > 0.0 && after <= before * MOST_GROWTH;
        ensure!(is_steady, "it grew: {}", found[at]);
    }
    Ok(found.join(", "))
}

#[test]
fn growth_is_found_and_a_warm_up_is_none() {
    for (is_good, mib) in [
        (true, &[1.0, 5.0, 9.0, 8.0, 9.3, 9.1][..]),
        (false, &[1.0, 5.0, 9.0, 8.0, 9.0, 9.6]),
        (false, &[1.0, 1.0]),
        (false, &[0.0; 9]),
    ] {
        let samples: Vec<_> = mib.iter().map(|mib| [mib * 1e6, 1e6, 1e6]).collect();
        assert_eq!(judge(&samples).is_ok(), is_good, "{mib:?}");
    }
}
