//! Bytes as calls of the allocator in any order. Live blocks never overlap, plans are executed
//! wholly or in part, and all invariants hold after each call.

use std::collections::BTreeMap;

use lapidary_alloc::{
    AllocError, Block, BlockId, Carver, Planner, PoolConfig, Pools, SlabId, Spot, Step,
};

const UNIT_BYTES: u64 = 256;

/// More calls find no more bugs, and each checks all invariants.
const MOST_CALLS: usize = 150;

/// Runs the calls on pools, then on a plain carver. Returns whether a block was allocated.
pub fn body(bytes: &[u8]) -> bool {
    on_carver(&mut Calls(bytes));
    on_pools(&mut Calls(bytes))
}

/// The bytes that are not used yet.
struct Calls<'a>(&'a [u8]);

impl Calls<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A size. Most are below 16 MiB, with all magnitudes equally likely; a few are arbitrary.
    fn size(&mut self) -> Option<u64> {
        let (power, low) = (self.byte()?, self.byte()?);
        let base = match power {
            255 => u64::MAX,
            _ => 1 << (power % 25),
        };
        Some(base.saturating_add(u64::from(low) * (base >> 8)))
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let index = usize::from(self.byte()?);
        (!of.is_empty()).then(|| of[index % of.len()])
    }
}

/// The expected live ranges: slab and start, with the end.
#[derive(Default)]
struct Live {
    blocks: Vec<BlockId>,
    ranges: BTreeMap<(SlabId, u64), u64>,
}

impl Live {
    fn add(&mut self, id: BlockId, block: &Block) {
        let (start, end) = (block.offset_bytes, block.offset_bytes + block.size_bytes);
        assert!(start % UNIT_BYTES == 0 && block.size_bytes >= block.requested_bytes);
        let before = self.ranges.range((block.slab, 0)..(block.slab, end));
        if let Some((_, &before)) = before.last() {
            assert!(before <= start, "{block:?} overlaps what ends at {before}");
        }
        self.ranges.insert((block.slab, start), end);
        self.blocks.push(id);
    }

    fn remove(&mut self, id: BlockId, block: &Block) {
        let end = self.ranges.remove(&(block.slab, block.offset_bytes));
        assert_eq!(
            end,
            Some(block.offset_bytes + block.size_bytes),
            "{block:?}"
        );
        self.blocks.retain(|live| *live != id);
    }
}

fn on_carver(calls: &mut Calls<'_>) {
    let mut carver = Carver::new(UNIT_BYTES).expect("the granule is one");
    let (mut live, mut slabs, mut freed) = (Live::default(), Vec::new(), Vec::new());
    for _ in 0..MOST_CALLS {
        if carver_call(&mut carver, calls, &mut live, &mut slabs, &mut freed).is_none() {
            break;
        }
        carver
            .check_invariants()
            .expect("they hold after each call");
    }
}

fn carver_call(
    carver: &mut Carver,
    calls: &mut Calls<'_>,
    live: &mut Live,
    slabs: &mut Vec<SlabId>,
    freed: &mut Vec<BlockId>,
) -> Option<()> {
    match calls.byte()? % 8 {
        0..=3 => {
            if let Ok(id) = carver.allocate(calls.size()?) {
                live.add(id, &carver.block(id).expect("it was just allocated"));
            }
        }
        4 => slabs.extend(carver.add_slab(calls.size()?)),
        5 => {
            if let Some(slab) = calls.pick(slabs) {
                let is_empty = live.ranges.range((slab, 0)..).next();
                let is_empty = is_empty.is_none_or(|((other, _), _)| *other != slab);
                assert_eq!(carver.remove_slab(slab).is_ok(), is_empty);
                slabs.retain(|other| !is_empty || *other != slab);
            }
        }
        6 => {
            if let Some(stale) = calls.pick(freed) {
                assert_eq!(carver.free(stale), Err(AllocError::StaleBlock(stale)));
            }
        }
        _ => {
            if let Some(id) = calls.pick(&live.blocks) {
                live.remove(id, &carver.block(id).expect("it is live"));
                carver.free(id).expect("it is live");
                freed.push(id);
            }
        }
    }
    Some(())
}

/// Pools with small slabs, so that few calls reach every class.
fn pools() -> Pools {
    let mut config = PoolConfig::new(UNIT_BYTES, 64 << 20);
    config.small_request_bytes = 1000;
    config.small_slab_bytes = 16 << 10;
    config.middle_slab_bytes = 128 << 10;
    config.own_request_bytes = 64 << 10;
    config.own_step_bytes = 4 << 10;
    config.alone_request_bytes = 8 << 20;
    Pools::new(config).expect("the sizes go together")
}

struct Subject {
    pools: Pools,
    planner: Planner,
    /// The slab that the last step of a plan created.
    created: Option<SlabId>,
    live: Live,
    freed: Vec<BlockId>,
}

fn on_pools(calls: &mut Calls<'_>) -> bool {
    let mut subject = Subject {
        pools: pools(),
        planner: Planner::default(),
        created: None,
        live: Live::default(),
        freed: Vec::new(),
    };
    let mut has_allocated = false;
    for _ in 0..MOST_CALLS {
        if subject.call(calls).is_none() {
            break;
        }
        has_allocated |= !subject.live.blocks.is_empty();
        subject.check();
    }
    has_allocated
}

impl Subject {
    fn call(&mut self, calls: &mut Calls<'_>) -> Option<()> {
        match calls.byte()? % 12 {
            0..=3 => self.allocate(calls.size()?),
            4 => {
                let size_bytes = calls.size()?;
                let plan = self
                    .pools
                    .plan(&mut self.planner, size_bytes, None, &is_movable);
                let steps = plan.map_or(Vec::new(), <[Step]>::to_vec);
                self.carry_out(&steps, calls.byte()?);
                if let Ok(id) = self.pools.allocate_anywhere(size_bytes) {
                    self.add(id);
                }
            }
            5 => {
                let empty: Vec<_> = self.pools.empty_slabs().collect();
                if let Some(slab) = calls.pick(&empty) {
                    self.pools.remove_slab(slab).expect("it is empty");
                }
            }
            6 => {
                if let Some(stale) = calls.pick(&self.freed) {
                    assert_eq!(self.pools.free(stale), Err(AllocError::StaleBlock(stale)));
                }
            }
            7 => self.pools.reset_mark(),
            _ => {
                if let Some(id) = calls.pick(&self.live.blocks) {
                    self.remove(id);
                    self.pools.free(id).expect("it is live");
                    self.freed.push(id);
                }
            }
        }
        Some(())
    }

    /// Allocates like a memory manager with unlimited memory.
    fn allocate(&mut self, size_bytes: u64) {
        let allocated = match self.pools.allocate(size_bytes) {
            Err(AllocError::NeedsSlab { .. }) => self.allocate_in_new(size_bytes),
            done => done,
        };
        match allocated {
            Ok(id) => self.add(id),
            Err(AllocError::NeverFits { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    fn allocate_in_new(&mut self, size_bytes: u64) -> Result<BlockId, AllocError> {
        let growth = self.pools.growth(size_bytes)?;
        while let Some(slab) = self.pools.next_release(&growth) {
            self.pools.remove_slab(slab)?;
        }
        self.pools.add_slab(&growth)?;
        self.pools.allocate(size_bytes)
    }

    /// Executes at most `most` steps of a plan, as if the others were refused.
    fn carry_out(&mut self, steps: &[Step], most: u8) {
        for step in steps.iter().take(usize::from(most)) {
            match *step {
                Step::Release(slab) => self.pools.remove_slab(slab),
                Step::Assign { slab, class } => self.pools.assign(slab, class),
                Step::Create(growth) => {
                    let created = self.pools.add_slab(&growth);
                    created.map(|slab| self.created = Some(slab))
                }
                Step::Move { block, to } => self.relocate(block, &to),
                Step::MoveToNew {
                    block,
                    offset_bytes,
                } => {
                    let slab = self
                        .created
                        .expect("it is created before blocks move there");
                    self.relocate(block, &Spot::new(slab, offset_bytes))
                }
            }
            .expect("a plan can be carried out");
            self.check();
        }
    }

    fn relocate(&mut self, id: BlockId, to: &Spot) -> Result<(), AllocError> {
        assert!(is_movable(id), "{id:?} is pinned");
        self.remove(id);
        let relocated = self.pools.relocate(id, to).map(drop);
        self.add(id);
        relocated
    }

    fn add(&mut self, id: BlockId) {
        let block = self.pools.block(id).expect("it is live");
        self.live.add(id, &block);
    }

    fn remove(&mut self, id: BlockId) {
        let block = self.pools.block(id).expect("it is live");
        self.live.remove(id, &block);
    }

    fn check(&self) {
        self.pools
            .check_invariants()
            .expect("they hold after each call");
        let stats = self.pools.stats();
        assert_eq!(stats.live_blocks, self.live.blocks.len() as u64);
        let ranges = self.live.ranges.iter();
        let live_bytes: u64 = ranges.map(|((_, start), end)| end - start).sum();
        let of_slabs: u64 = self.pools.slabs().map(|slab| slab.live_bytes).sum();
        assert_eq!(of_slabs, live_bytes);
    }
}

/// One block in eight is pinned.
fn is_movable(block: BlockId) -> bool {
    block.index() & 7 != 0
}
