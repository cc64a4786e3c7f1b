//! What only some programs ask of the state: shares, priorities, restores in parts, lineages.
//!
//! Each trait has one type. The public call that turns a feature on brings it. So other programs do
//! not contain its code.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::driver::MaybeSend;
use crate::engine::kernel::Launch;
use crate::engine::queue::cmd::Cmd;
use crate::engine::queue::{NextUses, Queue};
use crate::engine::state::State;
use crate::engine::state::lineage::{Inputs, Made};
use crate::memory::{Candidate, Memory, PendingRestore, ShareId, Storage, Tier, Whom};

/// Chooses the best of some candidates.
pub(in crate::engine) type Choose<'a> = dyn Fn(Vec<Candidate>) -> Vec<Candidate> + 'a;

/// What there is to do for shares. One type does it; through the trait only a program that makes
/// shares contains the code.
pub(in crate::engine) trait StateHooks: Sync {
    /// Lets staging leave what is guaranteed to shares, and the queue follow their priorities.
    fn note_promises(&self, state: &mut State);

    /// The shares of a command compete for memory from now on. Returns whether the command was
    /// dropped, because the share whose value it makes, or that reads, was cancelled.
    fn note_share(&self, state: &mut State, cmd: &Cmd) -> bool;

    /// The best of the candidates that have to give memory.
    fn choose(
        &self,
        state: &State,
        candidates: Vec<Candidate>,
        whom: Whom,
        choose: &Choose<'_>,
    ) -> Vec<Candidate>;

    /// Keeps the candidates that have to give memory.
    fn retain_owed(&self, state: &State, candidates: &mut Vec<Candidate>, whom: Whom);
}

/// The order of commands by their priorities. One type knows it; through the trait only a program
/// that makes shares contains the code.
pub(in crate::engine) trait Priorities: Sync {
    /// The priority of a command.
    fn of(&self, cmd: &Cmd) -> i8;

    /// Whether all commands of this priority and higher ones are submitted.
    fn is_none_left(&self, state: &State, least: i8) -> bool;

    /// Whether a pass has left commands that write what the caller will read, or use what it will
    /// write. They are of other shares, which have lent the storages or borrow them.
    fn leaves(&self, state: &State, read: &[Arc<Storage>], written: &[Arc<Storage>]) -> bool;

    /// Whether the batch is of lower work, and takes so long that it should be submitted.
    fn has_long_batch(&self, state: &State) -> bool;

    /// Whether the command at the head has a lower priority than some share.
    fn lets_others_go_first(&self, state: &State) -> bool;

    /// Whether commands have come that may go before the command at the head.
    fn is_outranked(&self, state: &State) -> bool;

    /// Whether a drain that begins now may run urgent commands between two rounds. Not if it is
    /// itself between two rounds of another, or between commands that belong to the one at the
    /// head.
    fn may_run_between(&self, state: &State) -> bool;

    /// Whether commands above this priority have come.
    fn has_above(&self, state: &State, priority: i8) -> bool;

    /// Whether the pass runs urgent commands between two rounds of a drain, and the next command is
    /// none. Urgent ones behind it wait for it.
    fn stops_between(&self, state: &State) -> bool;

    /// So many commands were put in front of another one, for whose sake they run.
    fn note_steps(&self, state: &mut State, count: usize);

    /// Brings the commands of the highest priority to the head of the queue.
    fn promote(&self, state: &mut State);

    /// Whether the command at the head, and all others, have a lower priority than the pass runs.
    fn has_only_lower(&self, state: &State) -> bool;
}

/// How far the block of a restore is filled.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Filled {
    pub(in crate::engine) bytes: u64,
    /// The refused submissions before the first of these bytes. If there are more now, some bytes
    /// may not have arrived.
    pub(in crate::engine) refused: u64,
}

/// Restores that were left halfway, because work of a higher priority had come. One type does it;
/// through the trait only a program that makes shares contains the code.
pub(in crate::engine) trait LeftRestores: MaybeSend {
    /// Leaves a restore halfway.
    fn leave(
        &mut self,
        storage: &Arc<Storage>,
        pending_restore: PendingRestore,
        filled: Filled,
        memory: &mut Memory,
    );

    /// Takes up the restore of an evicted storage.
    fn take_up(
        &mut self,
        storage: &Arc<Storage>,
        memory: &mut Memory,
    ) -> Option<(PendingRestore, Filled)>;

    /// Whether the restore of the storage may be left.
    fn may_leave(&self, storage: &Arc<Storage>) -> bool;

    /// The storage is restored.
    fn ended(&mut self, storage: &Arc<Storage>);

    /// Gives up what was left, and frees its block. Returns the bytes that became free.
    fn give_up(&mut self, memory: &mut Memory) -> u64;

    /// As [`give_up`](Self::give_up), if no command of the queue uses the storage.
    fn give_up_unused(&mut self, queue: &Queue, memory: &mut Memory);
}

/// What there is to do with lineages. One type does it; through the trait only a program whose
/// operations save values for a backward contains the code.
pub(in crate::engine) trait Recompute: Sync {
    /// The values that a command reads, if it can run again with the same result.
    fn inputs(&self, state: &State, cmd: &Cmd) -> Option<Inputs>;

    /// Notes that a command with these inputs was encoded.
    fn note(&self, state: &mut State, cmd: &Cmd, inputs: Inputs);

    /// The next uses of storages, as far as the queue shows them. The inputs of a dropped
    /// storage are used together with it.
    fn next_uses(&self, state: &State) -> NextUses;

    /// For the slots of storages that only the queue holds, the number of the last command that
    /// uses each. The caller holds none of them.
    fn last_uses(&self, state: &State) -> FxHashMap<u32, u32>;

    /// The cost of computing a storage again, in nanoseconds, if it is cheaper than to write its
    /// bytes to the tier and to restore them. Without a tier, if it is possible.
    fn cheaper_ns(
        &self,
        state: &State,
        candidate: &Candidate,
        tier: Option<Tier>,
        uses: &NextUses,
        last_uses: &FxHashMap<u32, u32>,
    ) -> Option<u64>;

    /// Prepares a storage for being dropped: its lineage gives its bytes again. `false` if it has
    /// none, or if one of the inputs would be computed from it.
    fn prepare(&self, state: &mut State, storage: &Arc<Storage>) -> bool;

    /// The dropped storages of a share, or of all, with a launch that needs more than
    /// `limit_bytes`.
    fn beyond(&self, state: &State, limit_bytes: u64, share: Option<ShareId>) -> Vec<Arc<Storage>>;

    /// The launches that compute a value again, and the storage of the result. `None` if an input
    /// is gone.
    fn launches_of(
        &self,
        state: &State,
        made: &Made,
        like: &Storage,
    ) -> Option<(Vec<Launch>, Arc<Storage>)>;
}
