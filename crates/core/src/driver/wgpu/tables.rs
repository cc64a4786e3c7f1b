//! The objects of a device by id.

use parking_lot::Mutex;

use super::super::table::Table;
use super::super::{BindGroupId, Binding, BufferId, PipelineId, Signal};

/// The tables of objects by id. The lock is held while commands are encoded. It is never held while
/// wgpu may call back: during submissions, polls, mappings, and drops of buffers.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) buffers: Table<BufferEntry>,
    pub(super) pipelines: Table<PipelineEntry>,
    pub(super) groups: Table<BindGroupEntry>,
    /// Whether the device was replaced. Then another device has its tables, and this one adds no
    /// entries.
    pub(super) closed: bool,
}

/// The objects of a replaced device. The caller drops them while it holds no lock.
pub(super) type Leftovers = (Vec<BindGroupEntry>, Vec<PipelineEntry>, Vec<BufferEntry>);

pub(super) struct BufferEntry {
    pub(super) raw: wgpu::Buffer,
    /// Set from the request for a mapping until its end.
    pub(super) mapping: Option<Signal>,
    /// Whether the buffer belongs to the app. Then the driver never destroys it.
    pub(super) imported: bool,
    /// The number of bindings in bind groups that name it.
    pub(super) named: usize,
}

impl BufferEntry {
    pub(super) fn new(raw: wgpu::Buffer, imported: bool) -> Self {
        BufferEntry {
            raw,
            mapping: None,
            imported,
            named: 0,
        }
    }
}

/// A browser keeps the memory of a buffer until its garbage collector comes, which knows nothing of
/// the device's memory. Submissions in progress keep a destroyed buffer until they are done.
#[cfg(target_arch = "wasm32")]
impl Drop for BufferEntry {
    fn drop(&mut self) {
        if !self.imported {
            self.raw.destroy();
        }
    }
}

pub(super) struct PipelineEntry {
    pub(super) raw: wgpu::ComputePipeline,
    pub(super) params_bytes: u32,
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) bindings: usize,
}

pub(super) struct BindGroupEntry {
    pub(super) pipeline: PipelineId,
    pub(super) bindings: Vec<Binding>,
    /// With immediates exactly one group; otherwise one per page of parameters.
    pub(super) by_page: Mutex<Vec<(usize, wgpu::BindGroup)>>,
}

impl Tables {
    /// The tables for a device that replaces this one, and the objects of this one. This device
    /// gets no more entries.
    pub(super) fn hand_over(&mut self) -> (Tables, Leftovers) {
        let closed = Tables {
            closed: true,
            ..Tables::default()
        };
        let mut tables = std::mem::replace(self, closed);
        let (groups, pipelines) = (tables.groups.clear(), tables.pipelines.clear());
        let leftovers = (groups, pipelines, tables.buffers.clear());
        (tables, leftovers)
    }

    pub(super) fn insert_group(&mut self, group: BindGroupEntry) -> BindGroupId {
        for binding in &group.bindings {
            if let Some(entry) = self.buffers.get_mut(binding.buffer.0) {
                entry.named += 1;
            }
        }
        BindGroupId(self.groups.insert(group))
    }

    pub(super) fn remove_group(&mut self, group: BindGroupId) -> Option<BindGroupEntry> {
        let removed = self.groups.remove(group.0)?;
        for binding in &removed.bindings {
            if let Some(entry) = self.buffers.get_mut(binding.buffer.0) {
                entry.named -= 1;
            }
        }
        Some(removed)
    }
}

impl BindGroupEntry {
    pub(super) fn names(&self, buffer: BufferId) -> bool {
        self.bindings.iter().any(|binding| binding.buffer == buffer)
    }
}
