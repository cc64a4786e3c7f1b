//! What lapidary's other crates use of this one beside its public interface. It may change in any
//! release: nobody else should name it.

pub use crate::buffer::pieces::{Filling, Next, PIECE_BYTES, Pieces, Seen};
pub use crate::driver::{BoxFuture, MaybeSend, MaybeShared};
pub use crate::engine::diagnose::kernels::{CLEAR, PROBE};
pub use crate::engine::kernel::fused::{Fused, FusedReference};
pub use crate::engine::kernel::pages::{ABSENT, Pages, TABLE_HEAD};
pub use crate::engine::kernel::sections;
pub use crate::engine::kernel::wgsl;
pub use crate::engine::kernel::{
    Arg, BuiltInKernel, Launch, MAX_OPERANDS, MAX_PARAMS_BYTES, Methods, Operand, Program, Ranges,
    ReferenceCall, Role, RowsNamed, Variant,
};
pub use crate::engine::queue::fusion::{Fuse, Pending};
pub use crate::engine::{Cmd, Engine, Handle, Look, block_on};
pub use crate::gpu::Layer;
pub use crate::kernel::Bind;
pub use crate::memory::{Companion, DeadList, MadeFor, Storage, enter_scope, victims};
pub use crate::observe::Counted;
#[cfg(feature = "snapshot")]
pub use crate::observe::{EVENT_KINDS, OLDEST_SNAPSHOT_VERSION, SNAPSHOT_FORMAT, SNAPSHOT_VERSION};
pub use crate::parallel::{PART_BYTES, share_out};
pub use crate::printable::{printable, printable_end};
pub use crate::transfer::{SpillFile, random};
