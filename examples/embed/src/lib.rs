//! Semantic search with a sentence encoder of the BERT family, such as all-MiniLM-L6-v2: a text
//! becomes a vector of unit length, and texts that mean the same have vectors close to each other.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config` | what `config.json` says of the model, checked |
//! | `words` | from text to tokens, by the model's own `tokenizer.json` |
//! | `precision` | in how many bits weights are kept |
//! | `weights` | the tensors of the model's file; the table of words, in parts where room is short |
//! | `encoder` | from tokens to vectors: all the arithmetic, on lapidary's operations |
//! | `batch` | texts of like lengths together |
//! | `model` | these put together, from a folder or from bytes |
//! | `identity` | which model it is, so that an index of another one is known |
//! | `index` | vectors with their texts: searched, saved, loaded |
//!
//! It compiles for the browser too: whatever waits for the device is asynchronous, and files come
//! as bytes or, natively, as paths.

mod batch;
mod config;
mod encoder;
mod error;
mod identity;
mod index;
mod model;
#[cfg(not(target_arch = "wasm32"))]
pub mod places;
mod precision;
mod weights;
mod words;

pub use batch::Batch;
pub use config::Config;
pub use encoder::Encoder;
pub use error::{Error, Result};
pub use index::{Entry, Hit, Index};
pub use model::{Embedded, Files, Model};
pub use precision::Precision;
pub use words::{Tokens, Words};
