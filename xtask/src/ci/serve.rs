//! `examples/serve` under load on the loopback: what batching gains, what a flood costs others, and
//! what clients see of a lost device.

use crate::line::Line;
use crate::load::{self, LOUD, Load, Program, QUIET};
use crate::process::Result;

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

pub(crate) fn check() -> Result<String> {
    load::prepare()?;
    let rounds = rounds()?;
    let losses = losses()?;
    Ok(format!("{rounds}; {losses}"))
}

fn rounds() -> Result<String> {
    let server = Program::start(&[])?;
    let address = &server.address;
    for path in ["/health/live", "/health/ready"] {
        load::page(address, path)?;
    }
    // The server finds out how large a batch may be.
    MANY.run(address)?;
    let (mut gain, mut delay) = (0.0_f64, f64::INFINITY);
    for _ in 0..ROUNDS {
        let (one, many) = (ONE.run(address)?, MANY.run(address)?);
        let alone = CALM.run(address)?;
        let flood = FLOOD.start(address)?;
        // The flood has filled its queue when the other begins.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let beside = CALM.run(address)?;
        let flood = flood.end()?;
        let refused = [one.full, many.full, alone.full, beside.full];
        let lost = [one, many, alone, beside, flood].map(|found| found.unavailable);
        if refused.iter().chain(&lost).any(|&count| count > 0.0) || flood.full == 0.0 {
            return Err("others than the flood were refused, or the flood was not.".into());
        }
        gain = gain.max(many.per_second / one.per_second);
        delay = delay.min(beside.p95_ms / alone.p95_ms);
        println!("gain {gain:.2}, delay {delay:.2}");
        if gain >= LEAST_GAIN && delay <= MOST_DELAY {
            break;
        }
    }
    let metrics = load::page(address, "/metrics")?;
    for name in [
        "serve_batch_texts_count",
        "lapidary_share_bytes",
        "serve_pauses_total",
    ] {
        if !metrics.contains(name) {
            return Err(format!("the metrics have no {name}."));
        }
    }
    let lines = server.stop()?;
    Line::last("serve", &lines)?.expect("losses", "0")?;
    if gain < LEAST_GAIN || delay > MOST_DELAY {
        return Err(format!(
            "batches have {gain:.2} times the throughput of one request at a time, at least \
             {LEAST_GAIN}; a flood makes a quiet tenant's p95 {delay:.2} times as long, at most \
             {MOST_DELAY}."
        ));
    }
    Ok(format!(
        "batches of short texts {gain:.1} x, beside a flood {delay:.2} x"
    ))
}

/// A device that is lost all the time costs no request.
fn losses() -> Result<String> {
    let server = Program::start(&["--lose-every", "20"])?;
    let found = Load {
        connections: 8,
        ..ONE
    };
    let found = found.run(&server.address)?;
    if found.unavailable + found.full > 0.0 {
        return Err("requests were refused after a device loss.".into());
    }
    let lines = server.stop()?;
    let line = Line::last("serve", &lines)?;
    match line.number("losses")? {
        losses if losses >= 1.0 => Ok(format!("{losses} devices lost")),
        _ => line.complain("has no loss"),
    }
}
