//! Why a kernel cannot be interpreted.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// Why a kernel cannot be interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// naga refuses the text.
    Invalid {
        /// naga's message, with the lines that it concerns.
        message: String,
    },
    /// The module has no compute entry point of this name.
    NoEntryPoint {
        /// The name.
        name: String,
    },
    /// The kernel is valid, but the interpreter does not support a construct of it.
    Unsupported {
        /// The range of bytes in the text.
        place: Range<usize>,
        /// What is not supported.
        message: String,
    },
    /// The kernel declares and uses a buffer that the dispatch has no [`Binding`](crate::Binding)
    /// for.
    MissingBinding {
        /// The number of the bind group.
        group: u32,
        /// The number within the group.
        index: u32,
    },
    /// The dispatch has too many invocations, words or steps.
    TooLarge {
        /// The number and its limit.
        message: String,
    },
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Error::Invalid { message }
            | Error::Unsupported { message, .. }
            | Error::TooLarge { message } => f.write_str(message),
            Error::NoEntryPoint { name } => write!(f, "there is no compute entry point `{name}`"),
            Error::MissingBinding { group, index } => write!(
                f,
                "the kernel uses a buffer at group {group}, binding {index}, and the dispatch has \
                 no `Binding` for it"
            ),
        }
    }
}

impl std::error::Error for Error {}
