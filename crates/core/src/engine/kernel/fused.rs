//! Kernels that are composed at run time of several kernels of our crates.
//!
//! The engine does not know which kernel computes what. The root crate registers a
//! [`Fuse`](crate::engine::queue::fusion::Fuse), and the execution pass sends its commands through
//! it before it encodes them. The results are ordinary commands, but fewer. They compute every
//! storage that still has holders. A fused command can be split again: where it cannot run, or must
//! not fail as a whole, its parts take its place.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{Launch, Operand, ReferenceCall};
use crate::memory::{Dead, DeadList};

/// Splits a fused launch into launches that do the same work. `None` if their parameters do not
/// fit.
pub(crate) type Parts = Box<dyn Fn(&Launch) -> Option<Vec<Launch>> + Send + Sync>;

/// The reference of a fused kernel: the same work on the host.
pub type FusedReference = Arc<dyn Fn(&mut ReferenceCall) + Send + Sync>;

/// A kernel that was composed at run time.
pub struct Fused {
    /// An id that no other fused kernel of this process has.
    pub id: u64,
    /// The expression that it computes: `relu(a * b)`.
    pub name: String,
    /// Its operands, in the order in which commands name them.
    pub operands: Vec<Operand>,
    /// The text, without declarations of operands and `p`.
    pub text: String,
    /// Splits a launch of it into its parts.
    pub parts: Parts,
    /// The reference, made of the reference kernels of the parts. `None` where the simulated device
    /// is compiled out.
    pub reference: Option<FusedReference>,
    /// The whole shader of the first pipeline.
    pub shader: OnceLock<String>,
    /// The list to which the kernel adds itself when it is dropped.
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
