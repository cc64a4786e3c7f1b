//! What the fuzz targets do with bytes: a module for each target, whose `body` takes bytes that
//! anybody may have made. It panics where the library breaks a promise, and says whether the bytes
//! were what the target is about.
//!
//! `fuzz/` calls the bodies from libFuzzer, which needs nightly Rust. The tests here call them with
//! the same seeds and some thousand changed ones, on stable Rust. Nothing here is published.

pub mod allocator;
mod elements;
pub mod model_file;
pub mod rmm_log;
pub mod snapshot;
pub mod state_file;
#[cfg(test)]
mod tests;
pub mod wgsl;

use lapidary::Gpu;
use lapidary::sim::{SimHandle, SimOptions};

/// Does a character break lines or turn the direction of text, without being seen?
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
}

/// A simulated device, whose memory is dirty.
fn device() -> (Gpu, SimHandle) {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).expect("these options can be")
}
