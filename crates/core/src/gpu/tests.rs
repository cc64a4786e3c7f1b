//! A whole `Gpu`, while other devices take memory.

mod os_budget;
