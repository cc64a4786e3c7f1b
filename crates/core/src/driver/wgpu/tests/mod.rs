//! The driver on a real adapter. A software adapter is enough; without any adapter the tests fail.

mod loss;
mod mistakes;
mod reopen;
mod sharing;
mod work;

use pollster::block_on;

use super::super::{
    At, BindGroupId, Binding, BindingAccess, BufferId, BufferKind, Driver, DriverError,
    DriverResult, MapMode, Op, PipelineDesc, PipelineId, Submission,
};
use super::open::{Found, OpenRequest};
use super::{WgpuDriver, caps};

/// Adds `p.step` to each element of the one binding.
const ADD: &str = "
struct Params { step: u32, count: u32, unused_1: u32, unused_2: u32 }
PARAMS
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.count) { x[id.x] = x[id.x] + p.step; }
}";

fn driver() -> WgpuDriver {
    block_on(WgpuDriver::open(&OpenRequest::default())).expect("these tests need an adapter")
}

/// The same adapter, as if it had no immediates.
fn driver_without_immediates() -> WgpuDriver {
    let (device, queue) = app_device();
    let mut caps = caps::of_device(None, &device);
    caps.max_immediate_bytes = 0;
    let objects = (None, device, queue);
    let found = Found { objects, caps };
    WgpuDriver::new(found, None, None).expect("a device")
}

/// A device that an app opened.
fn app_device() -> (wgpu::Device, wgpu::Queue) {
    let instance =
        wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let adapter = block_on(instance.request_adapter(&Default::default()));
    let adapter = adapter.expect("these tests need an adapter");
    block_on(adapter.request_device(&Default::default())).expect("a device")
}

impl WgpuDriver {
    fn new_buffer(&self, kind: BufferKind, size_bytes: u64) -> BufferId {
        block_on(self.create_buffer(kind, size_bytes, "test")).expect("a buffer")
    }

    fn add_kernel(&self) -> PipelineId {
        let params = match self.caps().max_immediate_bytes {
            0 => "@group(0) @binding(1) var<uniform> p: Params;",
            _ => "var<immediate> p: Params;",
        };
        let desc = kernel(&ADD.replace("PARAMS", params), &[BindingAccess::ReadWrite]);
        block_on(self.create_pipeline(desc)).expect("a pipeline")
    }

    fn whole(&self, pipeline: PipelineId, buffer: BufferId, size_bytes: u64) -> BindGroupId {
        let binding = Binding {
            buffer,
            offset_bytes: 0,
            size_bytes,
        };
        self.create_bind_group(pipeline, &[binding])
            .expect("a bind group")
    }

    fn finish(&self, submission: &Submission) {
        block_on(self.wait(&submission.done)).expect("the device finishes");
    }

    fn upload(&self, values: &[u32]) -> BufferId {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let upload = self.new_buffer(BufferKind::Upload, bytes.len() as u64);
        let mapped = self.map(At(upload, 0), MapMode::Write, bytes.len() as u64);
        block_on(self.wait(&mapped.expect("a mapping"))).expect("mapped");
        self.write_mapped(At(upload, 0), bytes).expect("written");
        self.unmap(upload);
        upload
    }

    fn download(&self, src: BufferId, count: usize) -> DriverResult<Vec<u32>> {
        let size_bytes = 4 * count as u64;
        let readback = self.new_buffer(BufferKind::Readback, size_bytes);
        self.submit(&[copy(src, readback, size_bytes)], &[])?;
        let mapped = self.map(At(readback, 0), MapMode::Read, size_bytes)?;
        block_on(self.wait(&mapped))?;
        let mut values = Vec::new();
        self.read_mapped(At(readback, 0), size_bytes, &mut |bytes| {
            values = bytes.chunks_exact(4).map(read_u32).collect();
        })?;
        self.unmap(readback);
        self.destroy_buffer(readback);
        Ok(values)
    }

    /// Checks that uploads, copies, kernels and reads still work.
    fn works(&self) {
        let slab = self.new_buffer(BufferKind::Slab, 256);
        let pipeline = self.add_kernel();
        let group = self.whole(pipeline, slab, 256);
        let upload = self.upload(&(0..64).collect::<Vec<_>>());
        let params = bytemuck::cast_slice(&[7_u32, 64, 0, 0]);
        let ops = [copy(upload, slab, 256), dispatch(pipeline, group, (0, 16))];
        self.submit(&ops, params).expect("a submission");
        assert_eq!(self.download(slab, 64), Ok((7..71).collect()));
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn kernel(wgsl: &str, bindings: &[BindingAccess]) -> PipelineDesc {
    PipelineDesc {
        label: "add".to_owned(),
        wgsl: wgsl.to_owned(),
        entry: "main".to_owned(),
        bindings: bindings.to_vec(),
        params_bytes: 16,
        zeroes_workgroup: true,
        bounds_loops: true,
        written_whole: 0,
        reference: None,
    }
}

fn copy(src: BufferId, dst: BufferId, size_bytes: u64) -> Op {
    Op::Copy(At(src, 0), At(dst, 0), size_bytes)
}

fn clear(buffer: BufferId, offset_bytes: u64, size_bytes: u64) -> Op {
    Op::Clear(At(buffer, offset_bytes), size_bytes)
}

fn dispatch(pipeline: PipelineId, bind_group: BindGroupId, params: (u32, u32)) -> Op {
    Op::Dispatch {
        pipeline,
        bind_group,
        params,
        groups: [1, 1, 1],
    }
}

fn is_invalid<T>(result: &DriverResult<T>) -> bool {
    matches!(result, Err(DriverError::Invalid(_)))
}

fn is_lost<T>(result: &DriverResult<T>) -> bool {
    matches!(result, Err(DriverError::Lost(_)))
}
