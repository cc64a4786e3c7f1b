//! Talks with a language model: its tokenizer, its template of conversations, and a history, on
//! `lapidary-lm`. Without the feature `program` it also compiles for a browser.

#[cfg(feature = "program")]
pub mod arguments;
pub mod error;
#[cfg(feature = "program")]
pub mod history;
#[cfg(feature = "program")]
pub mod server;
pub mod talk;
pub mod template;
#[cfg(feature = "program")]
pub mod terminal;
pub mod tokenizer;
