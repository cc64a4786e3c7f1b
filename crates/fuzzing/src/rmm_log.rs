//! Bytes that may be a log in RMM's format: the rows are consistent, or the error names a line.

use std::collections::HashSet;

use lapidary_tools::Error;
use lapidary_tools::formats::{RmmEvent, read_rmm};

use crate::turns;

/// Reads the bytes as a log. Returns whether they are one.
pub fn body(bytes: &[u8]) -> bool {
    let rows = match read_rmm(bytes) {
        Ok(rows) => rows,
        Err(Error::Rmm { line, reason }) => {
            let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
            assert!(1 <= line && line <= lines + 1, "line {line} of {lines}");
            let hides = |c: char| c.is_control() || turns(c);
            assert!(!reason.contains(hides), "{reason:?}");
            return false;
        }
        Err(other) => panic!("{other:?}"),
    };
    let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
    let (mut live, mut blocks, mut line) = (HashSet::new(), 0, 1);
    for row in rows {
        assert!(line < row.line && row.line <= lines, "{row:?} after {line}");
        line = row.line;
        match row.event {
            RmmEvent::Alloc { id, bytes } => {
                assert!(id == blocks && bytes > 0, "{row:?} is block {blocks}");
                blocks += 1;
                live.insert(id);
            }
            RmmEvent::Free { id } => assert!(live.remove(&id), "{row:?} is not live"),
        }
    }
    true
}
