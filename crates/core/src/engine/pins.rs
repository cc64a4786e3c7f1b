//! Storages that stay where they are while the app's own commands use them.

use std::sync::Arc;

use super::cmd::Cmd;
use super::pass::Pass;
use super::{refuse, restore, shrink};
use crate::error::{Error, Result};
use crate::memory::{Place, Storage};
use crate::shortage::ReclaimCounts;

/// Storages that stay where they are for as long as this lives.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) storages: Vec<Arc<Storage>>,
    /// Where they are, in the order in which they were named.
    pub(crate) places: Vec<Place>,
    /// On which of the devices that there were one after another.
    epoch: u64,
}

impl Pinned {
    /// On which of the devices that there were one after another the places are.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.storages.iter().for_each(|storage| storage.unpin());
    }
}

/// A storage that is to be pinned is restored so often, at most, while the budget falls.
const MOST_RESTORES: u32 = 8;

/// Pins the storages at their places, once what was queued has run.
pub(super) async fn pin_all(pass: &Pass, storages: &[Arc<Storage>]) -> Result<Pinned> {
    let mut pinned = Pinned {
        storages: Vec::new(),
        places: Vec::new(),
        epoch: pass.driver.ledger().epoch(),
    };
    for storage in storages {
        pass.error_of(storage)?;
        // At once, so that nothing that waits for room evicts it when it has arrived.
        storage.pin();
        pinned.storages.push(storage.clone());
        restore_pinned(pass, storage).await?;
    }
    // What was brought in must be there before the app's own commands run.
    pass.submit()?;
    let state = pass.lock();
    for storage in &pinned.storages {
        let place = state.memory.find(storage).ok_or_else(|| Error::Driver {
            what: "to bind a tensor",
            message: "it has no place".into(),
        })?;
        pinned.places.push(place);
    }
    drop(state);
    Ok(pinned)
}

/// Restores a storage that is pinned already, so that it stays once it is there.
async fn restore_pinned(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    for _ in 0..MOST_RESTORES {
        match restore::restore(pass, storage).await? {
            Err(Error::OutOfMemory(_)) if shrink::was_lowered(pass).await? => continue,
            brought => brought?,
        }
        if !pass.lock().memory.is_evicted(storage) {
            return place_pinned(pass, storage).await;
        }
        // What rematerializes it is in the queue now.
        pass.execute().await?;
        pass.error_of(storage)?;
    }
    match pass.lock().memory.is_evicted(storage) {
        true => Err(refuse::out_of_memory(
            pass,
            storage,
            ReclaimCounts::default(),
        )),
        false => Ok(()),
    }
}

/// Gives a storage a place if nobody has written to it or used it so far.
async fn place_pinned(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    pass.error_of(storage)?;
    let has_place = || pass.lock().memory.find(storage).is_some();
    if has_place() {
        return Ok(());
    }
    pass.lock().queue.push_head(Cmd::Prefetch(storage.clone()));
    pass.execute().await?;
    pass.error_of(storage)?;
    match has_place() {
        true => Ok(()),
        false => Err(refuse::out_of_memory(
            pass,
            storage,
            ReclaimCounts::default(),
        )),
    }
}
