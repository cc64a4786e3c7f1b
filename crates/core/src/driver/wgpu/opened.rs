//! One opened device and all objects on it. Reopening replaces it as a whole.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::super::table::Table;
use super::super::{Caps, DriverResult};
use super::guard::{self, Late};
use super::objects::{BindGroupEntry, BufferEntry, PipelineEntry};
use super::params::ParamPages;
use super::pipeline_cache::PipelineCache;
use super::progress::Progress;
use super::timing::Timing;

/// A device of wgpu: one that the engine opened, or one of the app.
pub(super) struct Opened {
    /// Some facts are known only from the adapter. An app may not have passed it.
    pub(super) adapter: Option<wgpu::Adapter>,
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) caps: Arc<Caps>,
    tables: RwLock<Tables>,
    pub(super) pages: ParamPages,
    pub(super) buffers_created: AtomicU64,
    pub(super) progress: Arc<Progress>,
    /// A destroyed buffer, with which the guard asks whether the device still takes calls.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser tells by itself")
    )]
    pub(super) probe: Mutex<wgpu::Buffer>,
    /// The scopes whose errors a browser has not reported yet.
    pub(super) late: Mutex<Vec<Late>>,
    /// The longest single wait inside wgpu. `None` if waits inside wgpu are not allowed.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser cannot block")
    )]
    pub(super) longest_wait: Option<Duration>,
    pub(super) pipeline_cache: Option<PipelineCache>,
    /// Present while kernels are timed. It is locked from the encoding of a submission until its
    /// end.
    pub(super) timing: Mutex<Option<Timing>>,
}

/// The objects of an opened device.
pub(super) type Objects = (Option<wgpu::Adapter>, wgpu::Device, wgpu::Queue);

/// The tables of objects by id. The lock is held while commands are encoded. It is never held while
/// wgpu may call back: during submissions, polls, mappings, and drops of buffers.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) buffers: Table<BufferEntry>,
    pub(super) pipelines: Table<PipelineEntry>,
    pub(super) groups: Table<BindGroupEntry>,
    /// Whether the device was replaced. Then another device has its tables, and this one adds no
    /// entries.
    closed: bool,
}

/// The objects of a replaced device. The caller drops them while it holds no lock.
pub(super) struct Leftovers {
    _groups: Vec<BindGroupEntry>,
    _pipelines: Vec<PipelineEntry>,
    _buffers: Vec<BufferEntry>,
}

impl Opened {
    /// `None` if the device takes no calls.
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
            // The probe is the first buffer.
            buffers_created: AtomicU64::new(1),
            progress: Arc::default(),
            probe: Mutex::new(probe),
            late: Mutex::default(),
            longest_wait,
            pipeline_cache: None,
            timing: Mutex::default(),
        })
    }

    /// Reads pipelines from a folder, and writes them there at the end.
    pub(super) fn use_cache(&mut self, folder: Option<&Path>) {
        let Some(folder) = folder else { return };
        let opened = self.guarded(|| PipelineCache::open(&self.device, folder));
        // If the device reports an error, it works without the cache.
        self.pipeline_cache = self.now(opened).ok().flatten();
    }

    /// Replaces a lost device. Ids and serials continue where the lost device ended. A call that
    /// still runs on the lost device adds to neither.
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
        self.progress = Arc::new(Progress::after(&old.progress));
        *self.buffers_created.get_mut() += old.buffers_created.load(Ordering::Relaxed);
        leftovers
    }

    /// Takes the device's callback for its loss. On an adopted device the callback belongs to the
    /// app, which may leave it to the engine.
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
