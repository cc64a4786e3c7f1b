//! The core's own two kernels: one fills a buffer with a word, one copies words to it from another
//! buffer.

use std::borrow::Cow;

use super::Buffer;
use crate::dtype::DType;
use crate::engine::kernel::reference;
use crate::engine::kernel::sections::push_sections;
use crate::engine::{Arg, BuiltInKernel, Engine, Handle, Launch, Operand};
use crate::error::{Error, Result};

const WGSL: &str = include_str!("../../shaders/words.wgsl");

/// Most words that the kernels count without wrapping, with all invocations of their last
/// workgroups.
const MOST_WORDS: u32 = 1 << 31;

/// Writes one word everywhere.
pub(crate) static FILL_WORDS: BuiltInKernel = BuiltInKernel {
    name: "fill_words",
    operands: &[Operand::write("y")],
    text: |_| text("fill"),
    reference: reference!(|call| {
        let [count, word, ..] = call.params::<[u32; 4]>();
        for i in 0..count as usize {
            call.put_int(0, i, word);
        }
    }),
};

/// Copies words.
pub(crate) static COPY_WORDS: BuiltInKernel = BuiltInKernel {
    name: "copy_words",
    operands: &[Operand::read("x"), Operand::write("y")],
    text: |_| text("copy"),
    reference: reference!(|call| {
        let [count, first, ..] = call.params::<[u32; 4]>();
        for i in 0..count as usize {
            let word = call.int(0, first as usize + i);
            call.put_int(1, i, word);
        }
    }),
};

/// Queues a fill of a whole new buffer.
pub(crate) fn fill(new: &Buffer, word: u32) -> Result<()> {
    let words = words_of(new.size_bytes())?;
    let groups = groups_of(new.engine(), words);
    let params = [words, word, 0, 0];
    let launch = Launch::new(&FILL_WORDS, 0, [arg(new)], &params, groups);
    new.engine().launch(launch)
}

/// Queues a copy of a buffer to all of a new one, by the engine of that.
pub(crate) fn copy(from: &Buffer, new: &Buffer) -> Result<()> {
    // The kernel's largest number is the last index.
    let end = words_of(from.offset_bytes() + new.size_bytes())?;
    let words = new.size_bytes().div_ceil(4) as u32;
    let first = end - words;
    let groups = groups_of(new.engine(), words);
    let params = [words, first, 0, 0];
    let args = [arg(from), arg(new)];
    let launch = Launch::new(&COPY_WORDS, 0, args, &params, groups);
    new.engine().launch(launch)
}

/// The number of words for `bytes`. The kernels count words in 32 bits, four at a time.
fn words_of(bytes: u64) -> Result<u32> {
    let words = u32::try_from(bytes.div_ceil(4)).ok();
    let words = words.filter(|words| *words <= MOST_WORDS);
    words.ok_or(Error::never_fits(
        "a copy or a fill",
        bytes,
        4 * u64::from(MOST_WORDS),
        "Copy slices of it",
    ))
}

/// All of the buffer's memory.
fn arg(buffer: &Buffer) -> Arg {
    Arg {
        storage: buffer.storage().here().clone(),
        dtype: DType::U32,
        vec4s: false,
    }
}

/// Workgroups in two dimensions, because one dimension may be too small.
fn groups_of(engine: &Handle<Engine>, words: u32) -> [u32; 3] {
    let groups = words.div_ceil(4 * 64).max(1);
    let x = groups.min(engine.caps().max_groups);
    [x, groups.div_ceil(x), 1]
}

fn text(section: &str) -> Cow<'static, str> {
    let mut text = String::new();
    push_sections(&mut text, WGSL, &["head", section]);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Variant;
    use crate::engine::kernel::MAX_OPERANDS;
    use crate::engine::kernel::wgsl::{Layout, Target, shader};

    #[test]
    fn both_texts_are_valid_shaders_with_any_windows() {
        for kernel in [&FILL_WORDS, &COPY_WORDS] {
            for windows in [1, 3] {
                let mut layout = Layout {
                    parts: [0; MAX_OPERANDS],
                    windows: [windows; MAX_OPERANDS],
                    writable: 1 << (kernel.operands.len() - 1),
                };
                layout.parts[1] = 1;
                let variant = Variant {
                    code: 0,
                    dtypes: [DType::U32; MAX_OPERANDS],
                    vec4s: 0,
                };
                let target = Target {
                    window_bytes: 64 << 10,
                    immediates: windows == 1,
                    enables: false,
                    wide_words: false,
                };
                let text = (kernel.text)(&variant);
                let whole = shader(&text, kernel.operands, &variant, &layout, &target);
                lapidary_testing::translate(kernel.name, &whole);
            }
        }
    }
}
