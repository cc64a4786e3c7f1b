//! The lines of a text that may be endless or of another kind: with limits on each line, on the
//! whole, and on what comes before the first event.

use std::io::{BufRead, ErrorKind, Read};

use lapidary_core::units::{Bytes, GIB, MIB};

/// Most bytes of a text.
const MOST_BYTES: u64 = 2 * GIB;

/// A text that has no event within this many bytes is of another kind.
const FIRST_BYTES: u64 = MIB;

pub(crate) struct Lines<R> {
    text: R,
    most_line_bytes: u64,
    /// The number of the last line, counted from 1.
    pub(crate) number: usize,
    bytes: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(text: R, most_line_bytes: u64) -> Self {
        Lines {
            text,
            most_line_bytes,
            number: 0,
            bytes: 0,
            line: Vec::new(),
        }
    }

    /// The next line with its end. `has_event` says whether a line so far was an event.
    pub(crate) fn next(&mut self, has_event: bool) -> Result<Option<&str>, String> {
        self.line.clear();
        self.number += 1;
        if !has_event && self.bytes > FIRST_BYTES {
            let first = Bytes(FIRST_BYTES);
            return Err(format!("there is no event in the first {first}"));
        }
        if self.bytes > MOST_BYTES {
            return Err(format!("there are more than {}", Bytes(MOST_BYTES)));
        }
        let mut text = (&mut self.text).take(self.most_line_bytes);
        let read = text.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => "the file ends in the middle: it is truncated".into(),
            _ => error.to_string(),
        })?;
        if read as u64 == self.most_line_bytes {
            return Err(format!("it is longer than {read} bytes"));
        }
        self.bytes += read as u64;
        let line = std::str::from_utf8(&self.line).map_err(|_| "it is not text".to_string())?;
        Ok((read > 0).then_some(line))
    }
}
