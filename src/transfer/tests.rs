//! What the tests of several files here need.

#[cfg(unix)]
pub(crate) mod killed;
