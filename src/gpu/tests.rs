//! A whole `Gpu` in a process that ends before its time.

#[cfg(all(unix, feature = "sim"))]
mod killed;
