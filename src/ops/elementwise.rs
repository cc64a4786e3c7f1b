//! The shared frame of unary, binary, select, copy, fill and random: each vec4 of the output is
//! computed from one vec4 of every input.
//!
//! The output is row-major. The inputs are views of any kind, broadcast to its shape and collapsed
//! to as few dimensions as possible. Their strides decide how four neighbouring elements are
//! fetched ([`Fetch`]). The fetches and the rank select the variant. Operands without gaps are only
//! loaded and stored as whole vec4s.
//!
//! ```text
//!  words of p   0        1         2, 3      4 …       then          then
//!               elements out start scalars   offsets   dimensions    strides
//!                                            an input  outermost 1st of input 0, of input 1, …
//! ```

mod call;
mod code;
pub(crate) mod element;
mod launch;
mod parts;
mod plan;
mod shader;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

pub(super) use call::{Call, Input};
pub(crate) use code::{Code, Fetch, GROUP, MAP, VEC4S_ON_CPU, group_of};
pub(super) use launch::{arg, launch_of};
pub(crate) use launch::{groups, groups_of};
pub(super) use parts::{do_fit, halves, is_wide, ranges, within};
pub(super) use plan::Plan;
pub(super) use shader::{head, index, text};
