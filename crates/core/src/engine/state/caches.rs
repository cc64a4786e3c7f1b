//! The caches of pipelines and bind groups.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::driver::{
    BindGroupId, Binding, BufferId, Device, DriverResult, MOST_BIND_GROUPS, PipelineId,
};
use crate::engine::kernel::wgsl::Layout;
use crate::engine::kernel::{Program, Variant};
use crate::error::Error;

/// The identity of a kernel: the address of a constant, or the id of a custom or fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ProgramId {
    Builtin(usize),
    Custom(u64),
    Fused(u64),
}

/// The key of a compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PipelineKey {
    program: ProgramId,
    pub(crate) variant: Variant,
    pub(crate) layout: Layout,
}

impl PipelineKey {
    pub(crate) fn new(program: &Program, variant: Variant, layout: Layout) -> Self {
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

/// Hashes whole words, because each command looks its key up and most of it is lists of small
/// numbers.
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

/// Compiled kernels, and those that failed to compile, which are not tried again.
#[derive(Debug, Default)]
pub(crate) struct Pipelines {
    pub(crate) made: FxHashMap<PipelineKey, Result<PipelineId, Arc<Error>>>,
    /// Pipelines of dropped kernels, which the batch may still name.
    discarded: Vec<PipelineId>,
}

impl Pipelines {
    /// Discards the pipelines of a dropped custom or fused kernel, and their bind groups.
    pub(super) fn discard(&mut self, program: ProgramId, groups: &mut BindGroups) {
        let discarded = &mut self.discarded;
        self.made.retain(|key, made| {
            let gone = key.program == program;
            if let (true, Ok(pipeline)) = (gone, made) {
                groups.forget(|(other, _)| other == pipeline);
                discarded.push(*pipeline);
            }
            !gone
        });
    }

    /// Destroys the discarded pipelines. The caller must not be encoding a batch.
    pub(crate) fn sweep(&mut self, driver: &Device) {
        for pipeline in self.discarded.drain(..) {
            driver.destroy_pipeline(pipeline);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.made.len()
    }
}

pub(crate) type Bindings = SmallVec<[Binding; 4]>;

/// The size of a generation of bind groups. A full generation becomes the old one. The groups of
/// the generation before it that no command has used since are discarded. The result is within a
/// factor of two of an LRU cache, without its bookkeeping.
///
/// The cache has two generations, and the device may still use two more.
const GENERATION: usize = MOST_BIND_GROUPS / 4;

/// A bounded cache of bind groups, by pipeline and ranges.
#[derive(Debug)]
pub(crate) struct BindGroups {
    driver: Device,
    young: FxHashMap<(PipelineId, Bindings), BindGroupId>,
    old: FxHashMap<(PipelineId, Bindings), BindGroupId>,
    /// Groups out of the cache, which the batch may still name.
    pub(crate) discarded: Vec<BindGroupId>,
}

impl BindGroups {
    pub(crate) fn new(driver: Device) -> Self {
        BindGroups {
            driver,
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            discarded: Vec::new(),
        }
    }

    pub(crate) fn get(
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

    /// Forgets the groups that name a buffer about to be destroyed. The batch must not name it any
    /// more.
    pub(crate) fn forget_buffer(&mut self, buffer: BufferId) {
        self.forget(|(_, bindings)| bindings.iter().any(|binding| binding.buffer == buffer));
    }

    /// As [`forget_buffer`](Self::forget_buffer), for many buffers in the time of one. They are
    /// given by the numbers of their keys.
    pub(crate) fn forget_buffers(&mut self, buffers: &FxHashSet<u64>) {
        self.forget(|(_, bindings)| {
            let mut named = bindings.iter().map(|binding| binding.buffer.0.number());
            named.any(|number| buffers.contains(&number))
        });
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

    /// Destroys the discarded groups. The caller must not be encoding a batch.
    pub(crate) fn sweep(&mut self) {
        for group in self.discarded.drain(..) {
            self.driver.destroy_bind_group(group);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
