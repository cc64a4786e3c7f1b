//! GPU memory as a panel of egui.
//!
#![doc = include_str!("../README.md")]

mod bars;
mod curves;
mod holders;
mod panel;
mod style;

pub use panel::MemoryPanel;
