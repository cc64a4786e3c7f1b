//! Checks every rule of the seam before anything takes effect. The messages name the rule and the
//! numbers, for a developer whose engine broke the rule.

use std::ops::Range;

use super::contents::{Mapping, SimBuffer};
use super::queue::State;
use super::work::Step;
use crate::driver::{
    At, BindGroupId, Binding, BindingAccess, BufferId, BufferKind, MapMode, Op, PipelineDesc,
    PipelineId,
};

/// The result of a check, or the broken rule.
type Check<T = ()> = Result<T, String>;

/// The largest binding of a uniform buffer, for devices without immediates.
const MAX_UNIFORM_BYTES: u32 = 64 << 10;

impl State {
    pub(super) fn check_new_buffer(&self, size_bytes: u64) -> Check {
        let most = self.options.max_buffer_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(4) {
            return Err(format!(
                "a buffer of {size_bytes} B: it must be a multiple of 4, not 0"
            ));
        }
        if size_bytes > most {
            return Err(format!("a buffer of {size_bytes} B: at most {most} B"));
        }
        Ok(())
    }

    pub(super) fn check_pipeline(&self, desc: &PipelineDesc) -> Check {
        let (label, bytes) = (&desc.label, desc.params_bytes);
        let (bindings, most) = (
            desc.bindings.len(),
            self.options.max_storage_bindings as usize,
        );
        if bindings > most {
            return Err(format!(
                "kernel `{label}`: {bindings} storage bindings: at most {most}"
            ));
        }
        let most = match self.options.max_immediate_bytes {
            0 => MAX_UNIFORM_BYTES,
            bytes => bytes,
        };
        if bytes > most || !bytes.is_multiple_of(4) {
            return Err(format!(
                "kernel `{label}`: {bytes} B of parameters: a multiple of 4, at most {most}"
            ));
        }
        Ok(())
    }

    pub(super) fn check_bind_group(&self, pipeline: PipelineId, bindings: &[Binding]) -> Check {
        let Some(kernel) = self.pipelines.get(pipeline.0) else {
            return Err("bind group: the pipeline does not exist (any more)".to_string());
        };
        let (label, expected) = (&kernel.label, kernel.bindings.len());
        if bindings.len() != expected {
            let got = bindings.len();
            return Err(format!(
                "bind group of `{label}`: {got} bindings, the kernel has {expected}"
            ));
        }
        for (index, binding) in bindings.iter().enumerate() {
            self.check_binding(binding)
                .map_err(|why| format!("bind group of `{label}`: binding {index}: {why}"))?;
        }
        for (a, b) in pairs(bindings.len()) {
            let accesses = (kernel.bindings[a], kernel.bindings[b]);
            check_alias(&bindings[a], &bindings[b], accesses)
                .map_err(|why| format!("bind group of `{label}`: bindings {a} and {b}: {why}"))?;
        }
        Ok(())
    }

    fn check_binding(&self, binding: &Binding) -> Check {
        let Binding {
            offset_bytes,
            size_bytes,
            ..
        } = *binding;
        let buffer = self.buffer(binding.buffer)?;
        if buffer.kind != BufferKind::Slab {
            return Err(format!("{} is no slab", name(buffer)));
        }
        let alignment = self.options.offset_alignment_bytes;
        if !offset_bytes.is_multiple_of(alignment) {
            return Err(format!(
                "the offset {offset_bytes} is no multiple of {alignment}"
            ));
        }
        if size_bytes == 0 {
            return Err("it is empty".to_string());
        }
        let most = self.options.max_binding_bytes;
        if size_bytes > most {
            return Err(format!("{size_bytes} B, at most {most} B"));
        }
        check_range(buffer, offset_bytes, size_bytes)
    }

    /// The steps of a submission, or the reason why the whole submission is refused.
    pub(super) fn resolve(&self, ops: &[Op], params: &[u8], steps: &mut Vec<Step>) -> Check<()> {
        steps.reserve(ops.len());
        for (index, op) in ops.iter().enumerate() {
            let step = self.resolve_op(op, params.len());
            steps.push(step.map_err(|why| format!("submission: op {index}: {why}"))?);
        }
        Ok(())
    }

    fn resolve_op(&self, op: &Op, params_len: usize) -> Check<Step> {
        match *op {
            Op::Copy(src, dst, size_bytes) => {
                let (from, to) = (self.usable(src.0)?, self.usable(dst.0)?);
                if src.0 == dst.0 {
                    return Err(format!("copy within {}", name(from)));
                }
                if from.kind == BufferKind::Readback {
                    return Err(format!("{} cannot be copied from", name(from)));
                }
                check_target(to)?;
                check_range(from, src.1, size_bytes)?;
                check_range(to, dst.1, size_bytes)?;
                Ok(Step::Copy(src, dst, size_bytes))
            }
            Op::Clear(at, size_bytes) => {
                let target = self.usable(at.0)?;
                check_target(target)?;
                check_range(target, at.1, size_bytes)?;
                Ok(Step::Clear(at, size_bytes))
            }
            Op::Write(at, bytes) => {
                let target = self.usable(at.0)?;
                check_target(target)?;
                let bytes = params_range(bytes, params_len)?;
                check_range(target, at.1, bytes.len() as u64)?;
                Ok(Step::Write(at, bytes))
            }
            Op::Dispatch {
                pipeline,
                bind_group,
                params,
                groups,
            } => {
                let range = params_range(params, params_len)?;
                self.resolve_dispatch(pipeline, bind_group, range, groups)
            }
        }
    }

    fn resolve_dispatch(
        &self,
        pipeline: PipelineId,
        group: BindGroupId,
        params: Range<usize>,
        groups: [u32; 3],
    ) -> Check<Step> {
        let Some(kernel) = self.pipelines.get(pipeline.0) else {
            return Err("the pipeline does not exist (any more)".to_string());
        };
        let label = &kernel.label;
        let Some(group) = self.groups.get(group.0) else {
            return Err(format!(
                "`{label}`: the bind group does not exist (any more)"
            ));
        };
        if group.pipeline != pipeline {
            return Err(format!(
                "`{label}`: the bind group was made for another kernel"
            ));
        }
        if params.len() != kernel.params_bytes as usize {
            let (got, expected) = (params.len(), kernel.params_bytes);
            return Err(format!(
                "`{label}`: {got} B of parameters, it takes {expected}"
            ));
        }
        let most = self.options.max_groups;
        if groups.iter().any(|&count| count == 0 || count > most) {
            return Err(format!(
                "`{label}`: {groups:?} groups: 1 to {most} in each dimension"
            ));
        }
        for binding in group.bindings.iter() {
            self.usable(binding.buffer)
                .map_err(|why| format!("`{label}`: {why}"))?;
        }
        Ok(Step::Dispatch {
            kernel: kernel.clone(),
            bindings: group.bindings.clone(),
            params,
            groups,
        })
    }

    pub(super) fn check_map(&self, at: At, mode: MapMode, size_bytes: u64) -> Check {
        let buffer = self.usable(at.0)?;
        let allowed = match buffer.kind {
            BufferKind::Upload => mode == MapMode::Write,
            BufferKind::Readback | BufferKind::HostSlab => mode == MapMode::Read,
            BufferKind::Slab => self.options.maps_slabs,
        };
        if !allowed {
            return Err(format!(
                "map: {} cannot be mapped to {mode:?}",
                name(buffer)
            ));
        }
        if size_bytes == 0 {
            return Err(format!("map: an empty range of {}", name(buffer)));
        }
        check_mapped_alignment(at.1, size_bytes)?;
        check_range(buffer, at.1, size_bytes)
    }

    pub(super) fn check_read_mapped(&self, at: At, size: u64) -> Check {
        check_mapped_alignment(at.1, size)?;
        self.check_mapped(at, MapMode::Read, size)
    }

    /// Checks that the range lies in the mapped range, and the mode is right.
    pub(super) fn check_mapped(&self, At(id, at): At, mode: MapMode, size: u64) -> Check {
        let buffer = self.buffer(id)?;
        let Mapping::Mapped { mode: given, range } = &buffer.mapping else {
            return Err(format!("{mode:?} of {}, which is not mapped", name(buffer)));
        };
        if *given != mode {
            return Err(format!(
                "{mode:?} of {}, which is mapped to {given:?}",
                name(buffer)
            ));
        }
        match at.checked_add(size) {
            Some(end) if at >= range.start && end <= range.end => Ok(()),
            _ => Err(format!(
                "{mode:?} of {size} B at {at} of {}, mapped are {range:?}",
                name(buffer)
            )),
        }
    }

    fn buffer(&self, id: BufferId) -> Check<&SimBuffer> {
        let buffer = self.memory.get(id);
        buffer.ok_or_else(|| "the buffer does not exist (any more)".to_string())
    }

    /// The buffer, unless it is mapped or a mapping was requested.
    fn usable(&self, id: BufferId) -> Check<&SimBuffer> {
        let buffer = self.buffer(id)?;
        match buffer.is_mapped() {
            true => Err(format!(
                "{} is mapped, about to be, or failed to be: unmap it first",
                name(buffer)
            )),
            false => Ok(buffer),
        }
    }
}

fn name(buffer: &SimBuffer) -> String {
    let (kind, size) = (buffer.kind, buffer.size_bytes);
    format!("buffer `{}` ({kind:?} of {size} B)", buffer.label)
}

/// A range of a submission's parameter bytes, of which there are `params_len`.
fn params_range((start, len): (u32, u32), params_len: usize) -> Check<Range<usize>> {
    let range = start as usize..start as usize + len as usize;
    match range.end <= params_len {
        true => Ok(range),
        false => Err(format!(
            "parameters {range:?} of a submission with {params_len} B"
        )),
    }
}

fn check_target(buffer: &SimBuffer) -> Check {
    match buffer.kind {
        BufferKind::Upload => Err(format!("{} cannot be written", name(buffer))),
        _ => Ok(()),
    }
}

fn check_range(buffer: &SimBuffer, offset_bytes: u64, size_bytes: u64) -> Check {
    if !offset_bytes.is_multiple_of(4) || !size_bytes.is_multiple_of(4) {
        return Err(format!(
            "{size_bytes} B at {offset_bytes}: both must be multiples of 4"
        ));
    }
    match offset_bytes.checked_add(size_bytes) {
        Some(end) if end <= buffer.size_bytes => Ok(()),
        _ => Err(format!(
            "{size_bytes} B at {offset_bytes} are outside {}",
            name(buffer)
        )),
    }
}

fn check_mapped_alignment(offset_bytes: u64, size_bytes: u64) -> Check {
    match offset_bytes.is_multiple_of(8) && size_bytes.is_multiple_of(4) {
        true => Ok(()),
        false => Err(format!(
            "{size_bytes} B at {offset_bytes}: mapped offsets are multiples of 8, sizes of 4"
        )),
    }
}

/// Checks two bindings of a dispatch: one buffer has one access, and written ranges are disjoint.
fn check_alias(a: &Binding, b: &Binding, accesses: (BindingAccess, BindingAccess)) -> Check {
    if a.buffer != b.buffer {
        return Ok(());
    }
    if accesses.0 != accesses.1 {
        return Err("one buffer is bound both Read and ReadWrite".to_string());
    }
    let overlap = a.offset_bytes < b.offset_bytes + b.size_bytes
        && b.offset_bytes < a.offset_bytes + a.size_bytes;
    match overlap && accesses.0 == BindingAccess::ReadWrite {
        true => Err("ranges that are written overlap".to_string()),
        false => Ok(()),
    }
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |b| (0..b).map(move |a| (a, b)))
}
