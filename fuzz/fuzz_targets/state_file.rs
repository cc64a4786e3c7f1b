//! A state file of any bytes: see `state_file` of `lapidary-fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lapidary_fuzzing::state_file::body(bytes);
});
