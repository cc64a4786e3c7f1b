//! The device on which works are stopped, and the values that they must keep.

use std::pin::Pin;
use std::sync::OnceLock;

use lapidary::shares::{Share, ShareOptions};
use lapidary::sim::{SimHandle, SimOptions};
use lapidary::stores::StoreTier;
use lapidary::{Budget, Gpu, Options, Residency, Result, Tensor};

use crate::engine::ended;
use crate::stores::shaky::Shaky;

pub(super) const KIB: u64 = 1 << 10;

/// The room of slabs. A pass moves 1/16 of it in one part.
pub(super) const SLABS: u64 = 1024 * KIB;

/// A lower room, in which each work still fits.
pub(super) const LOWER: u64 = 896 * KIB;

/// The part of the device's limit that is for staging: less than a large tensor.
const STAGING: u64 = 256 * KIB;

/// How bytes leave the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Through read-back buffers.
    Staged,
    /// The host maps slabs.
    Mapped,
    /// To a heap in the host's memory, as copies in the batch.
    Heap,
}

/// The settings in which works differ.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// Whether the host's memory takes no evicted tensors.
    pub(super) has_no_host: bool,
    /// Whether they go to a store.
    pub(super) has_store: bool,
    pub(super) never_move: bool,
    /// The most bytes for which there is room beside what the work pins.
    pub(super) most_urgent_bytes: u64,
}

/// A device, and two shares of it. Work of the frame goes before work of the job.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) gpu: Gpu,
    pub(super) sim: SimHandle,
    pub(super) frame: Share,
    pub(super) job: Share,
}

pub(super) type Rest = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A work that can be stopped.
pub(super) struct Stopped {
    pub(super) future: Rest,
    /// What was there before the work.
    pub(super) held: Vec<Value>,
    /// What the work makes.
    pub(super) made: Vec<Value>,
}

/// A tensor, and what it must hold.
pub(super) struct Value {
    pub(super) tensor: Tensor,
    pub(super) words: Vec<u32>,
    /// What it had before a write that may end early.
    pub(super) before: Option<Vec<u32>>,
}

/// So many bytes of numbers from `start` on. Made once, as thousands of stops want them.
pub(super) fn numbers(start: usize, bytes: u64) -> Vec<u32> {
    static ALL: OnceLock<Vec<u32>> = OnceLock::new();
    let all = ALL.get_or_init(|| (0..SLABS as u32 / 4).collect());
    all[start..start + bytes as usize / 4].to_vec()
}

impl World {
    pub(super) fn new(way: Way, setup: Setup) -> World {
        let takes_none = setup.has_no_host || setup.has_store;
        let budget = Budget {
            staging_bytes: Some(STAGING),
            host_bytes: takes_none.then_some(0),
            disk_bytes: setup.has_store.then_some(0),
            ..Budget::device(SLABS + STAGING)
        };
        let options = Options {
            budget: Some(budget),
            never_move: setup.never_move,
            stores: match setup.has_store {
                true => vec![StoreTier::new("store", Shaky::default(), 4 * SLABS)],
                false => Vec::new(),
            },
            host_heap: Some(way == Way::Heap),
            ..Options::from_env().unwrap()
        };
        let device = SimOptions {
            pauses: 1,
            maps_slabs: way == Way::Mapped,
            max_buffer_bytes: SLABS,
            dirty: true,
            checks_shaders: false,
            compact_always: Some(false),
            ..SimOptions::default()
        };
        let (gpu, sim) = Gpu::simulated_with(device, options).unwrap();
        let share = |name, priority| {
            let share = ShareOptions::guaranteed(0).with_priority(priority);
            gpu.share(name, share).unwrap()
        };
        World {
            setup,
            frame: share("frame", 1),
            job: share("job", -1),
            gpu,
            sim,
        }
    }

    /// The same budget with another room for slabs.
    pub(super) fn budget_of(before: Budget, slabs_bytes: u64) -> Budget {
        Budget {
            device_bytes: Some(slabs_bytes + STAGING),
            ..before
        }
    }

    /// Checks that the device works, and that nothing is left behind.
    pub(super) fn end(self) {
        let World {
            gpu,
            sim,
            frame,
            job,
            ..
        } = self;
        let small = job.tensor(&[1_u32, 2], &[2]).unwrap();
        assert_eq!((&small + &small).unwrap().to_vec::<u32>().unwrap(), [2, 4]);
        drop((small, frame, job));
        gpu.finish().unwrap();
        gpu.memory().trim(0).unwrap();
        let stats = gpu.memory().stats();
        let left = [
            stats.reserved_bytes,
            stats.upload_bytes,
            stats.readback_bytes,
            stats.device_bytes,
            stats.host_bytes,
            stats.host_slab_bytes,
            stats.disk_bytes,
        ];
        assert_eq!(left.map(|level| level.now), [0; 7], "{stats}");
        ended(gpu, &sim);
    }
}

impl Value {
    pub(super) fn new(tensor: Tensor, words: Vec<u32>) -> Value {
        Value {
            tensor,
            words,
            before: None,
        }
    }

    /// A tensor of numbers from `start` on, which is on the device.
    pub(super) fn settled(gpu: &Gpu, start: usize, bytes: u64) -> Value {
        let words = numbers(start, bytes);
        let tensor = gpu.tensor(&words, &[words.len()]).unwrap();
        tensor.force().unwrap();
        Value::new(tensor, words)
    }

    /// Whether its bytes outlive the device.
    pub(super) fn is_safe(&self, way: Way) -> bool {
        match self.tensor.residency() {
            Residency::Host => way != Way::Heap,
            Residency::Store | Residency::Disk => true,
            _ => false,
        }
    }
}
