//! The oracle: a sorted map of live ranges for every slab, and random operations on both sides.

use lapidary::alloc::{
    AllocError, AllocStats, Block, BlockId, Carver, PoolConfig, Pools, SlabId, SlabInfo,
};
use std::collections::{BTreeMap, HashMap};

/// The distribution of request sizes.
pub(crate) struct Law {
    pub(crate) name: &'static str,
    pub(crate) draw: fn(&mut fastrand::Rng) -> u64,
}

pub(crate) const LAWS: [Law; 4] = [
    Law {
        name: "small and odd",
        draw: |random| random.u64(0..=5000),
    },
    Law {
        name: "log-uniform to 8 MiB",
        draw: |random| {
            let power = random.u32(0..=23);
            random.u64(0..=1 << power)
        },
    },
    Law {
        name: "few sizes",
        draw: |random| [100, 4096, 300_000, 5 << 20][random.usize(0..4)],
    },
    Law {
        name: "mostly small, some huge",
        draw: |random| {
            if random.u8(..) == 0 {
                random.u64(0..=64 << 20)
            } else {
                random.u64(1..=20_000)
            }
        },
    },
];

/// The allocator under test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Carver,
    Pools,
}

enum Subject {
    Carver(Carver),
    Pools(Pools),
}

impl Subject {
    fn new(kind: Kind, unit_bytes: u64) -> Subject {
        match kind {
            Kind::Carver => Subject::Carver(Carver::new(unit_bytes).unwrap()),
            Kind::Pools => {
                Subject::Pools(Pools::new(PoolConfig::new(unit_bytes, 1 << 30)).unwrap())
            }
        }
    }

    fn allocate(&mut self, size_bytes: u64) -> Result<BlockId, AllocError> {
        match self {
            Subject::Carver(carver) => carver.allocate(size_bytes).or_else(|_| {
                carver.add_slab(size_bytes.max(1 << 20) + 4096)?;
                carver.allocate(size_bytes)
            }),
            Subject::Pools(pools) => allocate_with_growth(pools, size_bytes),
        }
    }

    fn free(&mut self, block: BlockId) -> Result<(), AllocError> {
        match self {
            Subject::Carver(carver) => carver.free(block),
            Subject::Pools(pools) => pools.free(block),
        }
    }

    fn block(&self, block: BlockId) -> Block {
        match self {
            Subject::Carver(carver) => carver.block(block),
            Subject::Pools(pools) => pools.block(block),
        }
        .unwrap()
    }

    fn trim(&mut self) {
        match self {
            Subject::Carver(carver) => {
                while let Some(slab) = { carver.empty_slabs().next() } {
                    carver.remove_slab(slab).unwrap();
                }
            }
            Subject::Pools(pools) => {
                while let Some(slab) = { pools.empty_slabs().next() } {
                    pools.remove_slab(slab).unwrap();
                }
            }
        }
    }

    fn check(&self, live: &Live) {
        match self {
            Subject::Carver(carver) => {
                carver.check_invariants().unwrap();
                live.check(&carver.stats(), carver.slabs().collect());
            }
            Subject::Pools(pools) => live.check_pools(pools),
        }
    }
}

/// Calls the allocator like a memory manager with unlimited memory.
pub(crate) fn allocate_with_growth(
    pools: &mut Pools,
    size_bytes: u64,
) -> Result<BlockId, AllocError> {
    match pools.allocate(size_bytes) {
        Err(AllocError::NeedsSlab { .. }) => {}
        done => return done,
    }
    let growth = pools.growth(size_bytes)?;
    while let Some(slab) = pools.next_release(&growth) {
        pools.remove_slab(slab)?;
    }
    pools.add_slab(&growth)?;
    pools.allocate(size_bytes)
}

/// The expected live blocks.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) blocks: Vec<BlockId>,
    /// The live ranges of every slab, from start to end.
    ranges: HashMap<SlabId, BTreeMap<u64, u64>>,
    requested_bytes: u64,
}

impl Live {
    pub(crate) fn add(&mut self, id: BlockId, block: &Block, unit_bytes: u64) {
        let (start, end) = (block.offset_bytes, block.offset_bytes + block.size_bytes);
        assert!(
            start % unit_bytes == 0 && end % unit_bytes == 0,
            "{block:?} is not aligned"
        );
        let granted = block.requested_bytes.max(1).next_multiple_of(unit_bytes);
        assert_eq!(block.size_bytes, granted, "{block:?} is not exact");
        let ranges = self.ranges.entry(block.slab).or_default();
        if let Some((_, &before)) = ranges.range(..end).next_back() {
            assert!(
                before <= start,
                "{block:?} overlaps the one that ends at {before}"
            );
        }
        ranges.insert(start, end);
        self.blocks.push(id);
        self.requested_bytes += block.requested_bytes;
    }

    pub(crate) fn remove(&mut self, index: usize, block: &Block) -> BlockId {
        let end = self
            .ranges
            .get_mut(&block.slab)
            .unwrap()
            .remove(&block.offset_bytes);
        assert_eq!(
            end,
            Some(block.offset_bytes + block.size_bytes),
            "{block:?} has moved"
        );
        self.requested_bytes -= block.requested_bytes;
        self.blocks.swap_remove(index)
    }

    pub(crate) fn check_pools(&self, pools: &Pools) {
        pools.check_invariants().unwrap();
        self.check(&pools.stats(), pools.slabs().collect());
    }

    fn check(&self, stats: &AllocStats, slabs: Vec<SlabInfo>) {
        assert_eq!(stats.requested_bytes, self.requested_bytes);
        assert_eq!(stats.live_blocks, self.blocks.len() as u64);
        assert_eq!(stats.slabs, slabs.len() as u64);
        assert_eq!(
            stats.reserved_bytes,
            slabs.iter().map(|slab| slab.size_bytes).sum::<u64>()
        );
        for slab in slabs {
            let ranges = self.ranges.get(&slab.slab).into_iter().flatten();
            let live_bytes = ranges.map(|(start, end)| end - start).sum::<u64>();
            assert_eq!(slab.live_bytes, live_bytes, "{slab:?}");
        }
    }
}

pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Prints how to repeat a run if it panics.
pub(crate) struct Repeat<'a> {
    pub(crate) seed: u64,
    pub(crate) what: &'a str,
}

impl Drop for Repeat<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: repeat with LAPIDARY_SEED={}", self.what, self.seed);
        }
    }
}

/// Random operations on an allocator and on the model, which must agree after each.
pub(crate) fn run(law: &Law, unit_bytes: u64, kind: Kind) {
    let seed = from_environment("LAPIDARY_SEED", 1);
    let ops = from_environment("LAPIDARY_OPS", 150_000);
    let _repeat = Repeat {
        seed,
        what: law.name,
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut subject = Subject::new(kind, unit_bytes);
    let mut live = Live::default();
    // The target for live blocks changes slowly, so the heap fills and drains.
    let mut target = 100;
    for op in 0..ops {
        if op % 5000 == 0 {
            target = random.usize(0..=1000);
        }
        if random.usize(0..target + live.blocks.len() + 1) >= live.blocks.len() {
            let requested_bytes = (law.draw)(&mut random);
            let id = subject.allocate(requested_bytes).unwrap();
            let block = subject.block(id);
            assert_eq!(block.requested_bytes, requested_bytes);
            live.add(id, &block, unit_bytes);
        } else {
            let index = random.usize(0..live.blocks.len());
            let block = subject.block(live.blocks[index]);
            let id = live.remove(index, &block);
            subject.free(id).unwrap();
            assert_eq!(subject.free(id), Err(AllocError::StaleBlock(id)));
        }
        if op % 1000 == 0 {
            subject.check(&live);
        }
        if op % 20_000 == 0 {
            subject.trim();
        }
    }
    while let Some(&last) = live.blocks.last() {
        let block = subject.block(last);
        let id = live.remove(live.blocks.len() - 1, &block);
        subject.free(id).unwrap();
    }
    subject.trim();
    subject.check(&live);
}

/// The slab numbers and offsets of a fixed run of pools.
pub(crate) fn places(law: &Law, unit_bytes: u64, seed: u64) -> Vec<(usize, u64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut subject = Subject::new(Kind::Pools, unit_bytes);
    let mut blocks = Vec::new();
    let mut places = Vec::new();
    for _ in 0..20_000 {
        if random.u8(..) < 140 || blocks.is_empty() {
            let id = subject.allocate((law.draw)(&mut random)).unwrap();
            let block = subject.block(id);
            places.push((block.slab.index(), block.offset_bytes));
            blocks.push(id);
        } else {
            let id = blocks.swap_remove(random.usize(0..blocks.len()));
            subject.free(id).unwrap();
        }
    }
    places
}
