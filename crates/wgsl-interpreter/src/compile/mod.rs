//! Compiles naga's IR to [`Code`](super::code::Code).
//!
//! ```text
//!   module ── globals and functions, callees first
//!    ├─ statements   blocks, loops, calls, barriers, subgroup operations
//!    ├─ values       the values of a function
//!    │   ├─ expressions  operators, casts, composites
//!    │   ├─ functions    WGSL's builtin functions
//!    │   ├─ pointers     places, loads and stores
//!    │   └─ cooperative  matrices of a subgroup
//!    └─ compiler     the code so far
//!        ├─ constants    values known before the kernel runs
//!        └─ layout       the words of types, and their places in memory
//! ```
//!
//! naga has validated the module. If this module does not support a valid construct, it refuses the
//! kernel and names the place.

mod compiler;
mod constants;
mod cooperative;
mod expressions;
mod functions;
mod layout;
mod module;
mod place;
mod pointers;
mod statements;
mod values;

pub(super) use module::compile;
