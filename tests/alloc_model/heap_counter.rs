//! A global allocator that counts its calls on one thread: tests run side by side.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends may free after its counter is gone; nobody counts there.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged, whose contract is the same. Counting
// touches only a thread-local number that needs neither allocation nor destructor.
#[allow(
    unsafe_code,
    reason = "a global allocator cannot be written without it"
)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: `pointer` came from `System`, as every call does.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: `pointer` came from `System`, as every call does.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// The allocations, reallocations and frees that `work` makes on this thread.
pub(crate) fn count_heap_calls(work: impl FnOnce()) -> u64 {
    let before = CALLS.with(Cell::get);
    work();
    CALLS.with(Cell::get) - before
}
