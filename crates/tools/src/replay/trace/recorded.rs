//! The format of our recordings: `a ID BYTES MAKER` and `f ID` for storages, `r` and `w` for the
//! reads and changes of operators. `m` is for marks, `#` for remarks on the whole.

use super::{Book, Event, Operand, Role, Trace, number, shown};

#[derive(Default)]
pub(super) struct Parser {
    book: Book,
    operands: Vec<Operand>,
    /// For each storage, its last index in `operands`.
    places: Vec<usize>,
    /// The first operand of the operator whose lines are being read.
    first: usize,
    /// The maker of the storages that the operator has made so far.
    maker: Option<String>,
    says_what_is_read: bool,
}

impl Parser {
    pub(super) fn has_event(&self) -> bool {
        !self.book.events.is_empty()
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
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
                let next = self.book.sizes.len();
                if id != next {
                    return Err(format!(
                        "storage {id} is created where {next} is the next id"
                    ));
                }
                self.book.alloc(bytes)?;
                self.make(id, words.next().unwrap_or_default());
                Ok(())
            }
            Some("f") => {
                self.close();
                self.book.free(number(words.next(), "an id")?)?;
                words.next().map_or(Ok(()), |word| {
                    Err(format!("`{}` after a release", shown(word)))
                })
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
            Some(word) => Err(format!("`{}` is not an event", shown(word))),
        }
    }

    /// Records that the current operator makes a storage. A new operator begins if the maker
    /// differs, or if the current one has read nothing, because then two calls look the same.
    fn make(&mut self, id: usize, maker: &str) {
        let before = self.maker.as_deref();
        let reads = self.operands.get(self.first);
        let reads = reads.is_some_and(|operand| operand.role == Role::Read);
        if before.is_some_and(|before| before != maker || !reads) {
            self.close();
        }
        self.maker = Some(maker.into());
        let role = Role::Make;
        self.places.push(self.operands.len());
        self.operands.push(Operand { id, role });
    }

    fn uses<'a>(&mut self, words: impl Iterator<Item = &'a str>, role: Role) -> Result<(), String> {
        self.says_what_is_read = true;
        for word in words {
            let id: usize = number(Some(word), "an id")?;
            self.book.live(id)?;
            let place = self.places[id];
            if place < self.first {
                self.places[id] = self.operands.len();
                self.operands.push(Operand { id, role });
            } else if self.operands[place].role == Role::Read {
                self.operands[place].role = role;
            }
        }
        Ok(())
    }

    /// Ends the current operator.
    fn close(&mut self) {
        let (first, count) = (self.first, self.operands.len() - self.first);
        if count > 0 {
            self.book.events.push(Event::Run { first, count });
        }
        self.first = self.operands.len();
        self.maker = None;
    }

    /// Ends the trace after its last line.
    pub(super) fn finish(mut self) -> Trace {
        self.close();
        if !self.says_what_is_read {
            let events = &mut self.book.events;
            events.retain(|event| !matches!(event, Event::Run { .. }));
            self.operands.clear();
        }
        self.book.finish(self.operands)
    }
}
