//! The log of RMM's logging adaptor: `Thread,Time,Action,Pointer,Size,Stream`, a row an event. Blocks are
//! named by their addresses, which come again; streams and times decide nothing here.

use std::collections::HashMap;

use super::{Book, Trace, number, shown};

/// A block that the log has as live.
struct Live {
    id: usize,
    size_bytes: u64,
}

pub(super) struct Parser {
    book: Book,
    /// Where in a row the three columns are that say what happens.
    action: usize,
    pointer: usize,
    size: usize,
    live: HashMap<u64, Live>,
}

impl Parser {
    /// The parser of a log, if this line is its first.
    pub(super) fn of_header(line: &str) -> Result<Option<Parser>, String> {
        let names: Vec<&str> = line.trim().split(',').map(str::trim).collect();
        let column = |name: &str| names.iter().position(|found| *found == name);
        let Some(action) = column("Action") else {
            return Ok(None);
        };
        let needed =
            |name: &str| column(name).ok_or_else(|| format!("the log has no column `{name}`"));
        Ok(Some(Parser {
            book: Book::default(),
            action,
            pointer: needed("Pointer")?,
            size: needed("Size")?,
            live: HashMap::new(),
        }))
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
        let row: Vec<&str> = line.trim().split(',').map(str::trim).collect();
        if row == [""] {
            return Ok(());
        }
        let action = *row.get(self.action).ok_or("the action is missing")?;
        // What was asked for and not given changes nothing.
        if action == "allocate failure" {
            return Ok(());
        }
        let pointer = address(row.get(self.pointer).copied())?;
        let size_bytes: u64 = number(row.get(self.size).copied(), "a size")?;
        // Of nothing there is nothing to place, whatever its address is.
        if size_bytes == 0 {
            return Ok(());
        }
        match action {
            "allocate" => self.alloc(pointer, size_bytes),
            "free" | "deallocate" => self.free(pointer, size_bytes),
            other => Err(format!("`{}` is no action of RMM's", shown(other))),
        }
    }

    fn alloc(&mut self, pointer: u64, size_bytes: u64) -> Result<(), String> {
        if self.live.contains_key(&pointer) {
            return Err(format!(
                "{pointer:#x} is allocated, and was not freed before"
            ));
        }
        let id = self.book.alloc(size_bytes)?;
        self.live.insert(pointer, Live { id, size_bytes });
        Ok(())
    }

    fn free(&mut self, pointer: u64, size_bytes: u64) -> Result<(), String> {
        let live = self.live.remove(&pointer);
        let live = live.ok_or_else(|| format!("{pointer:#x} is freed, and was not allocated"))?;
        if live.size_bytes != size_bytes {
            let allocated = live.size_bytes;
            return Err(format!(
                "{pointer:#x} is freed as {size_bytes} bytes, and was allocated as {allocated}"
            ));
        }
        self.book.free(live.id)
    }

    pub(super) fn finish(self) -> Trace {
        self.book.finish(Vec::new())
    }
}

/// `0x7f…`; `(nil)` for none.
fn address(word: Option<&str>) -> Result<u64, String> {
    let word = word.ok_or("a pointer is missing")?;
    if word == "(nil)" {
        return Ok(0);
    }
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let address = u64::from_str_radix(digits, 16);
    address.map_err(|_| format!("`{}` is no pointer", shown(word)))
}
