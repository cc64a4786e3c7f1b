//! Replaces a lost device by a new one.

use std::sync::Arc;
use std::time::Duration;

use super::super::failure::invalid;
use super::super::replacement::refusal;
use super::super::{Caps, DriverError, DriverResult};
use super::driver::WgpuDriver;
use super::open::{Found, LONGEST_WAIT, find};
use super::opened::{Objects, Opened};
use super::{caps, needed};

impl WgpuDriver {
    /// Opens an adapter as first requested, and the same adapter if it still exists.
    pub(super) async fn open_again(&self) -> DriverResult<()> {
        let old = self.opened();
        let Some(request) = &self.request else {
            return invalid("the device belongs to the app, which has to pass another one");
        };
        let polled = old.guard.poll_device(wgpu::PollType::Poll);
        if !matches!(polled, Err(DriverError::Lost(_))) {
            return invalid("the device is not lost");
        }
        let found = find(request, Some(&self.caps)).await;
        let Found { objects, caps } =
            found.map_err(|error| DriverError::Lost(error.to_string()))?;
        self.check_caps(&caps)?;
        let opened = self.open_anew(objects, Some(LONGEST_WAIT))?;
        // If another thread was faster, its device serves as well.
        if let Some(new) = self.replace(&old, opened) {
            new.guard.watch_lost();
        }
        Ok(())
    }

    /// Continues with a device that the app passes.
    pub(super) fn continue_with(&self, objects: Objects) -> DriverResult<()> {
        let old = self.opened();
        if self.request.is_some() {
            return invalid("the device is ours, not the app's: it is opened again, not replaced");
        }
        needed::check(objects.1.features(), &objects.1.limits())
            .map_err(|error| DriverError::Invalid(error.to_string()))?;
        self.check_caps(&caps::of_device(objects.0.as_ref(), &objects.1))?;
        let opened = self.open_anew(objects, None)?;
        // The app knows of the loss first; the driver may not have been told.
        old.guard.progress.lose("the app replaced it");
        match self.replace(&old, opened) {
            Some(_) => Ok(()),
            None => invalid("another thread has replaced the device meanwhile"),
        }
    }

    fn open_anew(&self, objects: Objects, longest_wait: Option<Duration>) -> DriverResult<Opened> {
        let opened = Opened::new(objects, Arc::clone(&self.caps), longest_wait);
        let lost_again = || DriverError::Lost("the new device takes no calls".to_owned());
        let mut opened = opened.ok_or_else(lost_again)?;
        opened.use_cache(self.cache_folder.as_deref());
        Ok(opened)
    }

    fn check_caps(&self, new: &Caps) -> DriverResult<()> {
        match refusal(&self.caps, new) {
            None => Ok(()),
            Some(why) => invalid(why),
        }
    }

    /// Replaces a lost device, unless another thread was faster.
    fn replace(&self, old: &Arc<Opened>, mut new: Opened) -> Option<Arc<Opened>> {
        let mut current = self.current.write();
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
