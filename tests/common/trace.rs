//! Reads recorded allocation traces: text, one event a line, plain or compressed with gzip.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// What happens in a trace. Marks are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A storage of so many bytes is created.
    Alloc {
        /// The storage: 0, 1, 2, …, each only once.
        id: usize,
        /// The bytes asked for.
        bytes: u64,
    },
    /// A live storage is released.
    Free {
        /// The storage.
        id: usize,
    },
    /// An operator runs, after what it makes was created. Only in traces that say what is read.
    Run {
        /// Its first operand in [`Trace::operands`].
        first: usize,
        /// How many it has, each storage once.
        count: usize,
    },
}

/// What an operator does with a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads it.
    Read,
    /// Makes it.
    Make,
    /// Changes it in place.
    Update,
}

/// A storage that an operator uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The storage.
    pub(crate) id: usize,
    /// What is done with it.
    pub(crate) role: Role,
}

/// A trace whose every event is valid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The file's name without its folder.
    pub(crate) name: String,
    /// The events in order.
    pub(crate) events: Vec<Event>,
    /// The operands of all operators.
    pub(crate) operands: Vec<Operand>,
    /// How many storages there are; ids are below it.
    pub(crate) storages: usize,
    /// The highest sum of live bytes.
    pub(crate) peak_live_bytes: u64,
}

impl Trace {
    /// Does it say what is read and written?
    pub(crate) fn has_operators(&self) -> bool {
        !self.operands.is_empty()
    }
}

/// What is wrong with a trace, and in which line.
#[derive(Debug)]
pub(crate) struct TraceError {
    /// The line, counted from 1; 0 where the file itself could not be opened.
    pub(crate) line: usize,
    /// What is wrong with it.
    pub(crate) what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TraceError {}

/// Reads a trace file; a name that ends in `.gz` is decompressed.
pub(crate) fn read(path: &Path) -> Result<Trace, TraceError> {
    let open = |error: io::Error| TraceError {
        line: 0,
        what: error.to_string(),
    };
    let file = File::open(path).map_err(open)?;
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let text: Box<dyn Read> = if compressed {
        Box::new(flate2::read::MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    parse(name, BufReader::new(text))
}

/// Reads a trace from text.
pub(crate) fn parse(name: String, text: impl BufRead) -> Result<Trace, TraceError> {
    let mut parser = Parser::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.map_err(|error| error.to_string());
        line.and_then(|line| parser.line(&line))
            .map_err(|what| TraceError {
                line: number + 1,
                what,
            })?;
    }
    parser.close();
    if !parser.says_what_is_read {
        parser
            .events
            .retain(|event| !matches!(event, Event::Run { .. }));
        parser.operands.clear();
    }
    Ok(Trace {
        name,
        storages: parser.sizes.len(),
        events: parser.events,
        operands: parser.operands,
        peak_live_bytes: parser.peak_live_bytes,
    })
}

#[derive(Default)]
struct Parser {
    events: Vec<Event>,
    operands: Vec<Operand>,
    /// Where the operands of the operator begin whose lines are being read.
    first: usize,
    /// Who made what it made so far.
    maker: Option<String>,
    says_what_is_read: bool,
    /// The size of every storage so far; `None` once it is released.
    sizes: Vec<Option<u64>>,
    live_bytes: u64,
    peak_live_bytes: u64,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => Ok(()),
            Some(word) if word.starts_with('#') => Ok(()),
            Some("m") => {
                self.close();
                Ok(())
            }
            Some("a") => {
                let id = number(words.next(), "an id")?;
                let bytes = number(words.next(), "a size")?;
                self.alloc(id, bytes)?;
                self.make(id, words.next().unwrap_or_default());
                Ok(())
            }
            Some("f") => {
                self.close();
                self.free(number(words.next(), "an id")?)?;
                words
                    .next()
                    .map_or(Ok(()), |word| Err(format!("`{word}` after a release")))
            }
            Some("r") => {
                self.close();
                self.uses(words, Role::Read)
            }
            Some("w") => {
                self.uses(words, Role::Update)?;
                self.close();
                Ok(())
            }
            Some(word) => Err(format!("`{word}` is no event")),
        }
    }

    /// The operator whose lines these are makes a storage. A line that cannot be of the one before it
    /// (another maker; nothing read, so nothing tells them apart) begins the next.
    fn make(&mut self, id: usize, maker: &str) {
        let before = self.maker.as_deref();
        let reads = self.operands.get(self.first);
        let reads = reads.is_some_and(|operand| operand.role == Role::Read);
        if before.is_some_and(|before| before != maker || !reads) {
            self.close();
        }
        self.maker = Some(maker.into());
        let role = Role::Make;
        self.operands.push(Operand { id, role });
    }

    fn uses<'a>(&mut self, words: impl Iterator<Item = &'a str>, role: Role) -> Result<(), String> {
        self.says_what_is_read = true;
        for word in words {
            let id: usize = number(Some(word), "an id")?;
            self.live(id)?;
            let mut known = self.operands[self.first..].iter_mut();
            match known.find(|operand| operand.id == id) {
                Some(operand) if operand.role == Role::Read => operand.role = role,
                Some(_) => {}
                None => self.operands.push(Operand { id, role }),
            }
        }
        Ok(())
    }

    /// The operator has no more lines.
    fn close(&mut self) {
        let (first, count) = (self.first, self.operands.len() - self.first);
        if count > 0 {
            self.events.push(Event::Run { first, count });
        }
        self.first = self.operands.len();
        self.maker = None;
    }

    fn alloc(&mut self, id: usize, bytes: u64) -> Result<(), String> {
        if id != self.sizes.len() {
            let expected = self.sizes.len();
            return Err(format!(
                "storage {id} is created where {expected} is the next id"
            ));
        }
        if bytes == 0 {
            return Err(format!("storage {id} has no bytes"));
        }
        let live_bytes = self.live_bytes.checked_add(bytes);
        self.live_bytes = live_bytes.ok_or_else(|| "the live bytes pass 2^64".to_string())?;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.sizes.push(Some(bytes));
        self.events.push(Event::Alloc { id, bytes });
        Ok(())
    }

    fn free(&mut self, id: usize) -> Result<(), String> {
        self.live_bytes -= self.live(id)?;
        self.sizes[id] = None;
        self.events.push(Event::Free { id });
        Ok(())
    }

    fn live(&self, id: usize) -> Result<u64, String> {
        let size = self
            .sizes
            .get(id)
            .ok_or_else(|| format!("storage {id} was never created"))?;
        size.ok_or_else(|| format!("storage {id} was released before"))
    }
}

fn number<T: std::str::FromStr>(word: Option<&str>, what: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse().map_err(|_| format!("`{word}` is not {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<usize, (usize, &str)>) {
        let found = parse("test".into(), text.as_bytes());
        let found = found
            .map(|trace| trace.events.len())
            .map_err(|error| (error.line, error.what));
        assert_eq!(
            found,
            expected.map_err(|(line, what)| (line, what.to_string())),
            "{text:?}"
        );
    }

    #[test]
    fn good_traces_are_read_and_bad_lines_are_named() {
        check(
            "# name: x\na 0 5 P.empty\nm step\nr 0\na 1 7 F.mm\nw 1\nf 0\n",
            Ok(5),
        );
        check("a 0 5\nm step\na 1 7\nf 0\n", Ok(3));
        check("", Ok(0));
        check(
            "a 0 5\nf 0\nf 0\n",
            Err((3, "storage 0 was released before")),
        );
        check("a 0 5\nf 1\n", Err((2, "storage 1 was never created")));
        check(
            "a 0 5\na 0 5\n",
            Err((2, "storage 0 is created where 1 is the next id")),
        );
        check("a 0 x\n", Err((1, "`x` is not a size")));
        check("a 0\n", Err((1, "a size is missing")));
        check("a 0 0\n", Err((1, "storage 0 has no bytes")));
        check("a -1 5\n", Err((1, "`-1` is not an id")));
        check("a 0 5\nf 0 1\n", Err((2, "`1` after a release")));
        check("x\n", Err((1, "`x` is no event")));
        check("r 0\n", Err((1, "storage 0 was never created")));
        check(
            "a 0 18446744073709551615\na 1 1\n",
            Err((2, "the live bytes pass 2^64")),
        );
        let peak = parse("test".into(), &b"a 0 5\na 1 7\nf 0\na 2 4\n"[..])
            .unwrap()
            .peak_live_bytes;
        assert_eq!(peak, 12);
    }

    /// The operators of a trace, each as its operands: `2` read, `+2` made, `!2` changed in place.
    fn check_operators(text: &str, expected: &[&str]) {
        let trace = parse("test".into(), text.as_bytes()).unwrap();
        let runs = trace.events.iter().filter_map(|event| match event {
            Event::Run { first, count } => Some(&trace.operands[*first..first + count]),
            _ => None,
        });
        let found: Vec<String> = runs
            .map(|operands| {
                let named = operands.iter().map(|operand| match operand.role {
                    Role::Read => format!("{}", operand.id),
                    Role::Make => format!("+{}", operand.id),
                    Role::Update => format!("!{}", operand.id),
                });
                named.collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn lines_that_belong_together_are_one_operator() {
        check_operators("a 0 5 P.empty\nr 0\nw 0\n", &["+0", "!0"]);
        check_operators(
            "a 0 5 P.empty\na 1 5 P.empty\nr 0 1 0\na 2 5 F.mm\na 3 5 F.mm\na 4 5 F.zeros\nf 0\n",
            &["+0", "+1", "0 1 +2 +3", "+4"],
        );
        check_operators(
            "a 0 5 P.empty\nr 0\nr 0\na 1 5 F.add\nw 0 1\nm step\nr 1\n",
            &["+0", "0", "!0 +1", "1"],
        );
        check_operators("a 0 5 P.empty\nm step\nf 0\n", &[]);
    }
}
