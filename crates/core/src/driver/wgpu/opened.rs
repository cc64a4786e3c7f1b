//! One opened device and all that was made on it: what a reopening replaces as a whole.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::super::table::Table;
use super::super::{Caps, DriverResult};
use super::guard::{self, Late};
use super::objects::{BindGroupEntry, BufferEntry, PipelineEntry};
use super::params::ParamPages;
use super::pipeline_cache::PipelineCache;
use super::progress::Progress;
use super::timing::Timing;

/// A device of wgpu: one that we opened, or the app's.
pub(super) struct Opened {
    /// Some things only an adapter tells; an app may have kept it to itself.
    pub(super) adapter: Option<wgpu::Adapter>,
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) caps: Arc<Caps>,
    tables: RwLock<Tables>,
    pub(super) pages: ParamPages,
    pub(super) buffers_created: AtomicU64,
    pub(super) progress: Arc<Progress>,
    /// A destroyed buffer, to ask the device whether it still takes calls.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser tells by itself")
    )]
    pub(super) probe: Mutex<wgpu::Buffer>,
    /// Errors that a browser has yet to tell.
    pub(super) late: Mutex<Vec<Late>>,
    /// The longest single wait inside wgpu; none where there must be no such wait.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser cannot block")
    )]
    pub(super) longest_wait: Option<Duration>,
    pub(super) pipeline_cache: Option<PipelineCache>,
    /// There while kernels are timed; locked from a submission's encoding until its end.
    pub(super) timing: Mutex<Option<Timing>>,
}

/// What wgpu makes when it opens a device.
pub(super) type Objects = (Option<wgpu::Adapter>, wgpu::Device, wgpu::Queue);

/// The objects behind the ids. The lock is held while commands are encoded, and never while
/// wgpu may call back: not while submitting, polling, mapping, or dropping a buffer.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) buffers: Table<BufferEntry>,
    pub(super) pipelines: Table<PipelineEntry>,
    pub(super) groups: Table<BindGroupEntry>,
    /// The device was replaced, and its tables are now another's: nothing is entered here.
    closed: bool,
}

/// What was made on a device that was replaced. To be dropped where no lock is held.
pub(super) struct Leftovers {
    _groups: Vec<BindGroupEntry>,
    _pipelines: Vec<PipelineEntry>,
    _buffers: Vec<BufferEntry>,
}

impl Opened {
    /// None where the device takes no calls.
    pub(super) fn new(
        (adapter, device, queue): Objects,
        caps: Arc<Caps>,
        longest_wait: Option<Duration>,
    ) -> Option<Self> {
        let probe = guard::probe(&device)?;
        Some(Opened {
            pages: ParamPages::new(&caps),
            adapter,
            device,
            queue,
            caps,
            tables: RwLock::default(),
            // The probe.
            buffers_created: AtomicU64::new(1),
            progress: Arc::default(),
            probe: Mutex::new(probe),
            late: Mutex::default(),
            longest_wait,
            pipeline_cache: None,
            timing: Mutex::default(),
        })
    }

    /// Takes pipelines from a folder, and keeps them there in the end.
    pub(super) fn use_cache(&mut self, folder: Option<&Path>) {
        let Some(folder) = folder else { return };
        let opened = self.guarded(|| PipelineCache::open(&self.device, folder));
        // What the device objects to is done without.
        self.pipeline_cache = self.now(opened).ok().flatten();
    }

    /// Takes the place of a device that was lost: ids and serials go on where it ended. A call that
    /// is under way on that one adds nothing to either.
    pub(super) fn succeed(&mut self, old: &Opened) -> Leftovers {
        let closed = Tables {
            closed: true,
            ..Tables::default()
        };
        let mut tables = std::mem::replace(&mut *old.tables_mut(), closed);
        let leftovers = Leftovers {
            _groups: tables.groups.clear(),
            _pipelines: tables.pipelines.clear(),
            _buffers: tables.buffers.clear(),
        };
        self.tables = RwLock::new(tables);
        self.progress = Arc::new(Progress::after(old.progress.last_serial()));
        *self.buffers_created.get_mut() += old.buffers_created.load(Ordering::Relaxed);
        leftovers
    }

    /// Takes the device's callback for its loss. An adopted device's belongs to the app, which
    /// may leave it to us.
    pub(super) fn watch_lost(&self) {
        let progress = Arc::clone(&self.progress);
        self.device
            .set_device_lost_callback(move |reason, message| {
                let reason = match (reason, message.trim().trim_end_matches('.')) {
                    (wgpu::DeviceLostReason::Destroyed, "") => "it was destroyed".to_owned(),
                    (_, "") => "its driver does not say why".to_owned(),
                    (_, message) => message.to_owned(),
                };
                progress.lose(&reason);
            });
    }

    pub(super) fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables, to enter something that was made on this device.
    pub(super) fn tables_to_fill(&self) -> DriverResult<RwLockWriteGuard<'_, Tables>> {
        let tables = self.tables_mut();
        if tables.closed {
            drop(tables);
            return Err(self.gone());
        }
        Ok(tables)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(cache) = &self.pipeline_cache {
            if self.progress.lost().is_none() {
                cache.keep();
            }
        }
    }
}
