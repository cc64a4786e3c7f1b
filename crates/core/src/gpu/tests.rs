//! A whole `Gpu`: operands of the app, and other devices that take memory.

mod apart;
mod os_budget;
