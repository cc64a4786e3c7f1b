//! Pipelines and bind groups that were made once and are wanted again.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::kernel::{Program, Variant};
use super::wgsl::Layout;
use crate::driver::{
    BindGroupId, Binding, BufferId, Device, DriverResult, MOST_BIND_GROUPS, PipelineId,
};
use crate::error::Error;

/// A kernel's identity: the address of a constant, or the id of a custom or fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProgramId {
    Builtin(usize),
    Custom(u64),
    Fused(u64),
}

/// Everything that a compiled kernel depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PipelineKey {
    program: ProgramId,
    pub(super) variant: Variant,
    pub(super) layout: Layout,
}

impl PipelineKey {
    pub(super) fn new(program: &Program, variant: Variant, layout: Layout) -> Self {
        let program = match program {
            Program::Builtin(kernel) => ProgramId::Builtin(std::ptr::from_ref(*kernel) as usize),
            Program::Custom(custom) => ProgramId::Custom(custom.id),
            Program::Fused(fused) => ProgramId::Fused(fused.id),
        };
        PipelineKey {
            program,
            variant,
            layout,
        }
    }
}

/// By words: it is looked up once a command, and most of it is lists of small numbers.
impl Hash for PipelineKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (variant, layout) = (&self.variant, &self.layout);
        self.program.hash(state);
        state.write_u64(variant.code);
        let dtypes = variant.dtypes.map(|dtype| dtype as u8);
        for bytes in [dtypes, layout.parts, layout.windows] {
            state.write_u64(u64::from_le_bytes(bytes));
        }
        state.write_u16(u16::from_le_bytes([variant.vec4s, layout.writable]));
    }
}

/// Compiled kernels, and those that would not compile: they are not tried again.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    made: FxHashMap<PipelineKey, Result<PipelineId, Arc<Error>>>,
    /// Of kernels that are gone, but the batch may name them.
    discarded: Vec<PipelineId>,
}

impl Pipelines {
    pub(super) fn get(&self, key: &PipelineKey) -> Option<&Result<PipelineId, Arc<Error>>> {
        self.made.get(key)
    }

    pub(super) fn insert(&mut self, key: PipelineKey, made: Result<PipelineId, Arc<Error>>) {
        self.made.insert(key, made);
    }

    /// Discards the pipelines of a custom or fused kernel that is gone, and their bind groups.
    pub(super) fn discard(&mut self, program: ProgramId, groups: &mut BindGroups) {
        let discarded = &mut self.discarded;
        self.made.retain(|key, made| {
            let gone = key.program == program;
            if let (true, Ok(pipeline)) = (gone, made) {
                groups.forget_pipeline(*pipeline);
                discarded.push(*pipeline);
            }
            !gone
        });
    }

    /// Destroys what is no longer in the cache. Call when no batch is being encoded.
    pub(super) fn sweep(&mut self, driver: &Device) {
        for pipeline in self.discarded.drain(..) {
            driver.destroy_pipeline(pipeline);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.made.len()
    }
}

pub(super) type Bindings = SmallVec<[Binding; 4]>;

/// Bind groups of one generation; when it is full it becomes the old one, and what nobody asked for
/// since the last time goes. That is within a factor of two of keeping the most recently used, for
/// none of the bookkeeping.
///
/// There are two generations, and a third and fourth that the device may still use.
const GENERATION: usize = MOST_BIND_GROUPS / 4;

/// Bind groups by pipeline and ranges; bounded.
#[derive(Debug)]
pub(super) struct BindGroups {
    driver: Device,
    young: FxHashMap<(PipelineId, Bindings), BindGroupId>,
    old: FxHashMap<(PipelineId, Bindings), BindGroupId>,
    /// Out of the cache, but the batch may name them.
    discarded: Vec<BindGroupId>,
}

impl BindGroups {
    pub(super) fn new(driver: Device) -> Self {
        BindGroups {
            driver,
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            discarded: Vec::new(),
        }
    }

    pub(super) fn get(
        &mut self,
        pipeline: PipelineId,
        bindings: Bindings,
    ) -> DriverResult<BindGroupId> {
        let key = (pipeline, bindings);
        if let Some(group) = self.young.get(&key) {
            return Ok(*group);
        }
        let group = match self.old.remove(&key) {
            Some(group) => group,
            None => self.driver.create_bind_group(pipeline, &key.1)?,
        };
        if self.young.len() >= GENERATION {
            let full = std::mem::take(&mut self.young);
            let gone = std::mem::replace(&mut self.old, full);
            self.discarded.extend(gone.into_values());
        }
        self.young.insert(key, group);
        Ok(group)
    }

    /// Forgets the groups that name a buffer which is about to be destroyed. The batch must not
    /// name it any more.
    pub(super) fn forget_buffer(&mut self, buffer: BufferId) {
        self.forget(|(_, bindings)| bindings.iter().any(|binding| binding.buffer == buffer));
    }

    /// As [`forget_buffer`](Self::forget_buffer) of all of them, which takes no longer than of one.
    pub(super) fn forget_buffers(&mut self, buffers: &FxHashSet<BufferId>) {
        self.forget(|(_, bindings)| {
            let mut named = bindings.iter().map(|binding| &binding.buffer);
            named.any(|buffer| buffers.contains(buffer))
        });
    }

    /// Forgets the groups of a pipeline that is about to be destroyed.
    fn forget_pipeline(&mut self, pipeline: PipelineId) {
        self.forget(|(other, _)| *other == pipeline);
    }

    fn forget(&mut self, gone: impl Fn(&(PipelineId, Bindings)) -> bool) {
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|key, group| {
                let gone = gone(key);
                if gone {
                    self.discarded.push(*group);
                }
                !gone
            });
        }
    }

    /// Takes out what is no longer in the cache, to be destroyed. Call when no batch is being
    /// encoded.
    pub(super) fn take_discarded(&mut self) -> Vec<BindGroupId> {
        std::mem::take(&mut self.discarded)
    }

    /// Destroys what is no longer in the cache. Call when no batch is being encoded.
    pub(super) fn sweep(&mut self) {
        for group in self.discarded.drain(..) {
            self.driver.destroy_bind_group(group);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
