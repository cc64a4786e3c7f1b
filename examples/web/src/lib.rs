//! The examples in a browser, and a test of the library on the browser's own GPU.
//!
//! | file | what it has |
//! | --- | --- |
//! | `cases` | the computations, for the browser and for the machine that builds the page |
//! | `expected` | the results of that machine |
//! | `test` | the cases in the browser, and tests that only a browser has: its limits, a lost device |
//! | `fluid` | the fluid of examples/fluid, as pixels for a canvas |
//! | `search` | the search by meaning of examples/embed, with files and texts from the page |
//! | `chat` | the language models of examples/chat, with weights by range requests |
//! | `script` | the functions between the page's script and the programs |

pub mod cases;
#[cfg(target_arch = "wasm32")]
mod chat;
pub mod expected;
#[cfg(target_arch = "wasm32")]
mod fluid;
#[cfg(target_arch = "wasm32")]
mod script;
#[cfg(target_arch = "wasm32")]
mod search;
#[cfg(target_arch = "wasm32")]
mod test;
