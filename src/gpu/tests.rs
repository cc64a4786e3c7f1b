//! A whole `Gpu` in a process that ends before its time.

#[cfg(unix)]
mod killed;
