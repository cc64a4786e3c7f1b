//! A whole `Gpu` in a process that is killed.

#[cfg(unix)]
mod killed;
