//! Bytes that may be a snapshot. A snapshot can be written in every format, and its JSON reads back
//! as the same snapshot.

use std::io;

use lapidary::{Error, stats::Snapshot};
use lapidary_tools::formats::{read_rmm, write_pickle, write_rmm, write_trace};
use lapidary_tools::page;

/// Reads the bytes as a snapshot. Returns whether they are one.
pub fn body(bytes: &[u8]) -> bool {
    let snapshot = match Snapshot::from_json(bytes) {
        Ok(snapshot) => snapshot,
        Err(Error::Format { .. }) => return false,
        Err(other) => panic!("{other:?}"),
    };
    let written = |write: &dyn Fn(&mut Vec<u8>) -> io::Result<()>| {
        let mut bytes = Vec::new();
        write(&mut bytes).expect("memory takes what is written");
        bytes
    };
    let json = written(&|to| snapshot.write_json(to));
    let again = Snapshot::from_json(&json).expect("what was written can be read");
    assert!(again == snapshot, "{}", String::from_utf8_lossy(&json));
    written(&|to| write_pickle(&snapshot, to));
    written(&|to| write_trace(&snapshot, to));
    written(&|to| page::write(&snapshot, to));
    written(&|to| page::write_comparison(&snapshot, &again, to));
    let log = written(&|to| write_rmm(&snapshot, to));
    read_rmm(&log[..]).expect("a log that was written can be read");
    drop(snapshot.map().to_string());
    true
}
