//! The error of this crate.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong with a language model. After an error, everything that existed still works.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of lapidary: a file, a shape, the memory, the device.
    #[error(transparent)]
    Lapidary(#[from] lapidary::Error),
    /// The description of the model is missing, or says what no model can be.
    #[error("the description of the model in {path}: {reason}")]
    Description {
        /// Where the description is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The model is of a family that this crate does not know.
    #[error("{path} is a model of {found:?}; known are {known}")]
    Architecture {
        /// Where the description is.
        path: PathBuf,
        /// The name that the description gives.
        found: String,
        /// The names that would be understood.
        known: String,
    },
    /// A sequence would be longer than the model's context.
    #[error(
        "{sequence:?} would have {tokens} tokens, and the context of the model is {context}: \
         shorten it, or open the model with a longer context"
    )]
    Context {
        /// The name of the sequence.
        sequence: String,
        /// The tokens that it would have.
        tokens: usize,
        /// The most tokens that it may have.
        context: usize,
    },
    /// A token is not in the vocabulary.
    #[error(
        "token {token} is not in the vocabulary of {vocabulary}: does the tokenizer belong to the model?"
    )]
    Token {
        /// The token.
        token: u32,
        /// The number of tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A call without tokens, a sampler with impossible numbers, and the like.
    #[error("{0}")]
    Argument(String),
}
