//! A device under a budget, the tensors of a program, and the errors that it may get.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use lapidary::sim::{SimHandle, SimOptions};
use lapidary::{Budget, Error, Gpu, Options, Result, Tensor, stats::PressureGuard};

use crate::pressure::data::Held;

/// Most bytes of the budget's device part.
const MOST_BYTES: u64 = 160 << 10;

/// Most elements of a tensor: 4 KiB.
pub(crate) const ELEMENTS: usize = 1024;

/// Additional bytes for draining to a lower limit.
const LITTLE_BYTES: u64 = 4 << 10;

/// What a kind of program may do, and what may happen to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Most tensors that a program holds.
    pub(crate) held: usize,
    /// Tensors may be evicted, so everything that fits alone fits.
    pub(crate) leaves: bool,
    /// Tensors may be pinned and then be in the way.
    pub(crate) pins: bool,
    /// Only this program sets budgets and holds tensors.
    pub(crate) alone: bool,
}

/// A read under way, and its expected result.
pub(crate) struct Reading {
    pub(crate) read: std::pin::Pin<Box<dyn Future<Output = Result<Vec<u32>>> + Send>>,
    pub(crate) held: Held,
    pub(crate) expected: Vec<u32>,
    /// Whether the tensor was in doubt at the beginning. A later write does not change that.
    pub(crate) was_unsure: bool,
}

/// Tensors that a callback drops when memory is short.
pub(crate) type Cache = Arc<Mutex<Vec<(Tensor, Vec<u32>)>>>;

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) gpu: Gpu,
    pub(crate) sim: SimHandle,
    pub(crate) rules: Rules,
    pub(crate) held: Vec<Held>,
    pub(crate) reads: Vec<Reading>,
    pub(crate) cache: Cache,
    pub(crate) guards: Vec<PressureGuard>,
    /// Faults are armed or were just before, so any work may fail.
    pub(crate) in_fault: bool,
    /// Bytes that were read once may be lost the next time.
    pub(crate) disk_lies: bool,
    /// The last budget was set while the disk failed, so the host's memory may still exceed it.
    pub(crate) is_above: bool,
    /// The highest limit so far.
    most_bytes: u64,
    /// The excess that the last budget left above its limit.
    shortfall_bytes: u64,
    /// Numbers of correct reads and of reads with an error.
    pub(crate) checked: (u64, u64),
}

/// A budget under which some tensors must be evicted.
pub(crate) fn budget(rng: &mut Rng, rules: Rules, maps_slabs: bool) -> Budget {
    let device_bytes = rng.u64(24 << 10..MOST_BYTES);
    let (host_bytes, disk_bytes) = match rng.u32(..4) {
        _ if !rules.leaves => (Some(0), Some(0)),
        // If host and device share memory, all go to disk.
        _ if maps_slabs => (None, None),
        0 => (Some(0), None),
        1 => (Some(rng.u64(1 << 10..64 << 10)), None),
        2 => (None, Some(0)),
        _ => (None, None),
    };
    Budget {
        device_bytes: Some(device_bytes),
        soft_device_bytes: rng.bool().then(|| rng.u64(1..=device_bytes)),
        staging_bytes: (rng.u32(..4) == 0).then(|| rng.u64(..device_bytes / 3)),
        host_bytes,
        disk_bytes,
    }
}

/// A folder in memory if there is one, because other files may wait for the disk.
pub(crate) fn folder() -> PathBuf {
    let folder = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    folder.unwrap_or_else(std::env::temp_dir)
}

/// A strict device that lags behind and whose memory begins with garbage.
pub(crate) fn device(rng: &mut Rng, seed: u64) -> SimOptions {
    SimOptions {
        memory_bytes: 8 << 20,
        max_buffer_bytes: 64 << 10 << rng.u32(..4),
        max_binding_bytes: 16 << 10,
        offset_alignment_bytes: *rng.choice(&[32, 256]).expect("two"),
        max_immediate_bytes: *rng.choice(&[0, 128]).expect("two"),
        maps_slabs: rng.u32(..3) == 0,
        host_heap: seed % 2 == 1,
        lag_submissions: rng.u32(..5),
        jitter: rng.bool(),
        pauses: rng.u32(..2),
        dirty: true,
        // All programs compile the same few kernels.
        checks_shaders: false,
        seed,
        ..SimOptions::default()
    }
}

impl World {
    pub(crate) fn new(seed: u64, rules: Rules) -> World {
        let mut rng = Rng::with_seed(seed);
        let device = device(&mut rng, seed);
        let options = Options {
            budget: Some(budget(&mut rng, rules, device.maps_slabs)),
            spill_folder: Some(folder()),
            spill_compress: cfg!(feature = "lz4") && rng.bool(),
            ..Options::from_env().unwrap()
        };
        let (gpu, sim) = Gpu::simulated_with(device, options).expect("a device");
        World::on(gpu, sim, rng, rules)
    }

    /// A program of several on one device.
    pub(crate) fn on(gpu: Gpu, sim: SimHandle, rng: Rng, rules: Rules) -> World {
        World {
            rng,
            most_bytes: match rules.alone {
                true => gpu.memory().budget().device_bytes.unwrap_or(u64::MAX),
                false => MOST_BYTES,
            },
            shortfall_bytes: 0,
            gpu,
            sim,
            rules,
            held: Vec::new(),
            reads: Vec::new(),
            cache: Cache::default(),
            guards: Vec::new(),
            in_fault: false,
            disk_lies: false,
            is_above: false,
            checked: (0, 0),
        }
    }

    pub(crate) fn values(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.rng.u32(..)).collect()
    }

    /// Mostly small, often of one size, sometimes the largest; now and then empty.
    pub(crate) fn len(&mut self) -> usize {
        match self.rng.u32(..16) {
            0 => self.rng.usize(..4),
            1..4 => ELEMENTS,
            4..8 => 256,
            _ => self.rng.usize(1..=ELEMENTS),
        }
    }

    /// A tensor of the program.
    pub(crate) fn pick(&mut self) -> Option<Held> {
        self.rng.choice(&self.held).cloned()
    }

    /// Adds a tensor; if there are many, another one is dropped for it.
    pub(crate) fn hold(&mut self, held: Held) {
        if self.held.len() == self.rules.held {
            let index = self.rng.usize(..self.rules.held);
            self.held.swap_remove(index);
        }
        if self.in_fault {
            held.data.doubt();
        }
        self.held.push(held);
    }

    pub(crate) fn set_budget(&mut self, budget: Budget) -> Result<()> {
        self.is_above = self.in_fault;
        let set = self.gpu.memory().set_budget(budget);
        // A device that was lost meanwhile has not reached the limit.
        self.shortfall_bytes = *set.as_ref().unwrap_or(&u64::MAX);
        self.most_bytes = self.most_bytes.max(budget.device_bytes.unwrap_or(u64::MAX));
        set.map(drop)
    }

    /// Checks that a call may fail with this error.
    pub(crate) fn judge(&self, name: &str, error: &Error) {
        let reserved_bytes = self.gpu.memory().budget().device_bytes.unwrap_or(u64::MAX);
        let is_in_order = match error {
            _ if self.in_fault => true,
            Error::NeverFits {
                requested_bytes,
                limit_bytes,
                ..
            } => {
                let is_limit = *limit_bytes >= reserved_bytes / 2 || !self.rules.alone;
                requested_bytes > limit_bytes && is_limit
            }
            Error::OutOfMemory(_) => !self.rules.leaves || self.rules.pins,
            Error::Pinned { .. } => self.rules.pins || !self.rules.alone,
            // Neither the host nor the disk has room, so the tensor stays.
            Error::Spill(_) => name == "evict" && self.gpu.memory().budget().disk_bytes.is_some(),
            _ => false,
        };
        assert!(
            is_in_order,
            "{name}: {error}\n{:?}\n{}",
            self.gpu.memory().budget(),
            self.gpu.memory().stats()
        );
    }

    /// Compares the result of a read.
    pub(crate) fn check(&mut self, read: Result<Vec<u32>>, held: &Held, expected: &[u32]) -> bool {
        let is_unsure = held.data.is_unsure.get();
        self.compare(read, held, expected, is_unsure)
    }

    fn compare(
        &mut self,
        read: Result<Vec<u32>>,
        held: &Held,
        expected: &[u32],
        is_unsure: bool,
    ) -> bool {
        match read {
            Ok(got) => {
                assert!(got == expected, "wrong bytes in {}", held.tensor);
                self.checked.0 += 1;
                true
            }
            // A rematerializer may need another one that became useless.
            Err(
                Error::Poisoned { .. }
                | Error::DeviceLost { .. }
                | Error::SpillCorrupt { .. }
                | Error::Recompute { .. },
            ) if is_unsure => {
                self.checked.1 += 1;
                false
            }
            Err(error) => {
                self.judge("a read", &error);
                self.checked.1 += 1;
                false
            }
        }
    }

    /// Awaits one of the reads under way.
    pub(crate) fn await_one(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let index = self.rng.usize(..self.reads.len());
        let reading = self.reads.swap_remove(index);
        let read = pollster::block_on(reading.read);
        let is_unsure = reading.was_unsure || reading.held.data.is_unsure.get();
        self.compare(read, &reading.held, &reading.expected, is_unsure);
    }

    /// Checks that the limit was never exceeded.
    pub(crate) fn check_levels(&self) {
        let device = self.sim.counters();
        let taken_bytes = device.reserved_bytes + device.retiring_bytes;
        let limit_bytes = self.gpu.memory().budget().device_bytes.unwrap_or(u64::MAX);
        if self.rules.alone && self.shortfall_bytes == 0 {
            assert!(taken_bytes <= limit_bytes, "{}", self.gpu.memory().stats());
        }
        // Draining to a lower limit takes a few additional bytes.
        assert!(
            device.peak_bytes <= self.most_bytes + LITTLE_BYTES,
            "{device:?}"
        );
    }

    /// Reads all tensors, and drops those without a value.
    pub(crate) fn check_all(&mut self) {
        while !self.reads.is_empty() {
            self.await_one();
        }
        for held in std::mem::take(&mut self.held) {
            let read = held.tensor.to_vec();
            if self.check(read, &held, &held.values()) {
                // Reading no elements says nothing about the storage.
                let is_unsure = held.data.is_unsure.get() && held.len() == 0;
                held.data.is_unsure.set(is_unsure || self.disk_lies);
                self.held.push(held);
            } else if !held.data.is_unsure.get() {
                self.held.push(held);
            }
        }
        let cached = self.cache.lock().expect("callbacks let go of it").clone();
        for (tensor, expected) in cached {
            match tensor.to_vec::<u32>() {
                Ok(got) => assert!(got == expected, "wrong bytes in {tensor}"),
                Err(error) => self.judge("a cached read", &error),
            }
        }
    }

    /// Checks all tensors and drops them.
    pub(crate) fn drop_all(&mut self) {
        self.check_all();
        self.held.clear();
        self.cache.lock().expect("callbacks let go of it").clear();
        self.guards.clear();
    }

    /// Checks all tensors and that nothing stays alive.
    pub(crate) fn end(mut self) {
        self.drop_all();
        assert_eq!(self.gpu.finish().map_err(|error| error.to_string()), Ok(()));
        let memory = self.gpu.memory().stats();
        assert_eq!(
            (memory.live_bytes.now, memory.live_storages.now),
            (0, 0),
            "{memory}"
        );
        assert_eq!(
            (memory.queued, memory.retiring_bytes.now),
            (0, 0),
            "{memory}"
        );
        // A file that could not be truncated is truncated or reused the next time.
        assert_eq!(
            (memory.host_bytes.now, memory.spilled_bytes.now),
            (0, 0),
            "{memory}"
        );
        self.check_levels();
        drop(self.gpu);
        let left = self.sim.counters();
        assert_eq!((left.buffers_live, left.submissions_pending), (0, 0));
        assert_eq!((left.pipelines_live, left.bind_groups_live), (0, 0));
        assert_eq!(self.sim.complaints(), [""; 0]);
    }
}
