//! Operations: what each computes, in every form that the library may choose for it. On the default
//! adapter, and on the simulation where that feature is on.

mod common;
mod devices;
#[cfg(feature = "sim")]
mod fusion;
mod ops_elementwise;
mod ops_matmul;
mod ops_nn;
mod ops_reduce;
#[cfg(feature = "sim")]
mod races;
mod torch;
#[cfg(feature = "sim")]
mod tuning;
#[cfg(feature = "sim")]
mod views;
