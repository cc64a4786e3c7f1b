//! Moves blocks: carries out a plan of the pools by recorded copies.
//!
//! The queue runs in order. So a range is free for the next command as soon as the copy that
//! empties it is recorded. Nothing is submitted for it, and nobody waits. If the driver refuses the
//! batch, the same copies go before all later work: see [`changes`](crate::engine::state::changes).
//!
//! For a lower priority than others have, the moves are submitted in parts. After each part the
//! engine waits for the device, and commands of a higher priority run. The rest of the plan is void
//! then. What was moved stays, and the next plan starts from that.

use super::retire;
use crate::alloc::{BlockId, Growth, SlabId, Spot, Step};
use crate::driver::{Account, BoxFuture, DriverError};
use crate::engine::heap;
use crate::engine::pass::Pass;
use crate::engine::pass::urgent::HoldGuard;
use crate::engine::state::State;
use crate::error::{Error, Result};
use crate::memory::Heap;
use crate::transfer::refusal;

/// The plans that are made for one request before the next reclaim step runs.
pub(super) const PLANS: usize = 3;

/// The result of a plan.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All steps were carried out.
    Done,
    /// There is no memory for a slab of the plan.
    NoSlab,
    /// The driver refused for another reason.
    Refused(Error),
    /// Commands of a higher priority ran between two parts of the moves. The steps before that were
    /// carried out.
    Interrupted,
}

/// The last of several plans is carried out in one part. Otherwise commands of a higher priority
/// could interrupt all of them.
pub(super) fn hold_last(pass: &Pass, attempt: usize) -> Option<HoldGuard<'_>> {
    (attempt == PLANS).then(|| pass.hold_whole())
}

/// Carries out the steps of a plan as far as possible. Afterwards the tables are right about every
/// storage, whatever the outcome. The caller has the execution lock.
pub(super) fn carry_out<'a>(
    pass: &'a Pass,
    heap: Heap,
    steps: &'a [Step],
) -> BoxFuture<'a, Result<Outcome>> {
    let carried_out = async move {
        let has_moves = steps
            .iter()
            .any(|step| matches!(step, Step::Move { .. } | Step::MoveToNew { .. }));
        if has_moves {
            pass.lock().counters.compactions += 1;
        }
        let mut created = None;
        let mut parts = Parts::new(pass);
        let are_moves =
            |one: &Step, next: &Step| matches!((one, next), (Step::Move { .. }, Step::Move { .. }));
        for steps in steps.chunk_by(are_moves) {
            match &steps[0] {
                Step::Move { .. } => {
                    let mut rest = steps;
                    while !rest.is_empty() {
                        let recorded =
                            record_moves(&mut pass.lock(), heap, rest, &mut parts.left_bytes);
                        rest = &rest[recorded..];
                        if let Some(outcome) = parts.look(pass).await? {
                            return Ok(outcome);
                        }
                    }
                }
                Step::Release(slab) if heap == Heap::Device => {
                    pass.release(|memory| memory.slabs.if_empty(*slab))?;
                }
                // A slab in the host's memory goes with others, when another one needs its room.
                Step::Release(_) => {}
                Step::Assign { slab, class } => {
                    pass.lock().memory.slabs_of(heap).assign(*slab, *class)
                }
                Step::Create(growth) if heap == Heap::Host => {
                    created = heap::create_planned(pass, growth).await?;
                    if created.is_none() {
                        return Ok(Outcome::NoSlab);
                    }
                }
                Step::Create(growth) => {
                    match pass.unless_lost(create_planned(pass, growth).await)? {
                        Ok(slab) => created = Some(slab),
                        Err(DriverError::OutOfMemory | DriverError::OverBudget) => {
                            return Ok(Outcome::NoSlab);
                        }
                        Err(error) => return Ok(Outcome::Refused(refusal("a slab", error))),
                    }
                }
                Step::MoveToNew {
                    block,
                    offset_bytes,
                } => {
                    let slab = created.expect("a plan creates a slab before it moves blocks there");
                    let to = Spot::new(slab, *offset_bytes);
                    let moved_bytes = record_move(&mut pass.lock(), heap, *block, &to);
                    parts.left_bytes = parts.left_bytes.saturating_sub(moved_bytes);
                    if let Some(outcome) = parts.look(pass).await? {
                        return Ok(outcome);
                    }
                }
            }
        }
        parts.end(pass).await?;
        Ok(Outcome::Done)
    };
    Box::pin(in_span!(
        "compaction",
        { steps = steps.len() as u64 },
        carried_out
    ))
}

/// The parts in which a compaction is carried out.
struct Parts {
    /// `u64::MAX` for the whole compaction at once.
    part_bytes: u64,
    /// What may still be moved before the next look.
    left_bytes: u64,
}

impl Parts {
    fn new(pass: &Pass) -> Self {
        let part_bytes = pass.part_bytes();
        Parts {
            part_bytes,
            left_bytes: part_bytes,
        }
    }

    /// At the end of a part: submits its moves, waits for them, and lets commands of a higher
    /// priority run. Returns the outcome of the compaction if that ends here.
    async fn look(&mut self, pass: &Pass) -> Result<Option<Outcome>> {
        if self.left_bytes > 0 {
            return Ok(None);
        }
        pass.submit()?;
        pass.wait_idle().await?;
        self.left_bytes = self.part_bytes;
        Ok(pass.give_way().await?.then_some(Outcome::Interrupted))
    }

    /// After the last step: the device finishes the moves before it gets further work of the same
    /// priority.
    async fn end(&self, pass: &Pass) -> Result<()> {
        if self.part_bytes != u64::MAX && self.part_bytes > self.left_bytes {
            pass.submit()?;
            pass.wait_idle().await?;
        }
        Ok(())
    }
}

/// Creates a slab. Released slabs may still be in use. If the device's bytes would pass the
/// high-water mark or the budget with them, the engine first waits for them.
pub(super) async fn create_planned(pass: &Pass, growth: &Growth) -> Result<SlabId, DriverError> {
    let retiring_bytes = pass.driver.ledger().levels().retiring_bytes.now;
    let more_bytes = growth.slab_bytes.saturating_add(retiring_bytes);
    let passes_mark = pass.lock().memory.slabs.passes_mark(more_bytes);
    if passes_mark {
        wait_to_create(pass).await?;
    }
    let created = create_slab(pass, growth).await;
    if !matches!(
        created,
        Err(DriverError::OverBudget | DriverError::OutOfMemory)
    ) {
        return created;
    }
    wait_to_create(pass).await?;
    create_slab(pass, growth).await
}

async fn wait_to_create(pass: &Pass) -> Result<(), DriverError> {
    let waited = retire::wait_for_retiring(pass).await;
    waited
        .map(|_| ())
        .map_err(|error| DriverError::Lost(error.to_string()))
}

fn create_slab<'a>(
    pass: &'a Pass,
    growth: &'a Growth,
) -> BoxFuture<'a, Result<SlabId, DriverError>> {
    Box::pin(async move {
        let label = "lapidary slab";
        let buffer = (pass.driver).create_buffer(Account::Slabs, growth.slab_bytes, label);
        let buffer = match buffer.await {
            Ok(buffer) => buffer,
            Err(error) => {
                keep_readback(pass).await;
                return Err(error);
            }
        };
        let added = {
            let mut state = pass.lock();
            state.counters.slabs_created += 1;
            state.memory.add_slab(growth, buffer)
        };
        keep_readback(pass).await;
        added.map_err(|error| {
            pass.driver.destroy_buffer(buffer, 0);
            DriverError::Invalid(error.to_string())
        })
    })
}

/// Keeps a read-back buffer for evictions. If the app sets a limit, the ledger keeps room for
/// staging. Without a limit, or if the driver has less memory, slabs may take all of it.
async fn keep_readback(pass: &Pass) {
    let levels = pass.driver.ledger().levels();
    let is_said = levels.said_bytes < u64::MAX && levels.limit_bytes == levels.said_bytes;
    let has_slabs = pass.lock().memory.slabs.reserved_bytes() > 0;
    if has_slabs && !is_said && !pass.caps().maps_slabs {
        pass.readbacks.keep_one().await;
    }
}

/// Moves blocks of a heap together, at most `limit_bytes` of them, and releases the empty slabs of
/// the device. Returns the bytes moved and the bytes released.
pub(crate) fn compact_pass(
    pass: &Pass,
    heap: Heap,
    limit_bytes: u64,
) -> BoxFuture<'_, Result<(u64, u64)>> {
    Box::pin(async move {
        // Only the difference counts: the moves on a new device begin at 0.
        let moved_bytes = || pass.lock().memory.slabs_of(heap).moved_bytes();
        let moved_before = moved_bytes();
        let moved = || moved_bytes() - moved_before;
        for attempt in 1..=PLANS {
            let left_bytes = limit_bytes.saturating_sub(moved());
            let steps = {
                let mut state = pass.lock();
                state.free_dead();
                state.memory.plan_pass(heap, left_bytes)
            };
            if steps.is_empty() && attempt == 1 {
                return Ok((0, 0));
            }
            let _hold = hold_last(pass, attempt);
            if !matches!(carry_out(pass, heap, &steps).await?, Outcome::Interrupted) {
                break;
            }
        }
        let freed_bytes = retire::trim_slabs(pass)?;
        Ok((moved(), freed_bytes))
    })
}

/// Moves blocks of the heap in the host's memory together, so that a storage of `size_bytes` finds
/// room. All slabs together may take `limit_bytes` then. Does nothing if no plan makes room.
pub(crate) async fn compact_heap(pass: &Pass, size_bytes: u64, limit_bytes: u64) -> Result<()> {
    for attempt in 1..=PLANS {
        let steps = {
            let mut state = pass.lock();
            state.free_dead();
            state.memory.plan(Heap::Host, size_bytes, limit_bytes)
        };
        let Ok(steps) = steps else { break };
        let _hold = hold_last(pass, attempt);
        if !matches!(
            carry_out(pass, Heap::Host, &steps).await?,
            Outcome::Interrupted
        ) {
            break;
        }
    }
    Ok(())
}

/// Moves blocks of the heap in the host's memory together, so that its slabs take `less_bytes` less
/// once the empty ones are released. Gets as near to that as moves can.
pub(crate) async fn shrink_heap(pass: &Pass, less_bytes: u64) -> Result<()> {
    let steps = {
        let mut state = pass.lock();
        state.free_dead();
        let reserved_bytes = state.memory.slabs_of(Heap::Host).reserved_bytes();
        let target_bytes = reserved_bytes.saturating_sub(less_bytes);
        (state.memory).plan_shrink(Heap::Host, target_bytes)
    };
    carry_out(pass, Heap::Host, &steps).await.map(drop)
}

/// Carries out steps until the moves come to `left_bytes`, which become less by them. Returns the
/// number of steps, at least one.
fn record_moves(state: &mut State, heap: Heap, steps: &[Step], left_bytes: &mut u64) -> usize {
    for (step, recorded) in steps.iter().zip(1..) {
        if let Step::Move { block, to } = step {
            *left_bytes = left_bytes.saturating_sub(record_move(state, heap, *block, to));
        }
        if *left_bytes == 0 {
            return recorded;
        }
    }
    steps.len()
}

/// Moves a block and records the copy. Does nothing if the block was freed meanwhile. Returns the
/// bytes moved.
fn record_move(state: &mut State, heap: Heap, block: BlockId, to: &Spot) -> u64 {
    let moved = match heap {
        Heap::Device => state.memory.relocate(block, to),
        Heap::Host => state.memory.relocate_in_heap(block, to),
    };
    let Some(one) = moved else {
        return 0;
    };
    state.touch(one.from);
    state.touch(one.to);
    if heap == Heap::Host {
        state.note_heap_copy(one.to, heap, one.size_bytes);
        state.counters.host_moved_bytes += one.size_bytes;
    }
    state.push_move(one.from, one.to, one.size_bytes);
    if heap == Heap::Device {
        state.memory.moved_away(&one);
    }
    one.size_bytes
}
