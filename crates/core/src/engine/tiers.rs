//! The host's share of what was evicted: what gives way when it is short, and what goes on to disk.

use std::sync::Arc;

use super::Engine;
use crate::error::Result;
use crate::memory::{HostCharge, Storage};

impl Engine {
    /// Takes bytes of the host's share, if need be of copies that are not the only ones.
    pub(super) fn host_charge(&self, size_bytes: u64) -> Result<Option<HostCharge>> {
        let charge = self.host.charge(size_bytes);
        if charge.is_some() || self.host.limit_bytes() < size_bytes {
            return Ok(charge);
        }
        let missing_bytes = self.host.missing_bytes(size_bytes);
        self.shed_host_copies(missing_bytes)?;
        Ok(self.host.charge(size_bytes))
    }

    /// Gives up copies in the host's memory of what is on the device or on disk as well.
    fn shed_host_copies(&self, wanted_bytes: u64) -> Result<()> {
        // The copies that bring back what has arrived in the batch may still be refused.
        self.submit()?;
        let mut state = self.lock();
        state.memory.shed_host_copies(wanted_bytes);
        drop(state);
        self.drop_gone();
        Ok(())
    }

    /// Brings the host's share below its limit, as far as the disk has room. The caller has
    /// the execution lock.
    pub(super) fn drain_host(&self) -> Result<()> {
        if self.host.excess_bytes() > 0 {
            // Those on their way there have their room already.
            let given_up = std::mem::take(&mut self.lock().cleaning);
            drop(given_up);
        }
        if self.host.excess_bytes() > 0 {
            self.shed_host_copies(self.host.excess_bytes())?;
        }
        let mut on_host = match self.host.excess_bytes() {
            0 => Vec::new(),
            _ => self.lock().memory.on_host(),
        };
        while self.host.excess_bytes() > 0 {
            let Some(storage) = on_host.pop() else { break };
            // What finds no room on the disk stays: it has nowhere to go.
            let _ = self.send_to_disk(&storage);
        }
        Ok(())
    }

    fn send_to_disk(&self, storage: &Arc<Storage>) -> Result<()> {
        let copies = self.evicted_copies(storage);
        let Some(host) = copies.as_ref().and_then(|copies| copies.host.clone()) else {
            return Ok(());
        };
        let tenant = storage.tenant().number();
        let mut writer = self.spill.begin(storage.len_bytes(), tenant)?;
        match self.driver.has_contents() {
            true => writer.write(&host.bytes)?,
            false => writer.write(&vec![0; storage.len_bytes() as usize])?,
        }
        let disk = Arc::new(writer.finish()?);
        self.lock().memory.copied(storage, |copies| {
            copies.disk = Some(disk);
            copies.host = None;
        });
        Ok(())
    }

    /// Drops copies that are out of date, which may take the file system a while.
    pub(super) fn drop_gone(&self) {
        let gone = self.lock().memory.take_gone();
        gone.into_iter().for_each(|copies| self.drop_theirs(copies));
    }
}
