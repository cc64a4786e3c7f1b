//! What the program `lapidary` is made of, for tests and benches: recorded allocation traces, and
//! what allocators make of them. The program itself is `main.rs` and a file a command in `cli/`.

#[doc(hidden)]
pub mod replay;
