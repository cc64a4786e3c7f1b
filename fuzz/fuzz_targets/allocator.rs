//! Calls of the allocator in any order: see `allocator` of `lapidary-fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lapidary_fuzzing::allocator::body(bytes);
});
