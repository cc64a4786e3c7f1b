//! The examples in a browser, and a test of the library on the browser's own GPU.
//!
//! | file | what |
//! | --- | --- |
//! | `cases` | what is computed, here and on the machine that builds the page |
//! | `expected` | what that machine got |
//! | `test` | runs the cases in the browser, and what only a browser has: its limits, a lost device |
//! | `fluid` | the fluid of examples/fluid, as pixels for a canvas |
//! | `search` | the search by meaning of examples/embed, with files and texts from the page |
//! | `script` | what the page's script calls, and what it is called for |

pub mod cases;
pub mod expected;
#[cfg(target_arch = "wasm32")]
mod fluid;
#[cfg(target_arch = "wasm32")]
mod script;
#[cfg(target_arch = "wasm32")]
mod search;
#[cfg(target_arch = "wasm32")]
mod test;
