//! The commands, one file each, and their shared parts.

pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod failure;
pub(crate) mod files;
pub(crate) mod info;
pub(crate) mod progress;
pub(crate) mod replay;
pub(crate) mod style;
#[cfg(unix)]
pub(crate) mod top;
pub(crate) mod view;
