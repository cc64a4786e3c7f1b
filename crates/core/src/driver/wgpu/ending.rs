//! Kernels whose loops end, and therefore need no counters. One of the files with `unsafe` code.

#![allow(
    unsafe_code,
    reason = "wgpu leaves out its counters of loops only in an unsafe function"
)]

/// Compiles a kernel of this library. wgpu lets every loop count its rounds, since compilers may do
/// anything with one that does not end. On an NVIDIA H100 the counters took a tenth of a matrix
/// product, and a fifth of the kernels of a training step. All other checks stay: those of indices
/// keep a faulty kernel within its bindings.
pub(super) fn module(
    device: &wgpu::Device,
    source: wgpu::ShaderModuleDescriptor<'_>,
) -> wgpu::ShaderModule {
    let checks = wgpu::ShaderRuntimeChecks {
        force_loop_bounding: false,
        ..wgpu::ShaderRuntimeChecks::checked()
    };
    // SAFETY: the caller passes kernels of this library alone. Their loops count up to sizes and
    // strides that the engine computes, so each ends. Kernels of the app never come here.
    unsafe { device.create_shader_module_trusted(source, checks) }
}
