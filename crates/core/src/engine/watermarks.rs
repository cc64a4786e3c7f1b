//! The app's callbacks for watermarks: levels of memory whose rise it wants to know.

#[cfg(feature = "metrics")]
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::memory::{Dead, DeadList};

/// A level that has risen to a watermark: see
/// [`GpuMemory::on_watermark`](crate::GpuMemory::on_watermark).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watermark {
    /// The path of the share; `None` for the whole device.
    pub share: Option<String>,
    /// The percentage that the app asked for.
    pub percent: u8,
    /// The bytes on the device now, in whole granules.
    pub bytes: u64,
    /// The most that they may be.
    pub limit_bytes: u64,
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) type WatermarkCallback = dyn Fn(&Watermark) + Send + Sync;
#[cfg(target_arch = "wasm32")]
pub(crate) type WatermarkCallback = dyn Fn(&Watermark);

/// What a callback watches.
pub(crate) struct Watched {
    /// The path of the share; `None` for the whole device.
    pub(crate) path: Option<Arc<str>>,
    /// The name of the share in metrics.
    #[cfg(feature = "metrics")]
    pub(crate) label: Option<Arc<str>>,
    pub(crate) percent: u8,
}

struct Listener {
    id: u64,
    of: Watched,
    /// How often it was called.
    calls: u64,
    callback: Arc<WatermarkCallback>,
}

/// The app's callbacks for watermarks.
#[derive(Default)]
pub(crate) struct WatermarkListeners(Arc<Mutex<Listeners>>);

#[derive(Default)]
struct Listeners {
    last_id: u64,
    all: Vec<Listener>,
    /// How often callbacks were called whose guards are gone.
    #[cfg(feature = "metrics")]
    ended: Calls,
}

/// Calls by the label of the share, and by percentage.
#[cfg(feature = "metrics")]
pub(crate) type Calls = BTreeMap<(Option<Arc<str>>, u8), u64>;

/// Keeps a watermark's callback registered until it is dropped.
#[must_use = "the callback is removed as soon as this is dropped"]
pub struct WatermarkGuard {
    listeners: Weak<Mutex<Listeners>>,
    dead: Arc<DeadList>,
    id: u64,
}

debug_by_name!(WatermarkGuard);

impl Drop for WatermarkGuard {
    fn drop(&mut self) {
        self.dead.push(Dead::Watermark(self.id));
        if let Some(listeners) = self.listeners.upgrade() {
            let mut listeners = listeners.lock();
            let gone = listeners.all.iter().position(|one| one.id == self.id);
            let gone = gone.map(|index| listeners.all.swap_remove(index));
            #[cfg(feature = "metrics")]
            if let Some(gone) = gone.as_ref().filter(|gone| gone.calls > 0) {
                gone.count(&mut listeners.ended);
            }
            // The app's closure may hold tensors or other values, so it is dropped outside the
            // lock.
            drop(listeners);
            drop(gone);
        }
    }
}

impl Listener {
    #[cfg(feature = "metrics")]
    fn count(&self, calls: &mut Calls) {
        let of = (self.of.label.clone(), self.of.percent);
        *calls.entry(of).or_default() += self.calls;
    }
}

impl WatermarkListeners {
    /// Registers a callback. Returns its number and its guard.
    pub(crate) fn listen(
        &self,
        of: Watched,
        callback: Arc<WatermarkCallback>,
        dead: &Arc<DeadList>,
    ) -> (u64, WatermarkGuard) {
        let mut listeners = self.0.lock();
        listeners.last_id += 1;
        let id = listeners.last_id;
        listeners.all.push(Listener {
            id,
            of,
            calls: 0,
            callback,
        });
        let guard = WatermarkGuard {
            listeners: Arc::downgrade(&self.0),
            dead: dead.clone(),
            id,
        };
        (id, guard)
    }

    /// How often callbacks were called, those without a guard any more included.
    #[cfg(feature = "metrics")]
    pub(crate) fn calls(&self) -> Calls {
        let listeners = self.0.lock();
        let mut calls = listeners.ended.clone();
        listeners.all.iter().for_each(|one| one.count(&mut calls));
        calls
    }

    /// What a callback is told, and the callback, which the caller calls. `None` if its guard is
    /// gone.
    pub(crate) fn begin_call(
        &self,
        id: u64,
        bytes: u64,
        limit_bytes: u64,
    ) -> Option<(Watermark, Arc<WatermarkCallback>)> {
        let mut listeners = self.0.lock();
        let one = listeners.all.iter_mut().find(|one| one.id == id)?;
        one.calls += 1;
        let mark = Watermark {
            share: one.of.path.as_deref().map(str::to_owned),
            percent: one.of.percent,
            bytes,
            limit_bytes,
        };
        Some((mark, one.callback.clone()))
    }
}
