//! Allocations and drops: blocks of real buffers by only the allocator, and tensors by the whole
//! engine on the simulated device.

use lapidary::alloc::{BlockId, PoolConfig, Pools};
use lapidary::sim::{SimMode, SimOptions};
use lapidary::{Buffer, Gpu, wgpu};
use lapidary_harness::{Event, PLACES, Result, Timed, events};

const GRANULE_BYTES: u64 = 256;

/// The allocator `lapidary::alloc` with a buffer of the device behind each slab.
pub(crate) struct Blocks {
    device: wgpu::Device,
    max_slab_bytes: u64,
    events: Vec<Event>,
    pools: Option<Pools>,
}

impl Blocks {
    pub(crate) fn new(device: &wgpu::Device, max_slab_bytes: u64, count: usize) -> Blocks {
        Blocks {
            device: device.clone(),
            max_slab_bytes,
            events: events(count),
            pools: None,
        }
    }

    fn buffer(&self, bytes: u64) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }
}

impl Timed for Blocks {
    fn run(&mut self) -> Result {
        let mut pools = Pools::new(PoolConfig::new(GRANULE_BYTES, self.max_slab_bytes))?;
        let mut buffers = Vec::new();
        let mut places: [Option<BlockId>; PLACES] = [None; PLACES];
        for event in &self.events {
            match *event {
                Event::Allocate { place, bytes } => {
                    let block = match pools.allocate(bytes) {
                        Ok(block) => block,
                        Err(_) => {
                            let growth = pools.growth(bytes)?;
                            let slab = pools.add_slab(&growth)?;
                            buffers.push(self.buffer(pools.slab(slab)?.size_bytes));
                            pools.allocate(bytes)?
                        }
                    };
                    places[place] = Some(block);
                }
                Event::Drop { place } => {
                    let block = places[place].take().ok_or("a drop of nothing")?;
                    pools.free(block)?;
                }
            }
        }
        self.pools = Some(pools);
        Ok(())
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        let pools = self.pools.as_ref().ok_or("nothing was run")?;
        pools.check_invariants()?;
        none_live(pools.stats().live_blocks)
    }
}

/// Everything was dropped, so nothing may be live.
fn none_live(count: u64) -> Result<Vec<f32>> {
    match count {
        0 => Ok(Vec::new()),
        _ => Err(format!("wrong: {count} are live after all were dropped").into()),
    }
}

/// Tensors on a device that only counts bytes: created without a value, placed, dropped.
pub(crate) struct Tensors {
    gpu: Gpu,
    events: Vec<Event>,
}

impl Tensors {
    pub(crate) fn new(count: usize) -> Result<Tensors> {
        let (gpu, _) = Gpu::simulated(SimOptions {
            mode: SimMode::SizesOnly,
            ..SimOptions::default()
        })?;
        Ok(Tensors {
            gpu,
            events: events(count),
        })
    }
}

impl Timed for Tensors {
    fn run(&mut self) -> Result {
        let mut places: [Option<Buffer>; PLACES] = [const { None }; PLACES];
        for event in &self.events {
            match *event {
                Event::Allocate { place, bytes } => {
                    places[place] = self.gpu.dummy_operator(&[], &[], &[bytes])?.pop();
                }
                Event::Drop { place } => places[place] = None,
            }
        }
        Ok(self.gpu.finish()?)
    }

    fn result(&mut self) -> Result<Vec<f32>> {
        none_live(self.gpu.memory().stats().live_storages.now)
    }
}
