//! Operations: the results of each, in every variant that the library may choose. On the default
//! adapter, and on the simulation if that feature is on.

mod common;
mod devices;
#[cfg(feature = "sim")]
mod fusion;
mod grad;
mod ops_elementwise;
mod ops_matmul;
mod ops_nn;
mod ops_reduce;
mod optim;
#[cfg(feature = "sim")]
mod races;
mod torch;
#[cfg(feature = "sim")]
mod tuning;
#[cfg(feature = "sim")]
mod views;
