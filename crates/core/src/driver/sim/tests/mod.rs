//! The simulated device keeps its guarantees: it checks, runs late, and fails on command.

mod clock;
mod fails;
mod late;
mod refuses;
mod reopens;

use std::sync::Arc;

use super::*;
use crate::driver::{
    At, BindGroupId, Binding, BindingAccess, BufferId, BufferKind, Driver, DriverError,
    DriverResult, MapMode, Op, OsBudget, PipelineDesc, PipelineId, Signal,
};

/// A device with a small kernel: `y[i] += x[i] + p`, in words.
pub(super) struct Bench {
    pub(super) driver: SimDriver,
    pub(super) sim: SimHandle,
}

const ADD: &str = "struct Params { more: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&y)) { y[id.x] += x[id.x] + p.more; }
}";

pub(super) fn add() -> PipelineDesc {
    PipelineDesc {
        label: "add".to_string(),
        wgsl: ADD.to_string(),
        entry: "main".to_string(),
        bindings: vec![BindingAccess::Read, BindingAccess::ReadWrite],
        params_bytes: 4,
        zeroes_workgroup: true,
        bounds_loops: true,
        written_whole: 0,
        reference: Some(Arc::new(|seen, params| {
            let more = u32::from_le_bytes(params.try_into().unwrap());
            let x = seen[0].clone();
            for (y, x) in seen[1].chunks_exact_mut(4).zip(x.chunks_exact(4)) {
                let sum = word(y).wrapping_add(word(x)).wrapping_add(more);
                y.copy_from_slice(&sum.to_le_bytes());
            }
        })),
    }
}

pub(super) fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

pub(super) fn binding(buffer: BufferId, offset_bytes: u64, size_bytes: u64) -> Binding {
    Binding {
        buffer,
        offset_bytes,
        size_bytes,
    }
}

pub(super) fn copy(src: BufferId, from: u64, dst: BufferId, to: u64, size_bytes: u64) -> Op {
    Op::Copy(At(src, from), At(dst, to), size_bytes)
}

pub(super) fn clear(buffer: BufferId, offset_bytes: u64, size_bytes: u64) -> Op {
    Op::Clear(At(buffer, offset_bytes), size_bytes)
}

pub(super) fn dispatch(pipeline: PipelineId, bind_group: BindGroupId, params: (u32, u32)) -> Op {
    Op::Dispatch {
        pipeline,
        bind_group,
        params,
        groups: [1, 1, 1],
    }
}

impl Bench {
    pub(super) fn new(options: SimOptions) -> Self {
        let (driver, sim) = SimDriver::new(options).unwrap();
        Bench { driver, sim }
    }

    pub(super) fn try_buffer(&self, kind: BufferKind, size_bytes: u64) -> DriverResult<BufferId> {
        pollster::block_on(self.driver.create_buffer(kind, size_bytes, "b"))
    }

    pub(super) fn buffer(&self, kind: BufferKind, size_bytes: u64) -> BufferId {
        self.try_buffer(kind, size_bytes).unwrap()
    }

    pub(super) fn slab(&self, size_bytes: u64) -> BufferId {
        self.buffer(BufferKind::Slab, size_bytes)
    }

    pub(super) fn pipeline(&self, desc: PipelineDesc) -> DriverResult<PipelineId> {
        pollster::block_on(self.driver.create_pipeline(desc))
    }

    pub(super) fn wait(&self, signal: &Signal) -> DriverResult<()> {
        pollster::block_on(self.driver.wait(signal))
    }

    pub(super) fn map(&self, buffer: BufferId, mode: MapMode, size: u64) -> DriverResult<()> {
        self.wait(&self.driver.map(At(buffer, 0), mode, size)?)
    }

    /// Writes words to the start of a buffer.
    pub(super) fn upload(&self, dst: BufferId, words: &[u32]) -> DriverResult<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size = bytes.len() as u64;
        let staging = self.try_buffer(BufferKind::Upload, size)?;
        let sent = (|| {
            self.map(staging, MapMode::Write, size)?;
            let written = self.driver.write_mapped(At(staging, 0), &bytes);
            self.driver.unmap(staging);
            written?;
            self.driver.submit(&[copy(staging, 0, dst, 0, size)], &[])
        })();
        self.driver.destroy_buffer(staging);
        sent.map(drop)
    }

    /// The words at the start of a buffer.
    pub(super) fn download(&self, src: BufferId, words: usize) -> DriverResult<Vec<u32>> {
        let size = 4 * words as u64;
        let staging = self.try_buffer(BufferKind::Readback, size)?;
        let mut got = Vec::new();
        let read = (|| {
            let work = [copy(src, 0, staging, 0, size)];
            self.driver.submit(&work, &[])?;
            self.map(staging, MapMode::Read, size)?;
            let read = self.driver.read_mapped(At(staging, 0), size, &mut |bytes| {
                got = bytes.chunks_exact(4).map(word).collect();
            });
            self.driver.unmap(staging);
            read
        })();
        self.driver.destroy_buffer(staging);
        read.map(|()| got)
    }

    /// Calls a little of everything, and releases all objects, whatever fails.
    pub(super) fn session(&self) -> DriverResult<Vec<u32>> {
        let mut slabs = Vec::new();
        let result = self.session_on(&mut slabs);
        slabs
            .into_iter()
            .for_each(|b| self.driver.destroy_buffer(b));
        result
    }

    fn session_on(&self, slabs: &mut Vec<BufferId>) -> DriverResult<Vec<u32>> {
        for _ in 0..2 {
            slabs.push(self.try_buffer(BufferKind::Slab, 512)?);
        }
        let (a, b) = (slabs[0], slabs[1]);
        self.upload(a, &[1, 2, 3])?;
        let pipeline = self.pipeline(add())?;
        let ranges = [binding(a, 0, 12), binding(b, 256, 12)];
        let got = self.driver.create_bind_group(pipeline, &ranges);
        let got = got.and_then(|group| {
            let params = [0, 0, 0, 0, 100, 0, 0, 0];
            let work = [
                dispatch(pipeline, group, (4, 4)),
                dispatch(pipeline, group, (0, 4)),
                copy(b, 256, a, 0, 8),
            ];
            let done = self.driver.submit(&work, &params);
            self.driver.destroy_bind_group(group);
            done?;
            self.driver.poll()?;
            self.download(a, 3)
        });
        self.driver.destroy_pipeline(pipeline);
        got
    }
}

pub(super) const SESSION: [u32; 3] = [102, 104, 3];

#[test]
fn a_session_computes_what_it_should() {
    for lag_submissions in [0, 1, 2, u32::MAX] {
        for (jitter, maps_slabs, pauses) in [(false, false, 0), (true, true, 3)] {
            let bench = Bench::new(SimOptions {
                lag_submissions,
                jitter,
                maps_slabs,
                pauses,
                ..SimOptions::default()
            });
            // New slabs read as zeros, and the kernel adds to them.
            assert_eq!(bench.session(), Ok(SESSION.to_vec()));
            assert_eq!(bench.sim.complaints(), [""; 0]);
            bench.sim.run(usize::MAX);
            let counters = bench.sim.counters();
            assert_eq!((counters.dispatches, counters.copies), (2, 3));
            assert_eq!(counters.buffers_created, counters.buffers_destroyed);
            let live = (counters.pipelines_live, counters.bind_groups_live);
            assert_eq!((counters.reserved_bytes, live), (0, (0, 0)));
        }
    }
}

#[test]
fn dirty_slabs_are_not_zero_and_sizes_alone_read_as_zeros() {
    let dirty = SimOptions {
        dirty: true,
        ..SimOptions::default()
    };
    let bench = Bench::new(dirty);
    assert_eq!(bench.download(bench.slab(8), 2), Ok(vec![0xA5A5_A5A5; 2]));
    let sizes = SimOptions {
        mode: SimMode::SizesOnly,
        memory_bytes: 1 << 50,
        max_buffer_bytes: 1 << 45,
        ..SimOptions::default()
    };
    let bench = Bench::new(sizes);
    let slab = bench.slab(1 << 44);
    bench.upload(slab, &[1, 2]).unwrap();
    assert_eq!(bench.download(slab, 2), Ok(vec![0, 0]));
    assert_eq!(bench.session(), Ok(vec![0; 3]));
    assert_eq!(bench.sim.complaints(), [""; 0]);
}

#[test]
fn the_operating_system_grants_what_it_is_told_to() {
    let budget = |budget_bytes, used_bytes| {
        Some(OsBudget {
            budget_bytes,
            used_bytes,
            is_static: false,
        })
    };
    let bench = Bench::new(SimOptions::default());
    assert_eq!(bench.driver.os_budget(), None);
    bench.sim.set_os_budget(Some(1000), 0);
    assert_eq!(bench.driver.os_budget(), budget(1000, 0));
    let slab = bench.slab(256);
    assert_eq!(bench.driver.os_budget(), budget(1000, 256));
    bench.sim.set_os_budget(Some(100), 50);
    assert_eq!(bench.driver.os_budget(), budget(100, 306));
    bench.driver.destroy_buffer(slab);
    assert_eq!(bench.driver.os_budget(), budget(100, 50));
    bench.sim.set_os_budget(None, 0);
    assert_eq!(bench.driver.os_budget(), None);
    let os_budget_bytes = Some(7);
    let told = SimOptions {
        os_budget_bytes,
        ..SimOptions::default()
    };
    assert_eq!(Bench::new(told).driver.os_budget(), budget(7, 0));
    assert_eq!(bench.driver.driver_reserved_bytes(), None);
}

#[test]
fn same_calls_give_the_same_digest_and_other_calls_another() {
    let digest = |seed, words: &[u32], sessions| {
        let bench = Bench::new(SimOptions {
            seed,
            jitter: true,
            lag_submissions: 5,
            ..SimOptions::default()
        });
        bench.upload(bench.slab(512), words).unwrap();
        (0..sessions).for_each(|_| drop(bench.session()));
        (bench.sim.digest(), bench.sim.counters())
    };
    assert_eq!(digest(1, &[1, 2], 5), digest(1, &[1, 2], 5));
    assert_eq!(digest(1, &[1, 2], 5).0, digest(2, &[1, 2], 5).0);
    assert_ne!(digest(1, &[1, 2], 5).0, digest(1, &[1, 2, 3], 5).0);
}

#[test]
fn a_reference_that_panics_takes_the_device_with_it() {
    let bench = Bench::new(SimOptions::default());
    let mut desc = add();
    desc.reference = Some(Arc::new(|_, _| panic!("out of its depth")));
    let pipeline = bench.pipeline(desc).unwrap();
    let (x, y) = (bench.slab(4), bench.slab(4));
    let ranges = [binding(x, 0, 4), binding(y, 0, 4)];
    let group = bench.driver.create_bind_group(pipeline, &ranges).unwrap();
    let work = [dispatch(pipeline, group, (0, 4))];
    let first = bench.driver.submit(&work, &[0; 4]).unwrap();
    let second = bench.driver.submit(&work, &[0; 4]).unwrap();
    let reason = "the reference kernel of `add` panicked: out of its depth";
    assert_eq!(
        bench.wait(&second.done),
        Err(DriverError::Lost(reason.to_string()))
    );
    assert_eq!(first.done.outcome(), Some(false));
    assert_eq!(second.done.outcome(), Some(false));
}
