//! A whole `Gpu`, beside others that take memory.

mod os_budget;
