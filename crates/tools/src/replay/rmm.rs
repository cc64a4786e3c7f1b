//! Logs in RMM's format as traces.

use std::io::BufRead;
use std::path::Path;

use super::trace::{self, Book, Trace};
use crate::formats::{RmmEvent, read_rmm};

/// Part of the first line of such a log. No trace has it.
const COLUMN: &[u8] = b"Action,";

/// Reads a trace or a log. An error names the line.
pub fn read(path: &Path) -> Result<Trace, String> {
    let mut text = trace::open(path).map_err(|error| error.to_string())?;
    // If the file cannot be read, the reader below returns the error.
    let begin = text.fill_buf().unwrap_or_default();
    let head = begin
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !head.windows(COLUMN.len()).any(|part| part == COLUMN) {
        let trace = trace::parse(name.into_owned(), text);
        return trace.map_err(|error| error.to_string());
    }
    let mut book = Book::default();
    for row in read_rmm(text).map_err(|error| error.to_string())? {
        let entered = match row.event {
            RmmEvent::Alloc { bytes, .. } => book.alloc(bytes).map(drop),
            RmmEvent::Free { id } => book.free(id),
        };
        entered.map_err(|what| format!("line {}: {what}", row.line))?;
    }
    Ok(Trace {
        name: name.into_owned(),
        ..book.finish(Vec::new())
    })
}
