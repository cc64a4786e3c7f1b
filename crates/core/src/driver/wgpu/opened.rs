//! One opened device and all objects on it. Reopening replaces it as a whole.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::super::{Caps, DriverResult};
use super::guard::Guard;
use super::link::LinkTimes;
use super::params::ParamPages;
use super::pipeline_cache::PipelineCache;
use super::progress::QueueProgress;
use super::tables::{Leftovers, Tables};
use super::timing::KernelTimes;

/// A device of wgpu: one that the engine opened, or one of the app.
pub(super) struct Opened {
    /// Some facts are known only from the adapter. An app may not have passed it.
    pub(super) adapter: Option<wgpu::Adapter>,
    pub(super) guard: Guard,
    pub(super) queue: wgpu::Queue,
    pub(super) caps: Arc<Caps>,
    tables: RwLock<Tables>,
    pub(super) pages: ParamPages,
    pub(super) pipeline_cache: Option<PipelineCache>,
    pub(super) times: KernelTimes,
    pub(super) link: LinkTimes,
}

/// The objects of an opened device.
pub(super) type Objects = (Option<wgpu::Adapter>, wgpu::Device, wgpu::Queue);

impl Opened {
    /// `None` if the device takes no calls.
    pub(super) fn new(
        (adapter, device, queue): Objects,
        caps: Arc<Caps>,
        longest_wait: Option<Duration>,
    ) -> Option<Self> {
        Some(Opened {
            guard: Guard::new(device, longest_wait)?,
            pages: ParamPages::new(&caps),
            adapter,
            queue,
            caps,
            tables: RwLock::default(),
            pipeline_cache: None,
            times: KernelTimes::default(),
            link: LinkTimes::default(),
        })
    }

    /// Reads pipelines from a folder, and writes them there at the end.
    pub(super) fn use_cache(&mut self, folder: Option<&Path>) {
        let Some(folder) = folder else { return };
        let opened = (self.guard).guarded(|| PipelineCache::open(&self.guard.device, folder));
        // If the device reports an error, it works without the cache.
        self.pipeline_cache = self.guard.now(opened).ok().flatten();
    }

    /// Replaces a lost device. Ids and serials continue where the lost device ended. A call that
    /// still runs on the lost device adds to neither.
    pub(super) fn succeed(&mut self, old: &Opened) -> Leftovers {
        let (tables, leftovers) = old.tables_mut().hand_over();
        self.tables = RwLock::new(tables);
        let (new, old) = (&mut self.guard, &old.guard);
        new.progress = Arc::new(QueueProgress::after(&old.progress));
        *new.buffers_created.get_mut() += old.buffers_created.load(Ordering::Relaxed);
        leftovers
    }

    pub(super) fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read()
    }

    pub(super) fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write()
    }

    /// The tables, to add an object that was created on this device.
    pub(super) fn tables_to_fill(&self) -> DriverResult<RwLockWriteGuard<'_, Tables>> {
        let tables = self.tables_mut();
        if tables.closed {
            drop(tables);
            return Err(self.guard.gone());
        }
        Ok(tables)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(cache) = &self.pipeline_cache {
            if self.guard.progress.lost().is_none() {
                cache.keep();
            }
        }
    }
}
