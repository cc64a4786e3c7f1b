//! The driver of a simulated device: each call is checked, counted and perhaps struck by a fault.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::contents::Mapping;
use super::device::SimDevice;
use super::faults::Site;
use super::files::FileFaults;
use super::handle::SimHandle;
use super::interpreted::{Interpreted, fault_at};
use super::options::{SimKernels, SimOptions};
use super::queue::State;
use super::shader;
use super::work::{BoundRanges, Pipeline, Work};
use crate::driver::interface::ShowTo;
use crate::driver::{
    At, BindGroupId, Binding, BoxFuture, BufferId, BufferKind, Caps, Driver, DriverError,
    DriverResult, MapMode, Op, OsBudget, PipelineDesc, PipelineId, Signal, Submission,
};
use crate::error::Result;

/// The driver of a simulated device.
#[derive(Debug)]
pub(crate) struct SimDriver {
    device: Arc<SimDevice>,
}

impl SimDriver {
    /// A new device, and the handle for a test.
    pub(crate) fn new(options: SimOptions) -> Result<(Self, SimHandle)> {
        let (caps, pauses) = (options.caps()?, options.pauses);
        let files = FileFaults::new(options.seed);
        let state = State::new(options);
        let device = Arc::new(SimDevice {
            caps,
            pauses,
            files,
            was_lost: state.was_lost.clone(),
            state: Mutex::new(state),
        });
        let handle = SimHandle {
            device: device.clone(),
        };
        Ok((SimDriver { device }, handle))
    }

    fn new_buffer(&self, kind: BufferKind, size: u64, label: String) -> DriverResult<BufferId> {
        self.device.with(|state| {
            state.enter(Site::CreateBuffer)?;
            state.allow(state.check_new_buffer(size))?;
            let taken = match kind {
                BufferKind::HostSlab => Some(0),
                _ => state.memory.taken_bytes().checked_add(size),
            };
            if taken.is_none_or(|taken| taken > state.options.memory_bytes) {
                return Err(DriverError::OutOfMemory);
            }
            let (contents, dirty) = (state.has_contents(), state.options.dirty);
            let made = state.memory.create(kind, size, label, contents, dirty);
            let id = made.ok_or(DriverError::OutOfMemory)?;
            state.counters.buffers_created += 1;
            state.digest.note((Site::CreateBuffer, kind, size, id));
            Ok(id)
        })
    }

    fn new_pipeline(&self, desc: PipelineDesc) -> DriverResult<PipelineId> {
        self.device.with(|state| {
            state.enter(Site::CreatePipeline)?;
            state.allow(state.check_pipeline(&desc))?;
            shader::check(&desc, &state.options).map_err(|why| {
                let refusal = state.refuse(why.clone());
                match desc.reference {
                    // A wrong text of the library: no other kernel may hide it.
                    Some(_) => fault_at(&desc.label, &why, String::new()),
                    None => refusal,
                }
            })?;
            let work = match &desc.reference {
                _ if !state.has_contents() => Work::Nothing,
                Some(reference) if state.options.kernels == SimKernels::References => {
                    Work::Reference(reference.clone())
                }
                _ => Work::Wgsl(Arc::new(Interpreted::new(&desc, &state.options)?)),
            };
            let id = PipelineId(state.pipelines.insert(Arc::new(Pipeline {
                work,
                label: desc.label,
                bindings: desc.bindings,
                params_bytes: desc.params_bytes,
            })));
            state.counters.pipelines_created += 1;
            state.digest.note((Site::CreatePipeline, desc.wgsl, id));
            Ok(id)
        })
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        self.device.with(State::close);
    }
}

impl Driver for SimDriver {
    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    fn has_contents(&self) -> bool {
        self.device.caps.runs_reference_kernels
    }

    fn has_clock(&self) -> bool {
        self.device
            .with(|state| state.options.host_read_bytes_per_s.is_some())
    }

    fn returns_early(&self) -> bool {
        self.device.pauses > 0
    }

    fn create_buffer(
        &self,
        kind: BufferKind,
        size_bytes: u64,
        label: &str,
    ) -> BoxFuture<'_, DriverResult<BufferId>> {
        let label = label.to_string();
        Box::pin(async move {
            // As with a real device, the buffer is there at once, and errors are known later.
            let created = self.new_buffer(kind, size_bytes, label);
            self.device.pause().await;
            created
        })
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        self.device.with(|state| {
            // Calls that release something only count here. They return no error, and they release
            // even on a lost device.
            let _ = state.enter(Site::DestroyBuffer);
            // Once the device is lost, no submission uses a buffer.
            let completed = match state.lost {
                Some(_) => u64::MAX,
                None => state.completed,
            };
            let Some(mapping) = state.memory.destroy(buffer, completed) else {
                return;
            };
            state.counters.buffers_destroyed += 1;
            state.digest.note((Site::DestroyBuffer, buffer));
            if mapping.is_held() && state.lost.is_none() {
                state.complain("destroy: the buffer is mapped, or about to be".to_string());
            }
            state.cancel(mapping);
        });
    }

    fn create_pipeline(&self, desc: PipelineDesc) -> BoxFuture<'_, DriverResult<PipelineId>> {
        Box::pin(async move {
            self.device.pause().await;
            self.new_pipeline(desc)
        })
    }

    fn destroy_pipeline(&self, pipeline: PipelineId) {
        self.device.with(|state| {
            let _ = state.enter(Site::DestroyPipeline);
            state.pipelines.remove(pipeline.0);
        });
    }

    fn create_bind_group(
        &self,
        pipeline: PipelineId,
        bindings: &[Binding],
    ) -> DriverResult<BindGroupId> {
        self.device.with(|state| {
            state.enter(Site::CreateBindGroup)?;
            state.allow(state.check_bind_group(pipeline, bindings))?;
            state.counters.bind_groups_created += 1;
            state.digest.note((Site::CreateBindGroup, bindings));
            let bindings = bindings.into();
            let group = state.groups.insert(BoundRanges { pipeline, bindings });
            Ok(BindGroupId(group))
        })
    }

    fn destroy_bind_group(&self, group: BindGroupId) {
        self.device.with(|state| {
            let _ = state.enter(Site::DestroyBindGroup);
            state.groups.remove(group.0);
        });
    }

    fn submit(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission> {
        self.device.with(|state| {
            state.enter(Site::Submit)?;
            let mut steps = state.spare_steps.pop().unwrap_or_default();
            state.allow(state.resolve(ops, params, &mut steps))?;
            state.counters.submissions += 1;
            state.digest.note((Site::Submit, ops, params));
            state.push(steps, params.to_vec())
        })
    }

    fn completed(&self) -> u64 {
        self.device.with(|state| state.completed)
    }

    fn buffers_created(&self) -> u64 {
        self.device.with(|state| state.counters.buffers_created)
    }

    fn poll(&self) -> DriverResult<()> {
        self.device.with(|state| {
            state.enter(Site::Poll)?;
            state.tick();
            state.still_here()
        })
    }

    fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>> {
        Box::pin(async move {
            self.device.pause().await;
            while let Some(left) = self.device.with(|state| state.time_left(signal)) {
                std::thread::sleep(left);
            }
            self.device.with(|state| {
                state.enter(Site::Wait)?;
                state.run_until(signal)?;
                state.still_here()
            })?;
            // The signal is set by now, or another thread took it from the queue and is about to
            // set it.
            match (signal.happened().await, self.lost()) {
                (true, _) => Ok(()),
                (false, Some(reason)) => Err(DriverError::Lost(reason)),
                (false, None) if signal.is_lost() => Err(DriverError::replaced()),
                (false, None) => Err(DriverError::Invalid(
                    "the mapping failed, or was given up".to_string(),
                )),
            }
        })
    }

    fn map(&self, at: At, mode: MapMode, size_bytes: u64) -> DriverResult<Signal> {
        self.device.with(|state| {
            state.enter(Site::Map)?;
            state.allow(state.check_map(at, mode, size_bytes))?;
            state.digest.note((Site::Map, at, size_bytes));
            Ok(state.want_mapping(at.0, mode, at.1..at.1 + size_bytes))
        })
    }

    fn write_mapped(&self, at: At, bytes: &[u8]) -> DriverResult<()> {
        self.device.with(|state| {
            state.enter(Site::WriteMapped)?;
            state.allow(state.check_mapped(at, MapMode::Write, bytes.len() as u64))?;
            if let Some(buffer) = state.memory.get_mut(at.0) {
                buffer.write(at.1, bytes);
            }
            Ok(())
        })
    }

    fn read_mapped(&self, at: At, size_bytes: u64, look: ShowTo<'_>) -> DriverResult<()> {
        // The bytes are copied, because `look` may call the driver.
        let (bytes, takes) = self.device.with(|state| {
            state.enter(Site::ReadMapped)?;
            state.allow(state.check_read_mapped(at, size_bytes))?;
            let bytes = state.memory.read(at, size_bytes);
            Ok((bytes, state.time_of_read(at.0, size_bytes)))
        })?;
        if cfg!(not(target_arch = "wasm32")) && !takes.is_zero() {
            std::thread::sleep(takes);
        }
        look(&bytes[..size_bytes as usize]);
        Ok(())
    }

    fn unmap(&self, buffer: BufferId) {
        self.device.with(|state| {
            let _ = state.enter(Site::Unmap);
            let (mapping, known) = match state.memory.get_mut(buffer) {
                Some(buffer) => (std::mem::replace(&mut buffer.mapping, Mapping::None), true),
                None => (Mapping::None, false),
            };
            // The caller may still unmap buffers that were lost with a replaced device.
            let excused = state.lost.is_some() || (state.reopened && !known);
            if matches!(mapping, Mapping::None) && !excused {
                state.complain("unmap: the buffer is not mapped".to_string());
            }
            state.digest.note((Site::Unmap, buffer));
            state.cancel(mapping);
        });
    }

    fn may_be_lost(&self) -> bool {
        self.device.was_lost.load(Ordering::Acquire)
    }

    fn lost(&self) -> Option<String> {
        self.device.state.lock().lost.clone()
    }

    fn declare_lost(&self, reason: &str) {
        self.device.with(|state| state.lose(reason));
    }

    fn os_budget(&self) -> Option<OsBudget> {
        self.device.with(|state| {
            Some(OsBudget {
                budget_bytes: state.options.os_budget_bytes?,
                used_bytes: state.memory.taken_bytes() + state.others_bytes,
                is_static: false,
            })
        })
    }

    fn reopen(&self) -> BoxFuture<'_, DriverResult<()>> {
        Box::pin(async move {
            self.device.pause().await;
            self.device.with(State::reopen)
        })
    }
}
