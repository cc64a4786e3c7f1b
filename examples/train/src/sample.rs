//! Text that a model continues.

use lapidary::{Gpu, Result, Tensor};

use crate::model::{CONTEXT, Model};

/// Below 1, likely bytes become likelier.
const TEMPERATURE: f32 = 0.7;
/// Bytes of the beginning that are shown.
const SHOWN: usize = 48;

/// Continues some passages of a text by `len` bytes. The bytes stay on the device until the end:
/// each is drawn there, and put behind the window that the model sees.
pub(crate) fn continued(
    gpu: &Gpu,
    model: &Model,
    text: &[u8],
    passages: usize,
    len: usize,
) -> Result<Vec<String>> {
    let _no_grad = gpu.no_grad();
    let step = (text.len() - CONTEXT) / passages;
    let windows = (0..passages).map(|number| &text[number * step..][..CONTEXT]);
    let seen: Vec<u32> = windows.clone().flatten().map(|&byte| byte.into()).collect();
    let mut seen = gpu.tensor(&seen, &[passages, CONTEXT])?;
    let mut drawn = Vec::new();
    for number in 0..len {
        let chances = (model.next(&seen)? / TEMPERATURE)?.softmax(-1)?;
        let next = chances.multinomial(1, false, number as u64)?;
        let kept = seen.narrow(1, 1, CONTEXT - 1)?;
        seen = Tensor::concat(&[&kept, &next], 1)?;
        drawn.push(next);
    }
    let drawn = Tensor::concat(&drawn.iter().collect::<Vec<_>>(), 1)?.to_vec::<u32>()?;
    let shown = |(begun, drawn): (&[u8], &[u32])| {
        let drawn = drawn.iter().map(|&byte| letter(byte as u8));
        let begun = begun[CONTEXT - SHOWN..].iter().map(|&byte| letter(byte));
        begun.chain("»".chars()).chain(drawn).collect::<String>()
    };
    Ok(windows.zip(drawn.chunks(len)).map(shown).collect())
}

/// A byte as it may be printed: a terminal obeys other control characters.
fn letter(byte: u8) -> char {
    match byte {
        b'\n' | b' '..=b'~' => byte.into(),
        _ => '·',
    }
}
