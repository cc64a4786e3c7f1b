//! Logs of RMM's, which say as much as traces do.

use std::io::BufRead;
use std::path::Path;

use super::trace::{self, Book, Trace};
use crate::formats::{RmmEvent, read_rmm};

/// What such a log says in its first line, and no trace does.
const COLUMN: &[u8] = b"Action,";

/// Reads a file of either kind; an error says the line.
pub fn read(path: &Path) -> Result<Trace, String> {
    let mut text = trace::open(path).map_err(|error| error.to_string())?;
    // Where nothing can be read, the reader says so.
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
