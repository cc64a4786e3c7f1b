//! Semantic search with a sentence encoder of the BERT family, such as all-MiniLM-L6-v2. A text
//! becomes a vector of unit length. Texts that mean the same have vectors close to each other.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config` | the model's sizes from `config.json`, checked |
//! | `words` | from text to tokens, by the model's own `tokenizer.json` |
//! | `precision` | the number of bits of the weights |
//! | `weights` | the tensors of the model's file; the word table, in parts if it is too large |
//! | `encoder` | from tokens to vectors: all the arithmetic, on lapidary's operations |
//! | `batch` | batches of texts with similar lengths |
//! | `model` | all of these combined, from a folder or from bytes |
//! | `identity` | the identity of a model, to refuse an index of another one |
//! | `index` | vectors with their texts: searched, saved, loaded |
//! | `small` | a small model with made-up weights, for tests |
//!
//! It also compiles for the browser: calls that wait for the device are asynchronous, and files
//! come as bytes or, natively, as paths.

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
pub mod small;
mod weights;
mod words;

pub use batch::Batch;
pub use config::Config;
pub use encoder::{Encoder, Encoding};
pub use error::{Error, Result};
pub use index::{Entry, Hit, Index};
pub use model::{Embedded, Files, Model};
pub use precision::Precision;
pub use words::{Tokens, Words};
