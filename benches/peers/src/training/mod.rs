//! What the training programs share: the sizes, the clock, and the memory of the process.
//!
//! The model is that of `benches/training` of lapidary. Call them with its sizes, for example
//! `training_candle 12 128 4 128 8 256`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lapidary_harness::Result;

const STEPS: usize = 6;

#[derive(Clone, Copy)]
pub struct Sizes {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub length: usize,
    pub batch: usize,
    pub words: usize,
}

impl Sizes {
    pub fn from_arguments() -> Result<Sizes> {
        let numbers = std::env::args().skip(1).map_while(|word| word.parse().ok());
        let numbers: Vec<usize> = numbers.collect();
        let [layers, width, heads, length, batch, words] = numbers[..] else {
            return Err("the sizes are LAYERS WIDTH HEADS LENGTH BATCH WORDS".into());
        };
        Ok(Sizes {
            layers,
            width,
            heads,
            length,
            batch,
            words,
        })
    }

    /// Words, and those that follow them.
    pub fn text(&self) -> [Vec<u32>; 2] {
        let word = |at: usize| ((at * at / 3 + at) % self.words) as u32;
        let count = self.batch * self.length;
        [
            (0..count).map(word).collect(),
            (1..=count).map(word).collect(),
        ]
    }
}

/// Counts the bytes that the process has allocated.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    let now = NOW.fetch_add(by, Relaxed) + by;
    MOST.fetch_max(now, Relaxed);
}

// SAFETY: All calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: The caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: As above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        grown(len);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: As above.
        unsafe { System.realloc(at, layout, len) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: As above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// Runs steps, of which the first two warm up, and prints the best time and the peaks.
pub fn measure(by: &str, mut step: impl FnMut() -> Result<f32>) -> Result {
    let mut losses = vec![step()?, step()?];
    MOST.store(NOW.load(Relaxed), Relaxed);
    let mut best = Duration::MAX;
    for _ in 0..STEPS {
        let start = Instant::now();
        losses.push(step()?);
        best = best.min(start.elapsed());
    }
    println!(
        "{by}: seconds_per_step {:.4} heap_peak_bytes {} process_peak_bytes {} losses {:.3} {:.3}",
        best.as_secs_f64(),
        MOST.load(Relaxed),
        status("VmHWM"),
        losses[0],
        losses[losses.len() - 1],
    );
    Ok(())
}
