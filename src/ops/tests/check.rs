//! Checks without a device that a kernel's text is a valid shader on every API.

use lapidary_core::DType;
use lapidary_core::internal::wgsl::{Layout, Target, shader};
use lapidary_core::internal::{BuiltInKernel, MAX_OPERANDS, MAX_PARAMS_BYTES, Role, Variant};
use lapidary_testing::{translate, translate_beyond_fxc};

/// How a launch on an adapter binds a variant's operands.
#[derive(Clone, Copy)]
struct Setting {
    /// Whether each operand has its own part, or all share one.
    are_apart: bool,
    /// The number of windows of each part.
    windows: u8,
    immediates: bool,
    wide_words: bool,
}

const APART: Setting = Setting {
    are_apart: true,
    windows: 1,
    immediates: true,
    wide_words: false,
};

/// Parses, validates and translates a variant's shader: with separate operands in one window and in
/// three, and with all operands in one part.
pub(super) fn valid(kernel: &BuiltInKernel, code: u64, dtypes: &[DType], vec4s: u8) {
    valid_by(translate, kernel, code, dtypes, vec4s);
}

/// The same for a variant that no device with FXC gets.
pub(super) fn valid_beyond_fxc(kernel: &BuiltInKernel, code: u64, dtypes: &[DType], vec4s: u8) {
    valid_by(translate_beyond_fxc, kernel, code, dtypes, vec4s);
}

/// The same for an adapter whose bindings are so small that a launch needs many windows.
pub(super) fn valid_through_windows(kernel: &BuiltInKernel, variant: &Variant, windows: u8) {
    let each = windows / kernel.operands.len() as u8;
    for (are_apart, windows) in [(true, each), (false, windows)] {
        let setting = Setting {
            are_apart,
            windows,
            ..APART
        };
        let whole = setting.shader(&(kernel.text)(variant), kernel, variant);
        check(translate, kernel, &whole);
    }
}

fn valid_by(
    translate: impl Fn(&str, &str) -> lapidary_testing::naga::Module,
    kernel: &BuiltInKernel,
    code: u64,
    dtypes: &[DType],
    vec4s: u8,
) {
    let mut variant = Variant {
        code,
        dtypes: [DType::F32; MAX_OPERANDS],
        vec4s,
    };
    variant.dtypes[..dtypes.len()].copy_from_slice(dtypes);
    assert_eq!(kernel.operands.len(), dtypes.len());
    let text = (kernel.text)(&variant);
    let mut known = Vec::new();
    for setting in [
        Setting {
            wide_words: true,
            ..APART
        },
        APART,
        Setting {
            windows: 3,
            immediates: false,
            ..APART
        },
        Setting {
            are_apart: false,
            ..APART
        },
    ] {
        // Pages share their part with no other operand.
        if !setting.are_apart && kernel.operands.iter().any(|one| one.is_pages) {
            continue;
        }
        let whole = setting.shader(&text, kernel, &variant);
        // Words of 64 bits matter to texts with vec4s only.
        if !known.contains(&whole) {
            check(&translate, kernel, &whole);
            known.push(whole);
        }
    }
}

impl Setting {
    /// The whole shader of a variant's text.
    fn shader(self, text: &str, kernel: &BuiltInKernel, variant: &Variant) -> String {
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [self.windows; MAX_OPERANDS],
            writable: u8::from(!self.are_apart),
        };
        if self.are_apart {
            for (index, operand) in kernel.operands.iter().enumerate() {
                layout.parts[index] = index as u8;
                layout.writable |= u8::from(operand.role != Role::Read) << index;
            }
        }
        let target = Target {
            window_bytes: 64 << 10,
            immediates: self.immediates,
            enables: false,
            wide_words: self.wide_words,
        };
        shader(text, kernel.operands, variant, &layout, &target)
    }
}

/// Translates a shader, and checks the size of its parameters.
fn check(
    translate: impl Fn(&str, &str) -> lapidary_testing::naga::Module,
    kernel: &BuiltInKernel,
    whole: &str,
) {
    let module = translate(kernel.name, whole);
    let mut types = module.types.iter().map(|(_, ty)| ty);
    let params = types.find(|ty| ty.name.as_deref() == Some("Params"));
    if let Some(lapidary_testing::naga::TypeInner::Struct { span, .. }) = params.map(|ty| &ty.inner)
    {
        assert!(*span as usize <= MAX_PARAMS_BYTES);
    }
}
