//! Bytes that may be WGSL. A text is a kernel or gives an error with a clean excerpt; the process
//! never ends.

use std::cell::OnceCell;
use std::panic::{Location, set_hook, take_hook};

use lapidary::sim::SimHandle;
use lapidary::{Error, Gpu, Kernel};

use crate::device;

thread_local! {
    static DEVICE: OnceCell<(Gpu, SimHandle)> = const { OnceCell::new() };
}

/// Reflects the bytes as a kernel's text and calls the kernel without operands. Returns whether the
/// bytes are a kernel.
pub fn body(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    DEVICE.with(|device_cell| {
        let (gpu, _) = device_cell.get_or_init(device);
        match Kernel::new(gpu, &text) {
            Ok(kernel) => {
                let called = kernel.call().groups([1, 1, 1]).run();
                match called.map(drop) {
                    Ok(()) | Err(Error::Kernel(_)) => true,
                    Err(other) => panic!("{other:?}\n{text:?}"),
                }
            }
            Err(Error::Kernel(error)) => {
                let shown = error.to_string();
                let is_clean = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
                assert!(shown.chars().all(is_clean), "{shown:?}");
                false
            }
            Err(other) => panic!("{other:?}\n{text:?}"),
        }
    })
}

/// Hides panics of the parser. The library catches them, but libFuzzer would end the process at any
/// panic.
pub fn quiet_parser() {
    let loud = take_hook();
    set_hook(Box::new(move |info| {
        let is_parser = |at: &Location<'_>| at.file().contains("naga-");
        if !info.location().is_some_and(is_parser) {
            loud(info);
        }
    }));
}
