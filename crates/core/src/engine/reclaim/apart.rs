//! Moves pinned storages so that what the app reads and what it writes lie in different buffers.
//!
//! wgpu has one state for a whole buffer. A pass that reads one range of a buffer and writes
//! another one is invalid, and so is a copy within a buffer. So before the app records its
//! commands, the engine copies one side of such a slab to another slab. If there is no memory for
//! that, others are evicted. At last the operands themselves are evicted and restored, as `repack`
//! does.

use std::cmp::Reverse;
use std::sync::Arc;

use super::compact::{self, Outcome};
use super::refuse;
use super::repack::{evict_needed, new_block};
use super::retire;
use super::{Ceiling, PLANS, create_least, drain_to, slabs_limit_bytes};
use crate::alloc::Step;
use crate::driver::BufferId;
use crate::engine::pass::Pass;
use crate::engine::restore::{self, RestoreGuard};
use crate::engine::state::State;
use crate::error::{Error, Result};
use crate::memory::{Heap, Storage};
use crate::units::Bytes;

/// The storages that one call of the app binds, each pinned once for each time that it is named.
pub(crate) struct Operands {
    pub(crate) read: Vec<Arc<Storage>>,
    pub(crate) written: Vec<Arc<Storage>>,
}

/// A storage to move, one of the other access in the same buffer, and all buffers that have one.
struct Clash {
    storage: Arc<Storage>,
    other: Arc<Storage>,
    avoided: Vec<BufferId>,
}

/// Moves operands until no buffer has some that are read and some that are written.
pub(crate) async fn set_apart(pass: &Pass, operands: &Operands) -> Result<()> {
    if operands.read.is_empty() || operands.written.is_empty() {
        return Ok(());
    }
    let mut may_repack = true;
    loop {
        let clash = operands.clash(&pass.lock())?;
        let Some(clash) = clash else { break };
        if move_out(pass, &clash).await? {
            continue;
        }
        let storage = &clash.storage;
        // Whole slabs must go, since holes in the avoided ones are of no use.
        let size_bytes = pass.lock().memory.slabs.granted_bytes(storage.size_bytes());
        let limit_bytes = slabs_limit_bytes(pass, Ceiling::Hard);
        {
            let _hold = pass.hold_whole();
            drain_to(pass, Some(limit_bytes.saturating_sub(size_bytes))).await?;
        }
        if move_out(pass, &clash).await? {
            continue;
        }
        if !std::mem::take(&mut may_repack) || !operands.repack(pass).await? {
            return Err(refuse::not_apart(pass, storage, &clash.other));
        }
    }
    let slots = &mut pass.lock().memory.slots;
    operands.all().for_each(|storage| slots.keep_apart(storage));
    Ok(())
}

impl Operands {
    fn all(&self) -> impl Iterator<Item = &Arc<Storage>> {
        self.read.iter().chain(&self.written)
    }

    /// Whether a storage must stay: it is imported, or pinned by others too.
    fn is_fixed(&self, state: &State, storage: &Arc<Storage>) -> bool {
        let named = self.all().filter(|one| Arc::ptr_eq(one, storage)).count();
        storage.pins() as usize > named || state.memory.slots.is_imported(storage)
    }

    /// The next storage to move; `None` if no buffer has operands of both kinds.
    fn clash(&self, state: &State) -> Result<Option<Clash>> {
        let buffer_of = |storage: &Arc<Storage>| {
            let place = state.memory.slots.find(storage)?;
            Some(place.buffer)
        };
        let buffers = |side: &[Arc<Storage>]| side.iter().filter_map(buffer_of).collect::<Vec<_>>();
        let (read, written) = (buffers(&self.read), buffers(&self.written));
        let Some(buffer) = read.iter().find(|buffer| written.contains(buffer)) else {
            return Ok(None);
        };
        let inside = |side: &[Arc<Storage>]| {
            let here = side.iter().filter(|one| buffer_of(one) == Some(*buffer));
            here.cloned().collect::<Vec<_>>()
        };
        let (readers, writers) = (inside(&self.read), inside(&self.written));
        let fixed_in = |side: &[Arc<Storage>]| {
            let mut side = side.iter();
            side.find(|one| self.is_fixed(state, one)).cloned()
        };
        let bytes = |side: &[Arc<Storage>]| side.iter().map(|one| one.size_bytes()).sum::<u64>();
        let moves_writers = match (fixed_in(&readers), fixed_in(&writers)) {
            (Some(reader), Some(writer)) => return Err(inseparable(state, &reader, &writer)),
            (None, None) => bytes(&writers) <= bytes(&readers),
            (reader, _) => reader.is_some(),
        };
        let (moved, other, avoided) = match moves_writers {
            true => (&writers, &readers, read),
            false => (&readers, &writers, written),
        };
        Ok(Some(Clash {
            storage: moved[0].clone(),
            other: other[0].clone(),
            avoided,
        }))
    }

    /// Evicts the operands that may move, and restores them. Each written one finds a slab that has
    /// room for it and nothing else yet. Returns whether all are on the device again.
    async fn repack(&self, pass: &Pass) -> Result<bool> {
        let is_movable = |storage: &&Arc<Storage>| !self.is_fixed(&pass.lock(), storage);
        let movable: Vec<_> = self.all().filter(is_movable).cloned().collect();
        {
            let _unpinned = Unpinned::new(&movable);
            let mut once = movable.clone();
            once.sort_by_key(Storage::address);
            once.dedup_by(|one, other| Arc::ptr_eq(one, other));
            evict_needed(pass, &once).await?;
        }
        retire::trim_slabs(pass)?;
        retire::wait_for_all(pass).await?;
        for (side, is_written) in [(&self.read, false), (&self.written, true)] {
            let mut side = side.clone();
            // The largest come first, because they fit into the fewest holes.
            side.sort_by_key(|storage| Reverse(storage.size_bytes()));
            for storage in &side {
                if !pass.lock().memory.slots.is_evicted(storage) {
                    continue;
                }
                if is_written && !create_slab_for(pass, storage).await? {
                    return Ok(false);
                }
                let Some(block) = new_block(pass, storage).await? else {
                    return Ok(false);
                };
                let mut guard = RestoreGuard(pass, Some(block));
                restore::restore_into(pass, storage, &mut guard).await??;
                pass.error_of(storage)?;
            }
        }
        Ok(true)
    }
}

/// Releases pins until it is dropped.
struct Unpinned<'a>(&'a [Arc<Storage>]);

impl<'a> Unpinned<'a> {
    fn new(storages: &'a [Arc<Storage>]) -> Self {
        storages.iter().for_each(|storage| storage.unpin());
        Unpinned(storages)
    }
}

impl Drop for Unpinned<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|storage| storage.pin());
    }
}

/// Copies the storage to a hole outside the avoided buffers, or to a new slab. `false` if there is
/// no memory for that.
async fn move_out(pass: &Pass, clash: &Clash) -> Result<bool> {
    let size_bytes = clash.storage.size_bytes();
    let Ok(growth) = pass.lock().memory.slabs.growth(size_bytes) else {
        return Ok(false);
    };
    for attempt in 0..PLANS {
        let steps = {
            let state = pass.lock();
            let Some(block) = state.memory.slots.block_of(&clash.storage) else {
                return Ok(true);
            };
            // At first slabs of the storage's class, then a new one, then what there is.
            let class = (attempt == 0).then_some(growth.class);
            let spot = (state.memory.slabs).spot_outside(size_bytes, &clash.avoided, class);
            match spot {
                Some(to) => vec![Step::Move { block, to }],
                None => vec![
                    Step::Create(growth),
                    Step::MoveToNew {
                        block,
                        offset_bytes: 0,
                    },
                ],
            }
        };
        match compact::carry_out(pass, Heap::Device, &steps).await? {
            Outcome::Done => return Ok(true),
            Outcome::NoSlab => {
                if let Some(refused) = create_least(pass, &clash.storage).await? {
                    return Err(refused);
                }
            }
            Outcome::Interrupted => {}
            Outcome::Refused(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Creates a slab that has room for the storage and nothing else. `false` if there is no memory.
async fn create_slab_for(pass: &Pass, storage: &Arc<Storage>) -> Result<bool> {
    let growth = pass.lock().memory.slabs.growth(storage.size_bytes());
    let Ok(growth) = growth else {
        return Ok(false);
    };
    let created = pass.unless_lost(compact::create_planned(pass, &growth.least()).await)?;
    Ok(created.is_ok())
}

#[cold]
fn inseparable(state: &State, reader: &Arc<Storage>, writer: &Arc<Storage>) -> Error {
    let why = match state.memory.slots.is_imported(reader) {
        true => {
            "both are ranges of one buffer of the app. Import ranges of two buffers, or copy one"
        }
        false => "both are pinned. Drop one of the pins, or copy one",
    };
    Error::Buffer {
        operation: "with_bound",
        reason: format!(
            "the tensor made at {} is read, {}, and the one made at {} is written, {}, in one wgpu \
             buffer, which wgpu refuses in one pass: {why}. Or bind both with `Access::Write`, and \
             declare both `read_write` in the shader",
            reader.tag(),
            Bytes(reader.size_bytes()),
            writer.tag(),
            Bytes(writer.size_bytes()),
        ),
    }
}
