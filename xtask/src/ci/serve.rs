//! `examples/serve` under load on the loopback: what batching gains, what a flood costs others, and
//! what clients see of a lost device.

use std::thread;
use std::time::Duration;

use crate::load::{self, LOUD, Load, Program, QUIET};
use crate::process::{Result, Shell, ensure};

/// Least throughput of batches, relative to one request at a time.
const LEAST_GAIN: f64 = 3.0;
/// Most of a quiet tenant's p95 beside a flood, relative to its own alone.
const MOST_DELAY: f64 = 2.0;
/// Rounds. The best counts: other programs use the cores too.
const ROUNDS: usize = 4;
const SECONDS: u64 = 6;

/// One request at a time.
const ONE: Load = Load {
    tenant: LOUD,
    connections: 1,
    seconds: SECONDS,
    words: 1,
    pause_ms: 0,
};
/// As many as may wait, and none is refused.
const MANY: Load = Load {
    connections: 60,
    ..ONE
};
/// Far more than may wait, without a pause after a refusal.
const FLOOD: Load = Load {
    connections: 120,
    seconds: SECONDS + 3,
    ..ONE
};
/// Somebody who asks, and reads the answer.
const CALM: Load = Load {
    tenant: QUIET,
    pause_ms: 40,
    ..ONE
};

pub(crate) fn check(sh: &Shell) -> Result<String> {
    load::prepare(sh)?;
    let server = Program::start(sh, &[])?;
    let address = &server.address;
    for path in ["/health/live", "/health/ready"] {
        load::page(sh, address, path)?;
    }
    // The server finds out how large a batch may be.
    MANY.run(sh, address)?;
    let (mut gain, mut delay) = (0.0_f64, f64::INFINITY);
    for _ in 0..ROUNDS {
        let (one, many) = (ONE.run(sh, address)?, MANY.run(sh, address)?);
        let alone = CALM.run(sh, address)?;
        let flood = FLOOD.start(sh, address)?;
        // The flood has filled its queue when the other begins.
        thread::sleep(Duration::from_secs(1));
        let beside = CALM.run(sh, address)?;
        let flood = flood.end()?;
        let is_full = [one, many, alone, beside]
            .iter()
            .any(|found| found.full > 0.0);
        let is_lost = [one, many, alone, beside, flood]
            .iter()
            .any(|found| found.unavailable > 0.0);
        ensure!(
            !is_full && !is_lost && flood.full > 0.0,
            "others than the flood were refused, or the flood was not"
        );
        gain = gain.max(many.per_second / one.per_second);
        delay = delay.min(beside.p95_ms / alone.p95_ms);
        println!("gain {gain:.2}, delay {delay:.2}");
        if gain >= LEAST_GAIN && delay <= MOST_DELAY {
            break;
        }
    }
    let metrics = load::page(sh, address, "/metrics")?;
    for name in [
        "serve_batch_texts_count",
        "lapidary_share_bytes",
        "serve_pauses_total",
    ] {
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
    let server = Program::start(sh, &["--lose-every", "20"])?;
    let few = Load {
        connections: 8,
        ..ONE
    };
    let found = few.run(sh, &server.address)?;
    ensure!(
        found.unavailable + found.full == 0.0,
        "requests were refused after a device loss"
    );
    server.stop(sh, "losses >= 1")?;
    Ok(format!(
        "batches of short texts {gain:.1} x, beside a flood {delay:.2} x"
    ))
}
