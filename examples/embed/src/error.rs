//! Errors: each is a sentence that says what to do.

use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub enum Error {
    /// A file of the model, or an index, cannot be used: its name, and the reason.
    File { name: String, reason: String },
    /// An argument makes no sense.
    Input(String),
    /// An error of lapidary.
    Gpu(lapidary::Error),
}

impl Error {
    pub fn file(name: &str, reason: impl Into<String>) -> Error {
        Error::File {
            name: name.to_owned(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { name, reason } => write!(f, "{name}: {reason}"),
            Error::Input(sentence) => f.write_str(sentence),
            Error::Gpu(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Gpu(error) => Some(error),
            _ => None,
        }
    }
}

impl From<lapidary::Error> for Error {
    fn from(error: lapidary::Error) -> Self {
        Error::Gpu(error)
    }
}
