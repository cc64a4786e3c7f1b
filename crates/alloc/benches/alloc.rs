//! The cost of bookkeeping alone: one free and one allocation, with many blocks live, against the
//! crate `offset-allocator` in the same run. Each figure is the best of 20 rounds.
//!
//! ```text
//! cargo bench --package lapidary-alloc
//! ```

use lapidary_alloc::{BlockId, Carver, PoolConfig, Pools};
use std::time::Instant;

const UNIT_BYTES: u64 = 256;
const ROUNDS: usize = 20;

/// How request sizes are drawn, in granules.
struct Law {
    name: &'static str,
    draw: fn(&mut fastrand::Rng) -> u32,
}

const LAWS: [Law; 4] = [
    Law {
        name: "uniform 1..=64",
        draw: |random| random.u32(1..=64),
    },
    Law {
        name: "log-uniform 1..4096",
        draw: |random| (random.f32() * 12.0).exp2() as u32,
    },
    Law {
        name: "powers of two",
        draw: |random| 1 << random.u32(0..=8),
    },
    Law {
        name: "one size",
        draw: |_| 16,
    },
];

/// One free of a random block and one allocation of a random size.
struct Step {
    victim: usize,
    granules: u32,
}

/// What every contestant can do. `exchange` replaces the block at `victim`.
trait Contestant {
    fn fill(&mut self, granules: u32);
    fn exchange(&mut self, step: &Step);
}

struct Ours {
    carver: Carver,
    blocks: Vec<BlockId>,
}

impl Contestant for Ours {
    fn fill(&mut self, granules: u32) {
        let block = self.carver.allocate(u64::from(granules) * UNIT_BYTES);
        self.blocks
            .push(block.expect("the slab is twice as large as all blocks"));
    }

    #[inline]
    fn exchange(&mut self, step: &Step) {
        self.carver
            .free(self.blocks[step.victim])
            .expect("the block is live");
        let block = self.carver.allocate(u64::from(step.granules) * UNIT_BYTES);
        self.blocks[step.victim] = block.expect("the slab is twice as large as all blocks");
    }
}

struct Policy {
    pools: Pools,
    blocks: Vec<BlockId>,
}

impl Policy {
    fn allocate(&mut self, bytes: u64) -> BlockId {
        self.pools.allocate(bytes).unwrap_or_else(|_| {
            let growth = self.pools.growth(bytes).expect("a small request");
            self.pools.add_slab(&growth).expect("the tables have room");
            self.pools.allocate(bytes).expect("a slab was added")
        })
    }
}

impl Contestant for Policy {
    fn fill(&mut self, granules: u32) {
        let block = self.allocate(u64::from(granules) * UNIT_BYTES);
        self.blocks.push(block);
    }

    #[inline]
    fn exchange(&mut self, step: &Step) {
        self.pools
            .free(self.blocks[step.victim])
            .expect("the block is live");
        self.blocks[step.victim] = self.allocate(u64::from(step.granules) * UNIT_BYTES);
    }
}

struct Theirs {
    allocator: offset_allocator::Allocator,
    blocks: Vec<offset_allocator::Allocation>,
}

impl Contestant for Theirs {
    fn fill(&mut self, granules: u32) {
        let block = self.allocator.allocate(granules);
        self.blocks
            .push(block.expect("the heap is twice as large as all blocks"));
    }

    #[inline]
    fn exchange(&mut self, step: &Step) {
        self.allocator.free(self.blocks[step.victim]);
        let block = self.allocator.allocate(step.granules);
        self.blocks[step.victim] = block.expect("the heap is twice as large as all blocks");
    }
}

/// The nanoseconds of one round, a step.
fn time(contestant: &mut impl Contestant, steps: &[Step]) -> f64 {
    let start = Instant::now();
    for step in steps {
        contestant.exchange(step);
    }
    start.elapsed().as_nanos() as f64 / steps.len() as f64
}

/// The best of all rounds, a step of one free and one allocation: ours, our policy, theirs.
fn compare(law: &Law, live: usize, rounds: usize) -> [f64; 3] {
    let mut random = fastrand::Rng::with_seed(live as u64);
    let sizes: Vec<u32> = (0..live).map(|_| (law.draw)(&mut random)).collect();
    let heap_granules = 2 * sizes.iter().sum::<u32>() + (1 << 16);
    let mut carver = Carver::new(UNIT_BYTES).expect("a power of two");
    carver
        .add_slab(u64::from(heap_granules) * UNIT_BYTES)
        .expect("a good size");
    let mut ours = Ours {
        carver,
        blocks: Vec::new(),
    };
    let pools = Pools::new(PoolConfig::new(UNIT_BYTES, 1 << 40)).expect("a good configuration");
    let mut policy = Policy {
        pools,
        blocks: Vec::new(),
    };
    let nodes = u32::try_from(4 * live + 1024).expect("a million blocks at most");
    let allocator = offset_allocator::Allocator::with_max_allocs(heap_granules, nodes);
    let mut theirs = Theirs {
        allocator,
        blocks: Vec::new(),
    };
    for granules in sizes {
        ours.fill(granules);
        policy.fill(granules);
        theirs.fill(granules);
    }
    let mut best = [f64::INFINITY; 3];
    for round in 0..rounds + 2 {
        let steps: Vec<Step> = (0..live.clamp(10_000, 200_000))
            .map(|_| Step {
                victim: random.usize(0..live),
                granules: (law.draw)(&mut random),
            })
            .collect();
        let taken = [
            time(&mut ours, &steps),
            time(&mut policy, &steps),
            time(&mut theirs, &steps),
        ];
        // The first rounds age the heap from its orderly start.
        if round >= 2 {
            best = std::array::from_fn(|i| best[i].min(taken[i]));
        }
    }
    best
}

fn main() {
    // `cargo test --benches` only asks whether it runs.
    let quick = std::env::args().any(|arg| arg == "--test");
    let (rounds, powers) = if quick { (1, 2..=3) } else { (ROUNDS, 2..=6) };
    println!("one free and one allocation, ns, best of {rounds} rounds");
    println!(
        "{:<20} {:>9} {:>8} {:>8} {:>17} {:>7}",
        "sizes in granules", "live", "Carver", "Pools", "offset-allocator", "ratio"
    );
    for law in &LAWS {
        for power in powers.clone() {
            let live = 10_usize.pow(power);
            let [ours, policy, theirs] = compare(law, live, rounds);
            let ratio = ours / theirs;
            println!(
                "{:<20} {live:>9} {ours:>8.1} {policy:>8.1} {theirs:>17.1} {ratio:>7.2}",
                law.name
            );
        }
    }
}
