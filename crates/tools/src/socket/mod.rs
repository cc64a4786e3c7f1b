//! Statistics for another process of the same user, over a local socket. The app opens the socket;
//! nothing else listens.
//!
//! A client sends the line of a `Request` and gets a line of JSON: an `Answer`, or a snapshot.
//! Other users cannot connect: the socket has the mode 0600 and is in a folder with the mode 0700.
//! On Linux and Android both ends also ask the kernel for the user of the other one. The server's
//! thread sleeps between requests. The memory and the time that a client can cost it are bounded.

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

/// What a client may ask for. The first bytes of the lines differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Memory,
    Snapshot,
}

impl Request {
    const ALL: [Request; 2] = [Request::Memory, Request::Snapshot];

    fn line(self) -> &'static [u8] {
        match self {
            Request::Memory => b"memory 1\n",
            Request::Snapshot => b"snapshot 1\n",
        }
    }

    /// Longest answer.
    fn most_bytes(self) -> u64 {
        match self {
            Request::Memory => MOST_ANSWER_BYTES,
            Request::Snapshot => MOST_SNAPSHOT_BYTES,
        }
    }
}

/// Version of the answer, and the oldest that a client can read. As with snapshots, a new name does
/// not raise it.
const VERSION: u32 = 5;
const OLDEST_VERSION: u32 = 4;

/// Longest answer with statistics. If necessary, the smallest holders and slabs are left out.
const MOST_ANSWER_BYTES: u64 = 4 << 20;
/// Longest snapshot, and the most events in it. If necessary, the oldest events are left out.
const MOST_SNAPSHOT_BYTES: u64 = 512 << 20;
const MOST_MOMENTS: usize = 1 << 20;
const MOST_TAGS: usize = 512;
const MOST_SLABS: usize = 4096;

/// The beginning of an answer. It says whether this version can read the rest.
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
    /// The arguments of the process, shortened. They tell programs of one name apart.
    #[serde(default)]
    arguments: String,
    stats: MemoryStats,
}
