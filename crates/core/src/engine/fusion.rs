//! Where commands go through fusion: few are made of many before they are encoded.

use std::collections::VecDeque;

use super::cmd::Cmd;

/// Commands on their way through a [`Fuse`].
#[derive(Debug, Default)]
pub struct Pending {
    /// As they were recorded. Those that are left wait for what may still become one with them.
    pub recorded: VecDeque<Cmd>,
    /// As they are to run.
    pub ready: Vec<Cmd>,
    /// May any be left? Else all of them are to run.
    pub may_wait: bool,
    /// What slabs may hold. What one command needs of it is to stay far below.
    pub limit_bytes: u64,
}

/// Makes few commands of many. Called under the engine's lock.
pub type Fuse = Box<dyn FnMut(&mut Pending) + Send>;
