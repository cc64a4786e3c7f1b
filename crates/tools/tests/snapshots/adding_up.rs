//! The sums of a history in other tools' formats equal the statistics.

use std::collections::HashMap;

use lapidary::stats::{Event, Moment, Snapshot};
use lapidary_tools::formats::{RmmEvent, read_rmm, write_rmm, write_trace};
use serde_json::Value;

pub(crate) fn rmm(snapshot: &Snapshot) -> Vec<u8> {
    let mut log = Vec::new();
    write_rmm(snapshot, &mut log).unwrap();
    log
}

pub(crate) fn trace(snapshot: &Snapshot) -> Vec<u8> {
    let mut trace = Vec::new();
    write_trace(snapshot, &mut trace).unwrap();
    trace
}

/// Checks that the sums of a history in other tools' formats equal the statistics.
pub(crate) fn add_up(snapshot: &Snapshot) {
    let mut live: HashMap<usize, u64> = HashMap::new();
    for row in read_rmm(&rmm(snapshot)[..]).unwrap() {
        match row.event {
            RmmEvent::Alloc { id, bytes } => assert!(live.insert(id, bytes).is_none()),
            RmmEvent::Free { id } => assert!(live.remove(&id).is_some()),
        }
    }
    let stats = &snapshot.stats;
    if !snapshot.moments.is_empty() {
        counters_add_up(snapshot);
    }
    let live_bytes: u64 = live.values().sum();
    assert_eq!(live_bytes, stats.requested_bytes.now);
    assert_eq!(live.len() as u64, stats.live_storages.now);
}

/// The last values of counters are the current levels, tracks are in order, and nothing is missing.
fn counters_add_up(snapshot: &Snapshot) {
    let trace: Value = serde_json::from_slice(&trace(snapshot)).unwrap();
    let mut last: HashMap<&str, u64> = HashMap::new();
    let mut times: HashMap<u64, f64> = HashMap::new();
    let mut count = 0;
    for event in trace["traceEvents"].as_array().unwrap() {
        let name = event["name"].as_str().unwrap();
        if event["ph"] == "M" {
            continue;
        }
        let us = event["ts"].as_f64().unwrap();
        let before = times.insert(event["tid"].as_u64().unwrap(), us);
        assert!(before.is_none_or(|before| before <= us), "{event}");
        match event["ph"].as_str().unwrap() {
            "C" => {
                last.insert(name, event["args"]["bytes"].as_u64().unwrap());
            }
            "i" | "X" => count += 1,
            other => panic!("{other}"),
        }
    }
    let stats = &snapshot.stats;
    assert_eq!(last["live"], stats.live_bytes.now);
    assert_eq!(last["reserved"], stats.reserved_bytes.now);
    assert_eq!(last.get("budget").copied(), stats.budget_bytes);
    let counted = |moment: &&Moment| {
        let event = moment.event;
        use Event::{Alloc, Donate, Free};
        !matches!(event, Alloc { .. } | Free { .. } | Donate { .. })
    };
    assert_eq!(count, snapshot.moments.iter().filter(counted).count());
}
