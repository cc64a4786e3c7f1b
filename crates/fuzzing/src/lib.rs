//! The bodies of the fuzz targets, one module each. A `body` takes untrusted bytes. It panics if
//! the library breaks a promise, and returns whether the bytes are valid for the target.
//!
//! `fuzz/` calls the bodies from libFuzzer, which needs nightly Rust. The tests here call them on
//! stable Rust, with the corpus and some thousand mutations of it. This crate is not published.

pub mod allocator;
mod elements;
pub mod model_file;
#[cfg(test)]
mod mutated;
pub mod rmm_log;
pub mod snapshot;
pub mod state_file;
pub mod wgsl;

use lapidary::Gpu;
use lapidary::sim::{SimHandle, SimOptions};

/// Is it an invisible character that breaks lines or changes the direction of text?
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
}

/// A simulated device whose memory begins with garbage.
fn device() -> (Gpu, SimHandle) {
    let options = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    Gpu::simulated(options).expect("these options can be")
}
