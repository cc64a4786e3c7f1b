//! Dry runs: for this thread, another engine stands for that of a device.
//!
//! ```text
//!   call on a storage of the device ──► Handle::here ──► the same call on the dry engine
//! ```
//!
//! The dry engine is an ordinary one over a driver that only counts (`driver::dry`). A storage of
//! the device has a *fake* there (PyTorch's word): same size, tag and residency, no value. All
//! storages that are alive get their fakes at the start, in the same blocks of the same slabs. The
//! fakes live as long as the dry run: what the app holds outside of it stays held.
//!
//! Every call of the layers above passes through [`Handle::here`](super::door::Handle::here).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::block_on;
use super::door::{Faked, Here};
use super::handle::Engine;
use super::numbers::MemoryStats;
use super::queue::cmd::Cmd;
use super::report::alive;
use super::state::account::DryRunAccount;
use crate::driver::{Account, DryDriver};
use crate::error::Result;
use crate::memory::{
    Copies, Fakes, HostCopy, HostHeap, HostUse, Kept, Memory, Residency, Source, Storage,
};
use crate::shortage::Holder;
use crate::transfer::refusal;

/// The dry runs of all threads.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The dry runs of this thread, the innermost last.
    static RUNS: RefCell<Vec<Rc<Run>>> = const { RefCell::new(Vec::new()) };
}

/// A dry run of an engine, on one thread.
struct Run {
    real: Arc<Engine>,
    dry: Arc<Engine>,
    driver: Arc<DryDriver>,
    fakes: RefCell<Fakes>,
}

impl Run {
    /// The fake of a storage of the device.
    fn fake(&self, storage: &Arc<Storage>) -> Arc<Storage> {
        let address = storage.address() as u64;
        if let Some((_, fake)) = self.fakes.borrow().get(&address) {
            return fake.clone();
        }
        // It has no place yet, or another thread made it.
        let fake = storage.fake(self.dry.dead_list());
        let entry = (Arc::downgrade(storage), fake.clone());
        self.fakes.borrow_mut().insert(address, entry);
        fake
    }

    /// Makes the dry engine's memory as full as the device's, within the same budget. Each storage
    /// that has a holder gets a fake, and the fakes get the same blocks in the same slabs.
    fn fill(&self) -> Result<()> {
        let (real, dry) = (&self.real, &self.dry);
        let mut held = alive(&real.lock());
        held.retain(|storage| !storage.is_donated());
        held.iter().for_each(|storage| drop(self.fake(storage)));
        let (mut memory, kept) = {
            let state = real.lock();
            let kept: Vec<Kept> = held
                .iter()
                .map(|storage| state.memory.slots.kept(storage))
                .collect();
            let dead_list = dry.dead_list().clone();
            (state.memory.fake(&self.fakes.borrow(), dead_list), kept)
        };
        let make = |size_bytes| {
            let made = dry.driver.create_buffer(Account::Slabs, size_bytes, "slab");
            let made = async { made.await.map_err(|error| refusal("a slab", error)) };
            block_on("a dry run", made)
        };
        memory.give_buffers(make, || self.driver.foreign_buffer())?;
        memory.give_heap_buffers(&dry.host, |size_bytes| {
            let made = dry.driver.create_host_slab(size_bytes, "slab");
            let refused = |error| refusal("a slab in the host's memory", error);
            block_on("a dry run", async { made.await.map_err(refused) })
        })?;
        for (storage, kept) in held.iter().zip(kept) {
            let fake = self.fake(storage);
            if !kept.is_nothing() {
                let copies = self.copies(&memory, &fake, kept);
                memory.slots.set_copies(&fake, copies);
            }
        }
        let is_heap_refused = memory.heap.as_ref().is_some_and(HostHeap::is_refused);
        dry.lock().memory = memory;
        // Within the budget: a slab for what has no place yet must not be larger than allowed.
        block_on("a dry run", dry.set_budget(real.budget_now()))?;
        if let Some(heap) = dry.lock().memory.heap.as_mut().filter(|_| is_heap_refused) {
            // The device's driver has not been asked again.
            heap.refused();
        }
        for storage in held {
            let fake = self.fake(&storage);
            if fake.residency() == Residency::Pending {
                // A command in the device's queue is going to write it. It may be of any share.
                dry.push_one(Cmd::Clear {
                    dst: fake.clone(),
                    method: "",
                })?;
            }
        }
        dry_flush(dry)
    }

    /// Copies of a fake as the device's storage has them, without bytes.
    fn copies(&self, memory: &Memory, fake: &Storage, kept: Kept) -> Copies {
        let (len_bytes, share) = (fake.len_bytes(), fake.share().number());
        let mut copies = Copies::default();
        if let Some(block) = kept.in_heap {
            let block = memory.fake_heap_block(fake, block, &self.dry.host);
            copies.host = block.map(|block| Arc::new(HostCopy::Heap(block)));
        } else if kept.on_host {
            let charge = self.dry.host.charge(HostUse::Copy, len_bytes);
            let bytes = Vec::new();
            copies.host = charge.map(|charge| Arc::new(HostCopy::Plain { bytes, charge }));
        }
        if let Some(number) = kept.in_store {
            let store = self.dry.stores.get(usize::from(number));
            let block = store.and_then(|store| store.begin(len_bytes).ok()?.finish().ok());
            copies.store = block.map(|block| (number, block));
        }
        if kept.on_disk {
            let block = self.dry.spill.begin(len_bytes, share);
            copies.disk = block.and_then(|writer| writer.finish()).ok().map(Arc::new);
        }
        if kept.at_source || copies.is_empty() {
            // Nothing reads it.
            copies.source = Some(Source::bytes(Arc::default()));
        }
        copies
    }
}

fn dry_flush(dry: &Arc<Engine>) -> Result<()> {
    block_on("a dry run", dry.flush())
}

/// The result of a dry run, in numbers.
#[derive(Debug)]
pub(crate) struct DryCounts {
    pub(crate) stats: MemoryStats,
    /// The holders at the peak of live bytes, the most bytes first.
    pub(crate) holders: Vec<Holder>,
    /// Those at the beginning. What was queued then has its place, and no part in the program.
    pub(crate) before: MemoryStats,
    pub(crate) account: DryRunAccount,
}

/// A dry run of this thread, until it is dropped.
pub(crate) struct DryRunGuard {
    run: Rc<Run>,
    before: MemoryStats,
}

impl DryRunGuard {
    /// From now on, calls of this thread on `real` go to `dry`, which is made of its
    /// [`dry_setup`](Engine::dry_setup).
    pub(crate) fn begin(
        real: &Arc<Engine>,
        dry: &Arc<Engine>,
        driver: Arc<DryDriver>,
    ) -> Result<Self> {
        let run = Rc::new(Run {
            real: real.clone(),
            dry: dry.clone(),
            driver,
            fakes: RefCell::default(),
        });
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        RUNS.with_borrow_mut(|runs| runs.push(run.clone()));
        let mut guard = DryRunGuard {
            run,
            before: MemoryStats::default(),
        };
        guard.run.fill()?;
        dry.reset_peaks();
        dry.driver.predict_as(&real.driver);
        guard.before = dry.report();
        let costs = real.lock().costs;
        let mut state = dry.lock();
        state.costs = costs;
        state.memory.census.watch_peak();
        state.dry = Some(Box::default());
        drop(state);
        Ok(guard)
    }

    /// Runs what is queued and returns the counts.
    ///
    /// # Errors
    /// That of the first command that found no room and whose result is still held.
    pub(crate) fn end(mut self) -> Result<DryCounts> {
        let dry = &self.run.dry;
        dry_flush(dry)?;
        if let Some(error) = dry.lock().left_behind.first_error() {
            return Err(error);
        }
        let stats = dry.report();
        let mut state = dry.lock();
        let holders = state.memory.census.holders_at_peak();
        Ok(DryCounts {
            before: std::mem::take(&mut self.before),
            account: *state.dry.take().unwrap_or_default(),
            stats,
            holders,
        })
    }
}

impl Drop for DryRunGuard {
    fn drop(&mut self) {
        RUNS.with_borrow_mut(|runs| runs.retain(|run| !Rc::ptr_eq(run, &self.run)));
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        // They may hold histories with functions of the app, which are dropped without a borrow.
        let fakes = self.run.fakes.take();
        drop(fakes);
    }
}

/// Replaces `own` by its fake in each dry run of this thread, the outermost first. No borrow is
/// held while `fake` runs: it may call functions of the app.
fn faked<T>(own: &Arc<T>, fake: impl Fn(&Run, &Arc<T>) -> Option<Arc<T>>) -> Here<'_, T> {
    let mut here = Here::Own(own);
    let run = |index: usize| {
        let run = RUNS.try_with(|runs| runs.borrow().get(index).cloned());
        run.ok().flatten()
    };
    let mut index = 0;
    while let Some(run) = run(index) {
        if let Some(fake) = fake(&run, &here) {
            here = Here::Fake(fake);
        }
        index += 1;
    }
    here
}

/// Is there any dry run, on any thread?
#[inline]
pub(super) fn is_any() -> bool {
    UNDER_WAY.load(Ordering::Relaxed) > 0
}

impl Faked for Engine {
    #[cold]
    fn fake_here(own: &Arc<Self>) -> Here<'_, Self> {
        let share = || own.share().cloned();
        faked(own, |run, here| {
            (here.is_same_device(&run.real)).then(|| run.dry.of_share(share()))
        })
    }
}

impl Faked for Storage {
    #[cold]
    fn fake_here(own: &Arc<Self>) -> Here<'_, Self> {
        faked(own, |run, here| {
            (here.belongs_to(run.real.dead_list())).then(|| run.fake(here))
        })
    }
}
