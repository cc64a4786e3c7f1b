//! A new device in the place of one that was lost.

use std::sync::{Arc, PoisonError};

use super::super::replacement::refusal;
use super::super::{Caps, DriverError, DriverResult};
use super::open::{Found, LONGEST_WAIT, find};
use super::opened::Opened;
use super::{WgpuDriver, caps, invalid, needed};

impl WgpuDriver {
    /// Opens the adapter again, as it was asked for, the very one if it is still there.
    pub(super) async fn reopen_own(&self) -> DriverResult<()> {
        let old = self.opened();
        let Some(request) = &self.request else {
            return invalid("the device is the app's, which has to pass another one");
        };
        old.check_gone()?;
        let found = find(request, Some(&self.caps)).await;
        let Found { objects, caps } =
            found.map_err(|error| DriverError::Lost(error.to_string()))?;
        self.check_caps(&caps)?;
        let opened = Opened::new(objects, Arc::clone(&self.caps), Some(LONGEST_WAIT));
        let mut opened = opened.ok_or_else(lost_again)?;
        opened.use_cache(self.cache_folder.as_deref());
        // If another thread was faster, its device is as good.
        if let Some(new) = self.replace(&old, opened) {
            new.watch_lost();
        }
        Ok(())
    }

    /// Goes on with another device of the app's. It sets no callback; whoever watches the loss
    /// of the device has to watch this one's as well.
    ///
    /// # Errors
    /// [`DriverError::Invalid`] when we opened the device ourselves, or when this one can do less
    /// than the one before; [`DriverError::Lost`] when it takes no calls.
    #[allow(dead_code, reason = "the front desk is about to offer it")]
    pub(crate) fn readopt(
        &self,
        adapter: Option<&wgpu::Adapter>,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> DriverResult<()> {
        let old = self.opened();
        if self.request.is_some() {
            return invalid("the device is ours, not the app's: it is opened again, not replaced");
        }
        needed::check_device(device).map_err(|error| DriverError::Invalid(error.to_string()))?;
        self.check_caps(&caps::of_device(adapter, device))?;
        let objects = (adapter.cloned(), device.clone(), queue.clone());
        let opened = Opened::new(objects, Arc::clone(&self.caps), None);
        let mut opened = opened.ok_or_else(lost_again)?;
        opened.use_cache(self.cache_folder.as_deref());
        // The app knows better than we do, who may not have heard of it.
        old.progress.lose("the app replaced it");
        match self.replace(&old, opened) {
            Some(_) => Ok(()),
            None => invalid("another thread has replaced the device meanwhile"),
        }
    }

    fn check_caps(&self, new: &Caps) -> DriverResult<()> {
        match refusal(&self.caps, new) {
            None => Ok(()),
            Some(why) => invalid(why),
        }
    }

    /// Puts a device into the place of a lost one, unless another thread was faster.
    fn replace(&self, old: &Arc<Opened>, mut new: Opened) -> Option<Arc<Opened>> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, old) {
            return None;
        }
        let leftovers = new.succeed(old);
        let new = Arc::new(new);
        let before = std::mem::replace(&mut *current, Arc::clone(&new));
        drop(current);
        drop((leftovers, before));
        Some(new)
    }
}

impl Opened {
    /// Refuses where the device still works: whoever wants it replaced is wrong about it.
    fn check_gone(&self) -> DriverResult<()> {
        match self.poll_device(wgpu::PollType::Poll) {
            Err(DriverError::Lost(_)) => Ok(()),
            _ => invalid("the device is not lost"),
        }
    }
}

fn lost_again() -> DriverError {
    DriverError::Lost("the new device takes no calls".to_owned())
}
