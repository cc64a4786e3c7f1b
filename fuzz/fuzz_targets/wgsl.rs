//! A kernel of any text: see `wgsl` of `lapidary-fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: lapidary_fuzzing::wgsl::quiet_parser(), |bytes: &[u8]| {
    lapidary_fuzzing::wgsl::body(bytes);
});
