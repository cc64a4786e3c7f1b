//! Operations: the results of each, in every variant that the library may choose. On the default
//! adapter and on the simulation.

mod common;
mod devices;
mod fusion;
mod grad;
mod kv;
mod ops_elementwise;
mod ops_matmul;
mod ops_nn;
mod ops_reduce;
mod optim;
mod programs;
mod races;
mod torch;
mod views;
