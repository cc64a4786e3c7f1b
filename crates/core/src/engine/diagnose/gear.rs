//! The device resources of the diagnostics: kernels, the pattern for fills, and a buffer for
//! answers.

use super::finding::Diagnostics;
use super::kernels;
use super::look::{ANSWER_BYTES, LEAST_ANSWERS, Look, MOST_ANSWERS, PAGE_ANSWERS, PATTERN_BYTES};
use crate::driver::{BufferId, Caps, PipelineId};
use crate::dtype::DType;
use crate::engine::kernel::wgsl::Layout;
use crate::engine::kernel::{MAX_OPERANDS, Program, Variant};
use crate::engine::state::caches::PipelineKey;

/// The device resources of the diagnostics.
pub(crate) struct Gear {
    pub(crate) buffer: BufferId,
    /// The pipelines of the looks, in the order of their codes.
    pub(crate) pipelines: [Option<PipelineId>; 6],
    /// The answers for which there is room.
    pub(crate) answers: u32,
}

impl Gear {
    /// The number of answers for slabs with this limit. A small budget gives them a small part.
    pub(crate) fn most_answers(limit_bytes: u64, caps: &Caps) -> u64 {
        let share_bytes = limit_bytes / 32;
        let answers = MOST_ANSWERS.min(caps.max_binding_bytes / ANSWER_BYTES);
        let answers = answers.min((share_bytes / ANSWER_BYTES).max(LEAST_ANSWERS));
        answers & !(u64::from(PAGE_ANSWERS) - 1)
    }

    /// The bytes of the pattern and this number of answers.
    pub(crate) fn size_bytes(answers: u64) -> u64 {
        PATTERN_BYTES + answers * ANSWER_BYTES
    }
}

impl Look {
    /// The kernel of the look. `None` if the app did not ask for it.
    pub(crate) fn kernel(self, wants: Diagnostics) -> Option<(Program, PipelineKey)> {
        let kernel = match self {
            Look::Clear => &kernels::CLEAR,
            _ => &kernels::PROBE,
        };
        let program = Program::Builtin(kernel);
        let variant = Variant {
            code: self as u64,
            dtypes: [DType::U32; MAX_OPERANDS],
            vec4s: 0,
        };
        let key = PipelineKey::new(&program, variant, layout(self));
        self.is_wanted(wants).then_some((program, key))
    }
}

/// Two operands with one window each.
fn layout(look: Look) -> Layout {
    let mut layout = Layout {
        parts: [0; MAX_OPERANDS],
        windows: [0; MAX_OPERANDS],
        writable: 0b10 | u8::from(look == Look::Clear),
    };
    layout.parts[1] = 1;
    layout.windows[..2].fill(1);
    layout
}
