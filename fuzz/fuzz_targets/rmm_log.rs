//! A log of RMM's of any bytes: see `rmm_log` of `lapidary-fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lapidary_fuzzing::rmm_log::body(bytes);
});
