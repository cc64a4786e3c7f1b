//! Pure bookkeeping: offsets and handles, no GPU.
#![forbid(unsafe_code)]
