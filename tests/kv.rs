//! The cache of keys and values, against attention on the host in f64. On the default adapter and
//! on the simulation.

mod memory;
mod model;
mod refuses;
mod sequences;
mod values;
