//! Bytes that may be WGSL: a text is a kernel, or an error with a clean excerpt, and never the end
//! of the process.

use std::cell::OnceCell;
use std::panic::{Location, set_hook, take_hook};

use lapidary::sim::SimHandle;
use lapidary::{Error, Gpu, Kernel};

use crate::device;

thread_local! {
    static DEVICE: OnceCell<(Gpu, SimHandle)> = const { OnceCell::new() };
}

/// Reflects the bytes as a kernel's text; `true` if they are one. A kernel is called without
/// operands, too.
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

/// The parser's own panics, which the library catches, are neither shown nor the end of a process
/// that ends at any panic.
pub fn quiet_parser() {
    let loud = take_hook();
    set_hook(Box::new(move |info| {
        let is_parser = |at: &Location<'_>| at.file().contains("naga-");
        if !info.location().is_some_and(is_parser) {
            loud(info);
        }
    }));
}
