//! Kernels that are put together at run time out of several of the crate's.
//!
//! The engine does not know what computes what: the root crate registers a
//! [`Fuse`](super::fusion::Fuse), to which the execution pass gives its commands before it encodes
//! them. What comes back are commands like any others, fewer of them, that make whatever anybody
//! still holds. A fused one can be taken apart again: where it cannot run, or must not fail as one,
//! its parts take its place.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::kernel::{Launch, Operand, ReferenceCall};
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
