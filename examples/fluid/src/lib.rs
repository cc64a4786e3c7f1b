//! A fluid in lapidary's tensors, and how to draw it: what the window, the run without one and the
//! page in the browser share. Nothing here opens a device, waits, or knows of windows.
//!
//! [`Fluid`] is the simulation on a [`lapidary::Gpu`], with the frames that it keeps. [`Painter`]
//! is a render pipeline that reads the fluid's colours out of the range in which the tensor lies.
//! [`Picture`] is what it draws on without a window.

mod paint;
mod sim;

pub use lapidary::wgpu;
pub use paint::{Painter, Picture, on_black};
pub use sim::{Fluid, Frame, Stir};
