//! A snapshot of any bytes: see `snapshot` of `lapidary-fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lapidary_fuzzing::snapshot::body(bytes);
});
