//! Recorded allocation traces: the storages that a program created and released, in order. A trace
//! is text with one event a line, plain or compressed with gzip.

mod recorded;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::formats::Lines;

/// Longest line. A file of another kind may have no line breaks at all.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// No program has more live bytes than this. With this limit, sums of sizes cannot overflow.
const MOST_LIVE_BYTES: u64 = 1 << 56;

/// The first bytes of a file compressed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An event of a trace. Marks are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A storage is created.
    Alloc {
        /// The storage: 0, 1, 2, …, each only once.
        id: usize,
        /// Requested bytes.
        bytes: u64,
    },
    /// A live storage is released.
    Free {
        /// The storage.
        id: usize,
    },
    /// An operator runs, after its outputs were created. Only in traces that record reads.
    Run {
        /// Its first operand in [`Trace::operands`].
        first: usize,
        /// Number of its operands, each storage once.
        count: usize,
    },
}

/// The use of a storage by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads it.
    Read,
    /// Creates it.
    Make,
    /// Changes it in place.
    Update,
}

/// A storage that an operator uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The storage.
    pub id: usize,
    /// How the operator uses it.
    pub role: Role,
}

/// A trace in which every event is valid.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The file's name without its folder.
    pub name: String,
    /// The events in order.
    pub events: Vec<Event>,
    /// The operands of all operators.
    pub operands: Vec<Operand>,
    /// Number of storages; ids are below it.
    pub storages: usize,
    /// The highest sum of live bytes.
    pub peak_live_bytes: u64,
}

impl Trace {
    /// Whether the trace records reads and writes.
    pub fn has_operators(&self) -> bool {
        !self.operands.is_empty()
    }
}

/// What is wrong with a trace, and in which line.
#[derive(Debug)]
pub struct TraceError {
    /// The line, counted from 1; 0 if the file cannot be opened.
    pub line: usize,
    /// The problem.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for TraceError {}

/// Reads a trace file, compressed or not.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    parse(name.into_owned(), open(path)?)
}

/// The text of a file, compressed or not.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, TraceError> {
    let explain = |error: io::Error| TraceError {
        line: 0,
        what: error.to_string(),
    };
    let mut file = BufReader::new(File::open(path).map_err(explain)?);
    let is_compressed = file.fill_buf().map_err(explain)?.starts_with(&GZIP);
    Ok(match is_compressed {
        true => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// Reads a trace from text.
pub fn parse(name: String, text: impl BufRead) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(text, MOST_LINE_BYTES);
    let mut parser = recorded::Parser::default();
    loop {
        let read = lines.next(parser.has_event()).and_then(|line| match line {
            Some(line) => parser.line(line).map(|()| true),
            None => Ok(false),
        });
        match read {
            Ok(true) => {}
            Ok(false) => break,
            Err(what) => {
                let line = lines.number;
                return Err(TraceError { line, what });
            }
        }
    }
    Ok(Trace {
        name,
        ..parser.finish()
    })
}

/// The storages of a trace so far. It refuses events that break the rules.
#[derive(Debug, Default)]
pub struct Book {
    events: Vec<Event>,
    /// The size of every storage so far; `None` after its release.
    sizes: Vec<Option<u64>>,
    live_bytes: u64,
    peak_live_bytes: u64,
}

impl Book {
    /// Adds the next storage.
    pub fn alloc(&mut self, bytes: u64) -> Result<usize, String> {
        let id = self.sizes.len();
        if bytes == 0 {
            return Err(format!("storage {id} has no bytes"));
        }
        let live_bytes = self.live_bytes.checked_add(bytes);
        let live_bytes = live_bytes.filter(|bytes| *bytes <= MOST_LIVE_BYTES);
        self.live_bytes = live_bytes.ok_or_else(|| "the live bytes pass 2^56".to_string())?;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.sizes.push(Some(bytes));
        self.events.push(Event::Alloc { id, bytes });
        Ok(id)
    }

    pub fn free(&mut self, id: usize) -> Result<(), String> {
        self.live_bytes -= self.live(id)?;
        self.sizes[id] = None;
        self.events.push(Event::Free { id });
        Ok(())
    }

    /// The bytes of a live storage.
    fn live(&self, id: usize) -> Result<u64, String> {
        let size = self.sizes.get(id);
        let size = size.ok_or_else(|| format!("storage {id} was never created"))?;
        size.ok_or_else(|| format!("storage {id} was released before"))
    }

    pub fn finish(self, operands: Vec<Operand>) -> Trace {
        Trace {
            name: String::new(),
            storages: self.sizes.len(),
            events: self.events,
            operands,
            peak_live_bytes: self.peak_live_bytes,
        }
    }
}

fn number<T: std::str::FromStr>(word: Option<&str>, what: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse()
        .map_err(|_| format!("`{}` is not {what}", shown(word)))
}

/// A part of a line as an error quotes it.
fn shown(word: &str) -> String {
    lapidary_core::internal::printable(word, 40)
}
