//! Memory that the app has a part in: its buffers as storages, our places in its commands.

use std::sync::Arc;

use super::Engine;
use super::cmd::Cmd;
use crate::driver::{BufferId, Submission};
use crate::error::{Error, Result};
use crate::memory::{Place, Storage, TenantId};
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

impl Drop for Pinned {
    fn drop(&mut self) {
        self.storages.iter().for_each(|storage| storage.unpin());
    }
}

/// A storage that is to be pinned is restored so often, at most, while the budget falls.
const MOST_RESTORES: u32 = 8;

impl Engine {
    /// Runs what is queued and pins the storages at their places.
    pub(crate) async fn pin(self: &Arc<Self>, storages: &[&Arc<Storage>]) -> Result<Pinned> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let storages: Vec<_> = storages.iter().map(|&storage| storage.clone()).collect();
        let work = move |engine: Arc<Self>| async move {
            engine.execute().await?;
            engine.pin_all(&storages).await
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same, once what was queued has run.
    async fn pin_all(&self, storages: &[Arc<Storage>]) -> Result<Pinned> {
        let mut pinned = Pinned {
            storages: Vec::new(),
            places: Vec::new(),
            epoch: self.driver.ledger().epoch(),
        };
        for storage in storages {
            self.error_of(storage)?;
            // At once, so that nothing that waits for room evicts it when it has arrived.
            storage.pin();
            pinned.storages.push(storage.clone());
            self.restore_pinned(storage).await?;
        }
        // What was brought in must be there before the app's own commands run.
        self.submit()?;
        let state = self.lock();
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
    async fn restore_pinned(&self, storage: &Arc<Storage>) -> Result<()> {
        for _ in 0..MOST_RESTORES {
            match self.restore(storage).await? {
                Err(Error::OutOfMemory(_)) if self.was_lowered().await? => continue,
                brought => brought?,
            }
            if !self.lock().memory.is_evicted(storage) {
                return self.place_pinned(storage).await;
            }
            // What rematerializes it is in the queue now.
            self.execute().await?;
            self.error_of(storage)?;
        }
        match self.lock().memory.is_evicted(storage) {
            true => Err(self.out_of_memory(storage, ReclaimCounts::default())),
            false => Ok(()),
        }
    }

    /// Gives a storage a place if nobody has written to it or used it so far.
    async fn place_pinned(&self, storage: &Arc<Storage>) -> Result<()> {
        self.error_of(storage)?;
        let has_place = || self.lock().memory.find(storage).is_some();
        if has_place() {
            return Ok(());
        }
        self.lock().push_head(Cmd::Prefetch(storage.clone()));
        self.execute().await?;
        self.error_of(storage)?;
        match has_place() {
            true => Ok(()),
            false => Err(self.out_of_memory(storage, ReclaimCounts::default())),
        }
    }

    /// Lets the app submit commands of its own that use pinned places, after everything of ours
    /// that is queued; `submit` gives them to the device. They may write to those `written`.
    ///
    /// # Errors
    /// `DeviceLost` when the device is gone on which the places were, also if there is another one
    /// by now: then nothing is submitted and nothing written. What `submit` says.
    pub(crate) async fn submit_foreign(
        self: &Arc<Self>,
        pinned: &Pinned,
        written: &[&Arc<Storage>],
        submit: impl FnOnce() -> Result<Submission>,
    ) -> Result<()> {
        let execution_lock = self.lock_execution().await?;
        self.check_lost()?;
        // Only who has the execution lock replaces a device.
        if self.driver.ledger().epoch() != pinned.epoch {
            let reason = "it was replaced while the app recorded its commands".into();
            return Err(Error::DeviceLost { reason });
        }
        // Under the execution lock: whoever sees the new version reads what is written now.
        for storage in written {
            storage.bump_version();
        }
        let submission = submit()?;
        let looks = {
            let mut state = self.lock();
            for storage in written {
                state.memory.written(storage);
            }
            for place in &pinned.places {
                state.memory.used_by(*place, submission.serial);
            }
            state.submitted(submission.serial, &[]);
            state.last_submission = Some(submission);
            state.watch_foreign()
        };
        if looks {
            self.with_execution_lock(execution_lock, move |engine| async move {
                engine.look_over().await
            })
            .await?;
        }
        Ok(())
    }

    /// Makes a storage of a range of the app's buffer, which `enter` gives an id.
    pub(crate) fn import(
        &self,
        enter: impl FnOnce() -> BufferId,
        offset_bytes: u64,
        len_bytes: u64,
        site: &'static std::panic::Location<'static>,
    ) -> Result<Arc<Storage>> {
        let storage = Storage::new(len_bytes, TenantId::MAIN, site, self.dead.clone());
        let size_bytes = storage.size_bytes();
        // Under the lock, so that nobody forgets the buffer before a storage lies in it.
        let mut state = self.lock();
        state.free_dead();
        let buffer = enter();
        if let Some(tag) = state
            .memory
            .overlapping_import(buffer, offset_bytes, size_bytes)
        {
            return Err(Error::Buffer {
                operation: "import",
                reason: format!("the range overlaps the one imported at {tag}"),
            });
        }
        state.memory.import(&storage, buffer, offset_bytes);
        Ok(storage)
    }
}
