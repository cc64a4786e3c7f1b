//! Failures of commands, as sentences for people.

use std::fmt;
use std::io;

/// The result of a command.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Sentences without a full stop.
    Said(Vec<String>),
    /// The reader of stdout closed it.
    NobodyReads,
}

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Failure {
        Failure::Said(vec![sentence.into()])
    }

    /// All failures together; an empty list is success.
    pub(crate) fn all(failures: Vec<Failure>) -> Result {
        let mut sentences = Vec::new();
        for failure in failures {
            match failure {
                Failure::Said(more) => sentences.extend(more),
                Failure::NobodyReads => return Err(Failure::NobodyReads),
            }
        }
        match sentences.is_empty() {
            true => Ok(()),
            false => Err(Failure::Said(sentences)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Said(sentences) => f.write_str(&sentences.join("\n")),
            Failure::NobodyReads => f.write_str("the output was closed"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::NobodyReads,
            _ => Failure::new(format!("the output cannot be written: {error}")),
        }
    }
}

impl From<lapidary_tools::Error> for Failure {
    fn from(error: lapidary_tools::Error) -> Self {
        Failure::new(error.to_string())
    }
}

impl From<lapidary_core::Error> for Failure {
    fn from(error: lapidary_core::Error) -> Self {
        Failure::new(error.to_string())
    }
}
