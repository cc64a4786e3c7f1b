//! A whole `Gpu`: in a process that ends before its time, and beside others that take memory.

#[cfg(all(unix, feature = "sim"))]
mod killed;
mod os_budget;
