//! Replaces a lost device by a new one. The test's handle continues with it, and so do counters and
//! faults.

use super::faults::Site;
use super::options::SimOptions;
use super::queue::State;
use crate::driver::replacement::refusal;
use crate::driver::{DriverError, DriverResult};

impl State {
    pub(super) fn reopen(&mut self) -> DriverResult<()> {
        self.counters.count(Site::Reopen);
        self.suffer(Site::Reopen)?;
        if self.lost.is_none() {
            return Err(self.refuse("reopen: the device is not lost".to_string()));
        }
        if let Some(next) = self.next.clone() {
            self.become_like(next)?;
        }
        self.start_afresh();
        self.digest.note(Site::Reopen);
        Ok(())
    }

    /// Takes the options of another device. The engine has planned with the limits of the old one,
    /// so the new one keeps them.
    fn become_like(&mut self, next: SimOptions) -> DriverResult<()> {
        let unlikely = |error: crate::error::Error| DriverError::Invalid(error.to_string());
        let caps = self.options.caps().map_err(unlikely)?;
        if let Some(why) = refusal(&caps, &next.caps().map_err(unlikely)?) {
            return Err(DriverError::Invalid(why));
        }
        let old = &self.options;
        self.options = SimOptions {
            max_buffer_bytes: old.max_buffer_bytes,
            max_binding_bytes: old.max_binding_bytes,
            offset_alignment_bytes: old.offset_alignment_bytes,
            max_storage_bindings: old.max_storage_bindings,
            max_immediate_bytes: old.max_immediate_bytes,
            max_groups: old.max_groups,
            most_work: old.most_work,
            maps_slabs: old.maps_slabs,
            host_heap: old.host_heap,
            speed: old.speed,
            ..next
        };
        self.next = None;
        Ok(())
    }

    fn start_afresh(&mut self) {
        self.counters.buffers_destroyed += self.memory.live_count() as u64;
        self.memory.destroy_all();
        drop(self.groups.clear());
        drop(self.pipelines.clear());
        self.completed = self.submitted;
        self.lost = None;
        self.reopened = true;
    }
}
