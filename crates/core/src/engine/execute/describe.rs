//! Describes a kernel to the driver, which compiles it.

use crate::driver::{Caps, PipelineDesc};
use crate::engine::kernel::wgsl::{self, Target};
use crate::engine::kernel::{Operand, Program, adapt_reference};
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
    let (variant, layout) = (&key.variant, &key.layout);
    let of_ours = |text: &str, operands: &[Operand]| {
        let wgsl = wgsl::shader(text, operands, variant, layout, &target);
        (wgsl, layout.written_whole(operands))
    };
    let (wgsl, written_whole) = match program {
        Program::Builtin(kernel) => of_ours(&(kernel.text)(variant), kernel.operands),
        Program::Fused(fused) => {
            let (wgsl, written_whole) = of_ours(&fused.text, &fused.operands);
            fused.shader.get_or_init(|| wgsl.clone());
            (wgsl, written_whole)
        }
        Program::Custom(custom) => ((custom.shader)(layout, &target, variant.code), 0),
    };
    let is_of_app = matches!(program, Program::Custom(_));
    PipelineDesc {
        label: program.name().to_owned(),
        wgsl,
        entry: if is_of_app { program.name() } else { "main" }.to_owned(),
        bindings: layout.bindings(program.operands()),
        params_bytes,
        zeroes_workgroup: is_of_app,
        bounds_loops: is_of_app,
        written_whole,
        reference: adapt_reference::reference(program, *variant, *layout, caps),
    }
}
