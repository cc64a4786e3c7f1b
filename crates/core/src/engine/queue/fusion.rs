//! The interface to fusion, which combines several commands into fewer before they are encoded.

use std::collections::VecDeque;

use super::cmd::Cmd;

/// The argument of a [`Fuse`].
#[derive(Debug, Default)]
pub struct Pending {
    /// The recorded commands. Those that [`Fuse`] leaves here wait for fusion with later ones.
    pub recorded: VecDeque<Cmd>,
    /// The commands that are ready to run.
    pub ready: Vec<Cmd>,
    /// Whether commands may be left in `recorded`. If not, all of them must become ready.
    pub may_wait: bool,
    /// The limit of the slabs. A fused command must need far less.
    pub limit_bytes: u64,
}

/// Combines several commands into fewer. Called under the engine's lock.
#[cfg(not(target_arch = "wasm32"))]
pub type Fuse = Box<dyn FnMut(&mut Pending) + Send>;
/// Combines several commands into fewer. Called under the engine's lock.
#[cfg(target_arch = "wasm32")]
pub type Fuse = Box<dyn FnMut(&mut Pending)>;
