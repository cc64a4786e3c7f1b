//! Describes a kernel to the driver, which compiles it.

use crate::driver::{Caps, PipelineDesc};
use crate::engine::kernel::Program;
use crate::engine::kernel::adapt_reference;
use crate::engine::kernel::wgsl::{self, Target};
use crate::engine::state::caches::PipelineKey;

pub(super) fn describe(
    program: &Program,
    key: &PipelineKey,
    params_bytes: u32,
    caps: &Caps,
) -> PipelineDesc {
    let target = Target {
        window_bytes: caps.max_binding_bytes,
        immediates: params_bytes <= caps.max_immediate_bytes,
        enables: caps.backend == "webgpu",
        wide_words: caps.wide_words,
    };
    let bindings = key.layout.bindings(program.operands());
    match program {
        Program::Builtin(kernel) => {
            let text = (kernel.text)(&key.variant);
            PipelineDesc {
                label: kernel.name.to_string(),
                wgsl: wgsl::shader(&text, kernel.operands, &key.variant, &key.layout, &target),
                entry: "main".to_string(),
                bindings,
                params_bytes,
                zeroes_workgroup: false,
                bounds_loops: false,
                written_whole: key.layout.written_whole(kernel.operands),
                reference: adapt_reference::builtin_reference(
                    kernel,
                    key.variant,
                    key.layout,
                    caps,
                ),
            }
        }
        Program::Fused(fused) => {
            let (operands, layout) = (&fused.operands, &key.layout);
            let wgsl = wgsl::shader(&fused.text, operands, &key.variant, layout, &target);
            fused.shader.get_or_init(|| wgsl.clone());
            PipelineDesc {
                label: fused.name.clone(),
                wgsl,
                entry: "main".to_string(),
                bindings,
                params_bytes,
                zeroes_workgroup: false,
                bounds_loops: false,
                written_whole: key.layout.written_whole(&fused.operands),
                reference: adapt_reference::fused_reference(fused, key.variant, key.layout, caps),
            }
        }
        Program::Custom(custom) => PipelineDesc {
            label: custom.entry.clone(),
            wgsl: (custom.shader)(&key.layout, &target, key.variant.code),
            entry: custom.entry.clone(),
            bindings,
            params_bytes,
            zeroes_workgroup: true,
            bounds_loops: true,
            written_whole: 0,
            reference: adapt_reference::custom_reference(custom, key.variant.code, caps),
        },
    }
}
