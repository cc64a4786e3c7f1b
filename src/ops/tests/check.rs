//! For tests without a device: does a kernel's text make a valid shader, on every API?

use crate::dtype::DType;
use crate::engine::kernel::{Kernel, MAX_OPERANDS, MAX_PARAMS_BYTES, Role, Variant};
use crate::engine::tests::{translate, translate_beyond_fxc};
use crate::engine::wgsl::{Layout, Target, shader};

/// Parses, validates and translates the shader of a variant with operands apart, and with all of them in one
/// part, in one window and in three.
pub(super) fn valid(kernel: &Kernel, code: u64, dtypes: &[DType], quads: u8) {
    valid_by(translate, kernel, code, dtypes, quads);
}

/// The same for a variant that no device gets whose compiler is FXC.
pub(super) fn valid_beyond_fxc(kernel: &Kernel, code: u64, dtypes: &[DType], quads: u8) {
    valid_by(translate_beyond_fxc, kernel, code, dtypes, quads);
}

fn valid_by(
    translate: impl Fn(&str, &str) -> naga::Module,
    kernel: &Kernel,
    code: u64,
    dtypes: &[DType],
    quads: u8,
) {
    let mut variant = Variant {
        code,
        dtypes: [DType::F32; MAX_OPERANDS],
        quads,
    };
    variant.dtypes[..dtypes.len()].copy_from_slice(dtypes);
    assert_eq!(kernel.operands.len(), dtypes.len());
    let text = (kernel.text)(&variant);
    for (apart, windows, immediates, wide_words) in [
        (true, 1, true, true),
        (true, 1, true, false),
        (true, 3, false, false),
        (false, 1, false, false),
    ] {
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [windows; MAX_OPERANDS],
            writable: u8::from(!apart),
        };
        if apart {
            for (index, operand) in kernel.operands.iter().enumerate() {
                layout.parts[index] = index as u8;
                layout.writable |= u8::from(operand.role != Role::Read) << index;
            }
        }
        let target = Target {
            window_bytes: 64 << 10,
            immediates,
            enables: false,
            wide_words,
        };
        let whole = shader(&text, kernel.operands, &variant, &layout, &target);
        let module = translate(kernel.name, &whole);
        let params = module
            .types
            .iter()
            .find(|(_, ty)| ty.name.as_deref() == Some("Params"));
        if let Some((
            _,
            naga::Type {
                inner: naga::TypeInner::Struct { span, .. },
                ..
            },
        )) = params
        {
            assert!(*span as usize <= MAX_PARAMS_BYTES);
        }
    }
}
