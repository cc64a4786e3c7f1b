//! The log of RMM's logging adaptor: `Thread,Time,Action,Pointer,Size,Stream`, a row an event.
//! Written for the tools that read it, and read for ours: logs of RMM's are of real programs.

use std::io::{self, BufRead, Read, Write};

use lapidary_core::internal::printable;
use lapidary_core::stats::{Event, Snapshot};
use rustc_hash::FxHashMap;

use super::places::{Held, Places, Step};
use super::unix_us;
use crate::{Error, Result};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// No line is longer: a file that is something else may have no end of line at all.
const MOST_LINE_BYTES: u64 = 1 << 16;

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Writes the history of a snapshot as a log of RMM's, from what there was at its beginning on:
/// rows of `Thread,Time,Action,Pointer,Size,Stream`, where addresses are made up from slabs and
/// offsets, and times are of the day in UTC. Without a history it has what is there now.
///
/// What leaves the device is freed there, and allocated when it is back; what moves is both.
///
/// # Errors
/// The writer's own.
pub fn write_rmm(snapshot: &Snapshot, to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    writeln!(to, "{HEADER}")?;
    let places = Places::of(snapshot);
    let first_ns = snapshot.moments.first().map(|moment| moment.at_ns);
    let begins_ns = first_ns.unwrap_or(snapshot.taken_at_ns);
    let time_of_day = |at_ns| time_of_day(unix_us(snapshot, at_ns));
    for held in places.before() {
        row(&mut to, &time_of_day(begins_ns), "allocate", held)?;
    }
    places.tell(|at_ns, step| match step {
        Step::Gained(held) => row(&mut to, &time_of_day(at_ns), "allocate", &held),
        Step::Lost(held) => row(&mut to, &time_of_day(at_ns), "free", &held),
        Step::Event(Event::Refusal { bytes }) => {
            let time = time_of_day(at_ns);
            writeln!(to, "0,{time},allocate failure,(nil),{bytes},0")
        }
        _ => Ok(()),
    })?;
    to.flush()
}

fn row(to: &mut impl Write, time: &str, action: &str, held: &Held) -> io::Result<()> {
    let (address, bytes) = (held.address, held.bytes);
    writeln!(to, "0,{time},{action},{address:#x},{bytes},0")
}

/// `%H:%M:%S.%f`.
fn time_of_day(unix_us: u64) -> String {
    let us = unix_us % DAY_US;
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{us:06}")
}

/// What a row of a log of RMM's says, in terms of blocks: addresses come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmmEvent {
    /// A block of so many bytes is allocated.
    Alloc {
        /// The block: 0, 1, 2, …, each only once.
        id: usize,
        /// The bytes asked for; not 0.
        bytes: u64,
    },
    /// A live block is freed.
    Free {
        /// The block.
        id: usize,
    },
}

/// A row of a log of RMM's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmmRow {
    /// The line in the log, counted from 1.
    pub line: u64,
    /// What it says.
    pub event: RmmEvent,
}

/// Reads a log of RMM's logging adaptor, or what [`write_rmm`] has written. Rows of
/// nothing (allocations of no bytes, and those that failed) are left out; columns may be in any
/// order, and more than the three that say what happens.
///
/// ```
/// use lapidary_tools::formats::{RmmEvent, read_rmm};
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n\
///            7,12:00:00.000001,allocate,0x7f00,4096,0\n\
///            7,12:00:00.000009,free,0x7f00,4096,0\n";
/// let rows = read_rmm(log.as_bytes())?;
/// assert_eq!(rows[1].event, RmmEvent::Free { id: 0 });
/// let broken = log.replace("free,0x7f00", "free,0x7e00");
/// let error = read_rmm(broken.as_bytes()).unwrap_err().to_string();
/// assert!(error.contains("line 3: 0x7e00 is freed"), "{error}");
/// # Ok::<(), lapidary_tools::Error>(())
/// ```
///
/// # Errors
/// [`Error::Rmm`] with the line: no such columns, a row that ends early, a bad number or action,
/// a block allocated where another is, freed twice or with another size, and whatever the reader
/// says.
pub fn read_rmm(mut from: impl BufRead) -> Result<Vec<RmmRow>> {
    let (mut log, mut rows, mut buffer) = (None, Vec::new(), Vec::new());
    for line in 1.. {
        let at = |reason: String| Error::Rmm { line, reason };
        let Some(text) = next_line(&mut from, &mut buffer).map_err(at)? else {
            break;
        };
        match &mut log {
            None => log = Some(Log::of_header(text).map_err(at)?),
            Some(log) => {
                let event = log.row(text).map_err(at)?;
                rows.extend(event.map(|event| RmmRow { line, event }));
            }
        }
    }
    let empty = || Error::Rmm {
        line: 1,
        reason: "it is empty".into(),
    };
    log.map(|_| rows).ok_or_else(empty)
}

/// The next line, in no more memory than it should take.
fn next_line<'a>(
    from: &mut impl BufRead,
    buffer: &'a mut Vec<u8>,
) -> std::result::Result<Option<&'a str>, String> {
    buffer.clear();
    let read = from.take(MOST_LINE_BYTES).read_until(b'\n', buffer);
    let read = read.map_err(|error| error.to_string())?;
    if read as u64 == MOST_LINE_BYTES {
        return Err(format!("it is longer than {MOST_LINE_BYTES} bytes"));
    }
    let text = std::str::from_utf8(buffer).map_err(|_| "it is no text".to_owned())?;
    Ok((read > 0).then_some(text.trim()))
}

/// What is known of a log while it is read.
struct Log {
    /// Where in a row the three columns are that say what happens.
    action: usize,
    pointer: usize,
    size: usize,
    /// By address: the block, and its bytes.
    live: FxHashMap<u64, (usize, u64)>,
    blocks: usize,
}

impl Log {
    fn of_header(line: &str) -> std::result::Result<Log, String> {
        let names: Vec<&str> = line.split(',').map(str::trim).collect();
        let column = |name: &str| {
            let column = names.iter().position(|found| *found == name);
            column.ok_or_else(|| format!("it has no column `{name}`, as in `{HEADER}`"))
        };
        Ok(Log {
            action: column("Action")?,
            pointer: column("Pointer")?,
            size: column("Size")?,
            live: FxHashMap::default(),
            blocks: 0,
        })
    }

    fn row(&mut self, line: &str) -> std::result::Result<Option<RmmEvent>, String> {
        if line.is_empty() {
            return Ok(None);
        }
        let row: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |column: usize, what: &str| {
            let cell = row.get(column).copied();
            cell.ok_or_else(|| format!("{what} is missing"))
        };
        let action = cell(self.action, "an action")?;
        if action == "allocate failure" {
            return Ok(None);
        }
        let address = address(cell(self.pointer, "a pointer")?)?;
        let size = cell(self.size, "a size")?;
        let bytes = size.parse();
        let bytes: u64 = bytes.map_err(|_| format!("`{}` is no size", shown(size)))?;
        let event = match action {
            // Of nothing there is nothing to place, whatever its address is.
            "allocate" | "free" if bytes == 0 => return Ok(None),
            "allocate" => self.alloc(address, bytes)?,
            "free" => self.free(address, bytes)?,
            other => return Err(format!("`{}` is no action of RMM's", shown(other))),
        };
        Ok(Some(event))
    }

    fn alloc(&mut self, address: u64, bytes: u64) -> std::result::Result<RmmEvent, String> {
        let id = self.blocks;
        if self.live.insert(address, (id, bytes)).is_some() {
            return Err(format!(
                "{address:#x} is allocated, and was not freed before"
            ));
        }
        self.blocks += 1;
        Ok(RmmEvent::Alloc { id, bytes })
    }

    fn free(&mut self, address: u64, bytes: u64) -> std::result::Result<RmmEvent, String> {
        match self.live.remove(&address) {
            Some((id, allocated)) if allocated == bytes => Ok(RmmEvent::Free { id }),
            Some((_, allocated)) => Err(format!(
                "{address:#x} is freed as {bytes} bytes, and was allocated as {allocated}"
            )),
            None => Err(format!("{address:#x} is freed, and is not allocated")),
        }
    }
}

/// `0x7f…`; `(nil)` for none.
fn address(text: &str) -> std::result::Result<u64, String> {
    if text == "(nil)" {
        return Ok(0);
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let address = u64::from_str_radix(digits, 16);
    address.map_err(|_| format!("`{}` is no pointer", shown(text)))
}

/// What a file says, in a message.
fn shown(text: &str) -> String {
    printable(text, 40)
}
