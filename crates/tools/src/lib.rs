//! Shows the memory of GPU programs that use lapidary. This is the program `lapidary` and the
//! library behind it, which your app may use too.
//!
//! To look at snapshots later, an app does not need this library. The feature `snapshot` of
//! `lapidary` writes snapshots to files, and the program opens them. Depend on this library if the
//! app itself shows its memory, with the folder of your clone of lapidary:
//!
//! ```toml
//! [dependencies.lapidary-tools]
//! path = "../lapidary/crates/tools"
//! default-features = false
//! features = ["monitor"]
//! ```
//!
//! | module | feature | what it does |
//! | --- | --- | --- |
//! | [`page`] | – | writes one or two snapshots as an HTML page |
//! | [`formats`] | – | writes snapshots for PyTorch's viewer, Perfetto and RMM's tools |
//! | `monitor` | `monitor` | draws the memory live on a terminal |
//! | `socket` | `serve`, on Unix | sends the statistics to `lapidary top` or to your own program |
//!
//! The feature `cli`, on by default, adds the program with its arguments and progress bars.
//! Everything here reads snapshots and samples and changes nothing.

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
