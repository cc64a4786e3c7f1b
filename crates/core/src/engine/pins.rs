//! Storages that stay at their places while the app's own commands use them.

use std::sync::Arc;

use super::pass::Pass;
use super::queue::cmd::Cmd;
use super::reclaim::apart::{self, Operands};
use super::reclaim::{refuse, shrink};
use super::restore;
use super::shares::promises::check_pins;
use crate::error::{Error, Result};
use crate::memory::{Place, Storage};

/// Pins storages to their places until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) storages: Vec<Arc<Storage>>,
    /// The places, in the order of the storages.
    pub(crate) places: Vec<Place>,
    /// The epoch of the device that has the places.
    pub(super) epoch: u64,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.storages.iter().for_each(|storage| storage.unpin());
    }
}

/// The most restores of a storage that is to be pinned, while the budget is lowered.
const MOST_RESTORES: u32 = 8;

/// Pins storages to their places, after all queued commands. Those in `written` then lie in other
/// buffers than the rest.
pub(super) async fn pin_all(
    pass: &Pass,
    storages: &[Arc<Storage>],
    written: &[Arc<Storage>],
) -> Result<Pinned> {
    let mut pinned = Pinned {
        storages: Vec::new(),
        places: Vec::new(),
        epoch: pass.driver.ledger().epoch(),
    };
    let is_written = |storage: &Arc<Storage>| written.iter().any(|one| Arc::ptr_eq(one, storage));
    for storage in storages {
        pass.error_of(storage)?;
        if is_written(storage) {
            // Commands that wait for memory still need the old value.
            let needed = pass.lock().left_behind.reason_to_keep(storage);
            needed.map_or(Ok(()), Err)?;
        }
        // Pinned at once, so that no later reclaim evicts the storage after it has arrived.
        storage.pin();
        pinned.storages.push(storage.clone());
        restore_pinned(pass, storage).await?;
    }
    let (written, read): (Vec<_>, Vec<_>) = storages.iter().cloned().partition(is_written);
    apart::set_apart(pass, &Operands { read, written }).await?;
    // The app may write to one unseen, so what is computed from it is restored. Last, because
    // reclaim may drop it again.
    for storage in storages {
        loop {
            let computed = pass.lock().memory.slots.first_lost_by_write(storage);
            let Some(computed) = computed else { break };
            restore_pinned(pass, &computed).await?;
        }
    }
    if pass.has_shares() {
        check_pins(pass, &pinned.storages)?;
    }
    // The copies that restore storages must run before the app's own commands.
    pass.submit()?;
    let state = pass.lock();
    if state.refused_changes.are_left() {
        // The app would write to a block from which bytes have not left.
        return Err(Error::driver(
            "a submission",
            "with the moves of evicted tensors. Try again later",
        ));
    }
    for storage in &pinned.storages {
        let place = state
            .memory
            .slots
            .find(storage)
            .ok_or_else(|| Error::driver("a binding of a tensor", "the tensor has no place"))?;
        pinned.places.push(place);
    }
    drop(state);
    Ok(pinned)
}

/// Restores a storage that is already pinned, so that it stays after it has arrived.
async fn restore_pinned(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    for _ in 0..MOST_RESTORES {
        let brought = restore::restore(pass, storage);
        match pass.for_return(storage, brought).await? {
            Err(Error::OutOfMemory(_)) if shrink::was_lowered(pass).await? => continue,
            brought => brought?,
        }
        if !pass.lock().memory.slots.is_evicted(storage) {
            return place_pinned(pass, storage).await;
        }
        // The commands that rematerialize it are in the queue now.
        pass.execute_for(std::slice::from_ref(storage), &[]).await?;
        pass.error_of(storage)?;
    }
    match pass.lock().memory.slots.is_evicted(storage) {
        true => Err(refuse::no_room(pass, storage)),
        false => Ok(()),
    }
}

/// Places a storage if no command has written to it or used it so far.
async fn place_pinned(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    pass.error_of(storage)?;
    let has_place = || pass.lock().memory.slots.find(storage).is_some();
    if has_place() {
        return Ok(());
    }
    pass.lock().queue.push_head(Cmd::Prefetch(storage.clone()));
    // Whoever lends the storage may have a lower priority, and so has the command.
    pass.execute_for(&[], std::slice::from_ref(storage)).await?;
    pass.error_of(storage)?;
    match has_place() {
        true => Ok(()),
        false => Err(refuse::no_room(pass, storage)),
    }
}
