//! Logs in the format of RMM's logging adaptor: `Thread,Time,Action,Pointer,Size,Stream`, one row
//! an event. They are written for other tools, and read because RMM records real programs.

use std::io::{self, BufRead, Write};

use lapidary_core::internal::printable;
use lapidary_core::stats::{Event, Snapshot};
use rustc_hash::FxHashMap;

use super::lines::Lines;
use super::places::{Held, Places, Step};
use super::unix_us;
use crate::{Error, Result};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Longest line. A file of another kind may have no line breaks at all.
const MOST_LINE_BYTES: u64 = 1 << 16;

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Writes the history of a snapshot as a log in RMM's format, beginning with what existed before
/// it. The rows are `Thread,Time,Action,Pointer,Size,Stream`. Addresses are computed from slabs and
/// offsets, and times are times of day in UTC. Without a history the log has the current blocks.
///
/// An eviction is a free, a restore is an allocation, and a move is both.
///
/// # Errors
/// Those of the writer.
pub fn write_rmm(snapshot: &Snapshot, to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    writeln!(to, "{HEADER}")?;
    let places = Places::new(snapshot);
    let first_ns = snapshot.moments.first().map(|moment| moment.at_ns);
    let begins_ns = first_ns.unwrap_or(snapshot.taken_at_ns);
    let time_of_day = |at_ns| time_of_day(unix_us(snapshot, at_ns));
    let mut live = Live::default();
    for held in places.before() {
        live.gained(&mut to, &time_of_day(begins_ns), held)?;
    }
    places.tell(|at_ns, step| match step {
        Step::Gained(held) => live.gained(&mut to, &time_of_day(at_ns), &held),
        Step::Lost(held) => live.lost(&mut to, &time_of_day(at_ns), &held),
        Step::Event(Event::Refusal { bytes }) => {
            let time = time_of_day(at_ns);
            writeln!(to, "0,{time},allocate failure,(nil),{bytes},0")
        }
        _ => Ok(()),
    })?;
    to.flush()
}

/// The bytes at each address so far. A snapshot from a file may say that two blocks are at one
/// address. Then the first is freed, so that the log is one that can be read.
#[derive(Default)]
struct Live(FxHashMap<u64, u64>);

impl Live {
    fn gained(&mut self, to: &mut impl Write, time: &str, held: &Held) -> io::Result<()> {
        self.lost(to, time, held)?;
        self.0.insert(held.address, held.bytes);
        row(to, time, "allocate", held.address, held.bytes)
    }

    fn lost(&mut self, to: &mut impl Write, time: &str, held: &Held) -> io::Result<()> {
        match self.0.remove(&held.address) {
            Some(bytes) => row(to, time, "free", held.address, bytes),
            None => Ok(()),
        }
    }
}

fn row(to: &mut impl Write, time: &str, action: &str, address: u64, bytes: u64) -> io::Result<()> {
    writeln!(to, "0,{time},{action},{address:#x},{bytes},0")
}

/// `%H:%M:%S.%f`.
fn time_of_day(unix_us: u64) -> String {
    let us = unix_us % DAY_US;
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{us:06}")
}

/// One row of a log. It names blocks instead of addresses, because addresses are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmmEvent {
    /// A block is allocated.
    Alloc {
        /// The block: 0, 1, 2, …, each only once.
        id: usize,
        /// Requested bytes; not 0.
        bytes: u64,
    },
    /// A live block is freed.
    Free {
        /// The block.
        id: usize,
    },
}

/// A row of a log in RMM's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmmRow {
    /// The line in the log, counted from 1.
    pub line: u64,
    /// The event in the row.
    pub event: RmmEvent,
}

/// Reads a log of RMM's logging adaptor or of [`write_rmm`]. Allocations of no bytes and failed
/// allocations are left out. Columns may be in any order, and columns beyond the three necessary
/// ones are ignored.
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
/// [`Error::Rmm`] with the line. A column is missing, a row is too short, or a number or action is
/// invalid. Or a block is at an address in use, or is freed twice or with another size. Also the
/// errors of the reader.
pub fn read_rmm(from: impl BufRead) -> Result<Vec<RmmRow>> {
    let (mut log, mut rows) = (None, Vec::new());
    let mut lines = Lines::new(from, MOST_LINE_BYTES);
    for line in 1.. {
        let at = |reason: String| Error::Rmm { line, reason };
        let text = lines.next(!rows.is_empty()).map_err(at)?;
        let Some(text) = text.map(str::trim) else {
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

/// The state while a log is read.
struct Log {
    /// Positions of the three necessary columns in a row.
    action: usize,
    pointer: usize,
    size: usize,
    /// The live blocks by address: number and bytes.
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
        let bytes: u64 = bytes.map_err(|_| format!("`{}` is not a size", shown(size)))?;
        let event = match action {
            // An empty allocation has no place, even if the log gives an address.
            "allocate" | "free" if bytes == 0 => return Ok(None),
            "allocate" => self.alloc(address, bytes)?,
            "free" => self.free(address, bytes)?,
            other => return Err(format!("`{}` is not an action of RMM", shown(other))),
        };
        Ok(Some(event))
    }

    fn alloc(&mut self, address: u64, bytes: u64) -> std::result::Result<RmmEvent, String> {
        let id = self.blocks;
        if self.live.insert(address, (id, bytes)).is_some() {
            return Err(format!(
                "{address:#x} is allocated but was not freed before"
            ));
        }
        self.blocks += 1;
        Ok(RmmEvent::Alloc { id, bytes })
    }

    fn free(&mut self, address: u64, bytes: u64) -> std::result::Result<RmmEvent, String> {
        match self.live.remove(&address) {
            Some((id, allocated)) if allocated == bytes => Ok(RmmEvent::Free { id }),
            Some((_, allocated)) => Err(format!(
                "{address:#x} is freed as {bytes} bytes but was allocated as {allocated}"
            )),
            None => Err(format!("{address:#x} is freed but not allocated")),
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
    address.map_err(|_| format!("`{}` is not a pointer", shown(text)))
}

/// Text of the file as an error shows it.
fn shown(text: &str) -> String {
    printable(text, 40)
}
