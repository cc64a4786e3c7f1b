//! Statistics for another process of the same user: a local socket that the app opens when it is
//! asked to, and nothing else that listens.
//!
//! A client sends a line, `REQUEST`; the answer is a line of JSON, an `Answer`. Nobody else's
//! process comes in: the socket has the mode 0600 and lies in a folder with 0700, and on Linux and
//! Android, but not elsewhere, both ends ask the kernel who is at the other. A server answers when
//! it is asked and sleeps else; what a client may make it hold is bounded, and so is how long it
//! waits for one.

mod client;
mod place;
mod server;
#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests;

use lapidary_core::stats::MemoryStats;
use serde::{Deserialize, Serialize};

use crate::Error;

pub use client::{Remote, Served};
pub use server::{MonitorServer, serve};

const REQUEST: &str = "memory 1\n";
/// Of the answer: a program that knows another says so.
const VERSION: u32 = 3;

/// An answer is never longer: of more holders and slabs than so many the smallest are left out.
const MOST_ANSWER_BYTES: u64 = 4 << 20;
const MOST_TAGS: usize = 512;
const MOST_SLABS: usize = 4096;

/// What tells whether the rest can be understood.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

fn refuse(reason: String) -> Error {
    Error::Socket { reason }
}

#[derive(Deserialize, Serialize)]
struct Answer {
    version: u32,
    pid: u32,
    program: String,
    stats: MemoryStats,
}
