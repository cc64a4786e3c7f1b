//! See the memory of GPU programs that use lapidary: the program `lapidary`, and what it is made
//! of, for your app.
//!
//! An app needs nothing of this to be looked at afterwards: the feature `snapshot` of `lapidary`
//! writes snapshots to files, and the program opens them. Depend on this library if the app itself
//! shows its memory:
//!
//! ```toml
//! lapidary-tools = { version = "0.1", default-features = false, features = ["monitor"] }
//! ```
//!
//! | module | feature | what it does |
//! | --- | --- | --- |
//! | [`page`] | – | writes a snapshot, or two, as a page of HTML |
//! | [`formats`] | – | writes snapshots for PyTorch's viewer, Perfetto and RMM's tools |
//! | `monitor` | `monitor` | draws the memory live on a terminal |
//! | `socket` | `serve`, on Unix | tells the memory to `lapidary top`, or to a program of your own |
//!
//! The feature `cli`, on by default, is the program with its arguments and progress bars.
//! Everything here reads snapshots and samples, and changes nothing.

mod error;
pub mod formats;
#[cfg(all(feature = "monitor", not(target_arch = "wasm32")))]
pub mod monitor;
pub mod page;
#[cfg(feature = "replay")]
#[doc(hidden)]
pub mod replay;
#[cfg(all(feature = "serve", unix))]
pub mod socket;

pub use error::{Error, Result};
