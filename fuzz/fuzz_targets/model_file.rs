//! A model file of any bytes: see `tests/model/look.rs`, which is all that happens.

#![no_main]

#[path = "../../tests/model/look.rs"]
mod look;

use std::cell::OnceCell;

use lapidary::Gpu;
use lapidary::sim::SimHandle;

thread_local! {
    static DEVICE: OnceCell<(Gpu, SimHandle)> = const { OnceCell::new() };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    DEVICE.with(|device| {
        let (gpu, sim) = device.get_or_init(look::device);
        look::look(gpu, sim, bytes);
    });
});
