//! Kernels that are put together at run time out of several of the crate's, and who does it.
//!
//! The engine does not know what computes what: the front desk registers a [`Fuse`], to which the
//! execution pass gives its commands before it encodes them. What comes back are commands like any
//! others, fewer of them, that make whatever anybody still holds. A fused one can be taken apart
//! again: where it cannot run, or must not fail as one, its parts take its place.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::kernel::{Launch, Operand, Program, ReferenceCall, Role};
use super::state::State;
use super::{Cmd, Engine};
use crate::memory::{Dead, DeadList};

/// Takes a fused launch apart: those that do the same one by one, if there is room for their
/// parameters.
pub(crate) type Parts = Box<dyn Fn(&Launch) -> Option<Vec<Launch>> + Send + Sync>;

/// The same work on the host.
pub type FusedReference = Arc<dyn Fn(&mut ReferenceCall) + Send + Sync>;

/// A kernel that was put together at run time.
pub struct Fused {
    /// No other fused kernel of this process has it.
    pub id: u64,
    /// What it computes: `relu(a * b)`.
    pub name: String,
    /// Its operands, in the order in which commands name them.
    pub operands: Vec<Operand>,
    /// The text, with operands and `p` undeclared.
    pub text: String,
    /// Takes a launch of it apart.
    pub parts: Parts,
    /// The same work on the host, by the reference kernels of its parts. `None` where the simulated
    /// device is compiled out.
    pub reference: Option<FusedReference>,
    /// The whole shader of the first pipeline.
    pub shader: OnceLock<String>,
    /// Where it says that it is gone.
    pub dead: Arc<DeadList>,
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Fused {
    fn drop(&mut self) {
        self.dead.push(Dead::Fused(self.id));
    }
}

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

impl Engine {
    /// From now on commands go through `fuse`.
    pub fn fuse_with(&self, fuse: Fuse) {
        self.lock().fuse = Some(fuse);
    }

    /// The fused kernels that were compiled and are still kept.
    pub fn fused(&self) -> Vec<Arc<Fused>> {
        let state = self.lock();
        state.fused.iter().filter_map(|one| one.upgrade()).collect()
    }
}

impl State {
    /// The next command, unless all that are left wait for others to become one with them.
    pub(super) fn next_cmd(&mut self) -> Option<Cmd> {
        if self.planned == 0 {
            self.plan();
            if self.planned == 0 {
                return None;
            }
        }
        self.pop_head()
    }

    /// Fuses what is queued.
    fn plan(&mut self) {
        let is_launch = |cmd: &Cmd| matches!(cmd, Cmd::Launch(_));
        let is_worth_it = self.queue.len() > 1 || self.may_wait;
        if self.fuse.is_some() && is_worth_it && self.queue.iter().any(is_launch) {
            let recorded = std::mem::take(&mut self.queue);
            let (ready, rest) = self.fused(recorded, self.may_wait);
            self.planned = ready.len();
            // Commands are large: those that are ready stay where they are.
            self.queue = ready.into();
            self.queue.extend(rest);
        } else {
            self.planned = self.queue.len();
        }
    }

    /// What the commands become, and those that may wait for others.
    fn fused(&mut self, recorded: VecDeque<Cmd>, may_wait: bool) -> (Vec<Cmd>, VecDeque<Cmd>) {
        let Some(fuse) = &mut self.fuse else {
            return (recorded.into(), VecDeque::new());
        };
        let mut pending = Pending {
            ready: Vec::with_capacity(recorded.len()),
            recorded,
            may_wait,
            limit_bytes: self.driver.ledger().slab_limit_now_bytes(),
        };
        fuse(&mut pending);
        (pending.ready, pending.recorded)
    }

    /// Puts these in front of all others: they are next.
    pub(super) fn put_in_front(&mut self, recorded: VecDeque<Cmd>) {
        let (ready, _) = self.fused(recorded, false);
        for cmd in ready.into_iter().rev() {
            self.push_head(cmd);
        }
    }

    pub(super) fn push_head(&mut self, cmd: Cmd) {
        self.queue.push_front(cmd);
        self.planned += 1;
    }

    pub(super) fn pop_head(&mut self) -> Option<Cmd> {
        self.planned = self.planned.saturating_sub(1);
        self.queue.pop_front()
    }

    /// The kernel has a pipeline.
    pub(super) fn keep_in_mind(&mut self, fused: &Arc<Fused>) {
        self.fused.retain(|one| one.strong_count() > 0);
        let known = |one: &Weak<Fused>| std::ptr::eq(one.as_ptr(), Arc::as_ptr(fused));
        if !self.fused.iter().any(known) {
            self.fused.push(Arc::downgrade(fused));
        }
    }

    /// Puts the parts of a fused command in front of the queue. `false` if it has none.
    pub(super) fn take_apart(&mut self, cmd: &Cmd) -> bool {
        let Cmd::Launch(launch) = cmd else {
            return false;
        };
        let Program::Fused(fused) = &launch.program else {
            return false;
        };
        let Some(parts) = (fused.parts)(launch) else {
            return false;
        };
        for part in parts.into_iter().rev() {
            self.push_head(Cmd::Launch(part));
        }
        true
    }
}

impl Cmd {
    /// Does it make several results, of which one may be had without the others?
    pub(super) fn has_several_results(&self) -> bool {
        match self {
            Cmd::Launch(launch) => match &launch.program {
                Program::Fused(fused) => {
                    let written = fused.operands.iter().filter(|one| one.role != Role::Read);
                    written.count() > 1
                }
                _ => false,
            },
            _ => false,
        }
    }
}
