//! A model file of any bytes: see `model_file` of `lapidary-fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lapidary_fuzzing::model_file::body(bytes);
});
