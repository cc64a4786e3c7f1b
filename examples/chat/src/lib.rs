//! Talks with a language model: its tokenizer, its template of conversations, and a history, on
//! `lapidary-lm`.

pub mod arguments;
pub mod error;
pub mod history;
pub mod server;
pub mod talk;
pub mod template;
pub mod terminal;
pub mod tokenizer;
