//! A fluid in lapidary's tensors, and how to draw it: the parts that the window, the run without
//! one and the browser page share. This crate opens no device, never waits, and knows no windows.
//!
//! [`Fluid`] is the simulation on a [`lapidary::Gpu`], with the frames that it keeps. [`Painter`]
//! is a render pipeline that reads the fluid's colours from the tensor's range. [`Picture`] is its
//! target without a window.

mod paint;
mod sim;

pub use lapidary::wgpu;
pub use paint::{Painter, Picture, on_black};
pub use sim::{Fluid, Frame, Stir};
