//! The error of this program.

use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Model(#[from] lapidary_lm::Error),
    #[error(transparent)]
    Lapidary(#[from] lapidary::Error),
    #[error("{path}: {cause}")]
    File {
        path: PathBuf,
        cause: std::io::Error,
    },
    #[error("{path} is no history: {cause}")]
    History {
        path: PathBuf,
        cause: serde_json::Error,
    },
    #[error("the tokenizer of {path}: {reason}")]
    Tokenizer { path: PathBuf, reason: String },
    #[error(
        "the tokenizer has token {token}, and the model's vocabulary is {vocabulary}: they do not \
         belong together"
    )]
    Vocabulary { token: u32, vocabulary: usize },
    #[error("the template of conversations: {0}")]
    Template(String),
    #[error("nothing can listen at {address}: {cause}")]
    Address {
        address: String,
        cause: std::io::Error,
    },
    #[error("`{0}` is no size: write 512MiB, 1.5GiB, or a number of bytes")]
    Size(String),
}
