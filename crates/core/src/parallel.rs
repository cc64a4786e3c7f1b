//! Copies of large memory by several threads. One core cannot use the whole bandwidth of the
//! memory.

use parking_lot::Mutex;

use crate::units::MIB;

/// From this size on a copy is worth a thread. A thread costs as much as a copy of about 100 KiB.
const LARGE_BYTES: usize = 2 * PART_BYTES;

/// The bytes that a thread takes at a time. Small parts let all threads end together, even if one
/// of them is held up. Parts of 1 MiB are so large that the C library's copy bypasses the caches.
/// Parts of 512 KiB do not: 64 MiB from mapped memory came at 12 GB/s instead of 17.
pub const PART_BYTES: usize = MIB as usize;

/// On no machine that was measured did more threads copy faster.
#[cfg(not(target_arch = "wasm32"))]
const MOST_THREADS: usize = 4;

/// Copies bytes from one slice to another of the same length.
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    let parts = to.chunks_mut(PART_BYTES).zip(from.chunks(PART_BYTES));
    share_out(from.len(), parts, |(to, from)| to.copy_from_slice(from));
}

/// Calls `work` once for each part. Each part has [`PART_BYTES`], and all parts together have
/// `size_bytes`. Other threads help if that is large.
pub fn share_out<P: Send>(
    size_bytes: usize,
    parts: impl Iterator<Item = P> + Send,
    work: impl Fn(P) + Sync,
) {
    if size_bytes < LARGE_BYTES {
        return parts.for_each(work);
    }
    let parts = Mutex::new(parts);
    let next = || parts.lock().next();
    let take_parts = || {
        while let Some(part) = next() {
            work(part);
        }
    };
    beside_others(&take_parts);
}

/// Calls the function here and on other threads at once.
#[cfg(not(target_arch = "wasm32"))]
fn beside_others(take_parts: &(dyn Fn() + Sync)) {
    use std::thread::{Builder, scope};

    scope(|scope| {
        for _ in 1..threads() {
            // If a thread cannot be started, the others take its parts.
            if Builder::new().spawn_scoped(scope, take_parts).is_err() {
                break;
            }
        }
        take_parts();
    });
}

/// A web page has no threads for this.
#[cfg(target_arch = "wasm32")]
fn beside_others(take_parts: &(dyn Fn() + Sync)) {
    take_parts();
}

/// The number of threads. It is asked for once, since the system reads files to answer.
#[cfg(not(target_arch = "wasm32"))]
fn threads() -> usize {
    use std::sync::OnceLock;
    use std::thread::available_parallelism;

    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS
        .get_or_init(|| available_parallelism().map_or(1, |cores| cores.get().min(MOST_THREADS)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_part_is_done_once_whatever_the_size() {
        for len in [
            0,
            1,
            PART_BYTES,
            LARGE_BYTES - 1,
            LARGE_BYTES,
            LARGE_BYTES + 1,
            5_000_001,
        ] {
            let from: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut to = vec![0; len];
            let parts = to.chunks_mut(PART_BYTES).zip(from.chunks(PART_BYTES));
            share_out(len, parts, |(to, from)| {
                for (to, from) in to.iter_mut().zip(from) {
                    // The sum shows a part that was done twice.
                    *to += from;
                }
            });
            assert!(to == from, "{len} bytes");
        }
    }

    #[test]
    fn what_is_large_is_done_by_several_threads_where_there_are_cores_for_them() {
        let seen = Mutex::new(HashSet::new());
        let enough = threads();
        let begun = Instant::now();
        share_out(LARGE_BYTES, 0..64, |_| {
            seen.lock().insert(thread::current().id());
            // Each part waits until all threads have taken one. Otherwise the first thread would do
            // all of them. The limit of 30 s matters only if a thread cannot start.
            while seen.lock().len() < enough && begun.elapsed() < Duration::from_secs(30) {
                thread::yield_now();
            }
        });
        assert_eq!(seen.lock().len(), enough);

        let here = thread::current().id();
        share_out(LARGE_BYTES - 1, 0..64, |_| {
            assert_eq!(thread::current().id(), here)
        });
    }
}
