//! Converts stored elements to a device's types. Types that the device has are copied, and blocks
//! become floats. For all others each element is checked.

use half::{bf16, f16};
use safetensors::Dtype;

use super::block_type::{BlockType, MOST_ELEMENTS};
use super::contents::Contents;
use super::fault::ModelFault;
use super::header::ModelEntry;
use super::stored::Stored;
use crate::file_formats::quoted;
use lapidary_core::{DType, failure::ModelFailure};

/// Bytes of the file that are converted at once: they stay in a CPU's caches.
const BLOCK_BYTES: usize = 64 << 10;

/// The default type on a device for a stored type: the same, or the type of four bytes that usually
/// fits the values.
pub(crate) fn device_type(stored: Stored) -> Option<DType> {
    let stored = match stored {
        Stored::Plain(stored) => stored,
        Stored::Blocks(kind) => return kind.format.map(|_| DType::F32),
    };
    Some(match stored {
        Dtype::F32 | Dtype::F64 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I32 | Dtype::I64 | Dtype::I16 => DType::I32,
        Dtype::U32 | Dtype::U64 | Dtype::U16 => DType::U32,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

/// Can elements of this stored type be loaded as this type? Floats can become any float, the others
/// only what [`device_type`] says.
pub(crate) fn can_load(stored: Stored, dtype: DType) -> bool {
    let natural = device_type(stored);
    natural == Some(dtype) || natural.is_some_and(|natural| natural.is_float() && dtype.is_float())
}

/// So many bytes of an entry become so many of this type, from any multiple on.
pub(super) fn unit_bytes(entry: &ModelEntry, dtype: DType) -> [u64; 2] {
    let size = dtype.size_bytes();
    match entry.stored {
        Stored::Plain(stored) => [stored.bitsize() as u64 / 8, size],
        Stored::Blocks(kind) => [kind.bytes as u64, kind.elements as u64 * size],
    }
}

/// Fills `into` with an entry converted to `dtype`, from an offset in the converted entry on.
pub(super) fn read(
    contents: &Contents,
    entry: &ModelEntry,
    dtype: DType,
    offset_bytes: u64,
    into: &mut [u8],
) -> Result<(), ModelFault> {
    let stored = match entry.stored {
        Stored::Plain(stored) => stored,
        Stored::Blocks(kind) => return blocks(contents, entry, kind, dtype, offset_bytes, into),
    };
    let stored_bytes = stored.bitsize() as u64 / 8;
    let is_same = stored_bytes == dtype.size_bytes() && device_type(entry.stored) == Some(dtype);
    if is_same {
        read_stored(contents, entry, offset_bytes, into)?;
        let wrong = match dtype {
            DType::Bool => into.iter().position(|&byte| byte > 1),
            _ => None,
        };
        return match wrong {
            Some(at) => Err(unfit(entry, dtype, offset_bytes + at as u64, into[at])),
            None => Ok(()),
        };
    }
    let size = dtype.size_bytes() as usize;
    let is_whole = offset_bytes.is_multiple_of(size as u64) && into.len().is_multiple_of(size);
    let first = offset_bytes / size as u64;
    let taken_bytes = into.len() / size * stored_bytes as usize;
    let at = first
        .checked_mul(stored_bytes)
        .filter(|&at| is_whole && is_within(entry, at, taken_bytes));
    let mut at = at.ok_or_else(|| ends_before(entry))?;
    let mut block = vec![0; taken_bytes.min(BLOCK_BYTES)];
    for into in into.chunks_mut(BLOCK_BYTES / stored_bytes as usize * size) {
        let block = &mut block[..into.len() / size * stored_bytes as usize];
        contents.read(entry.offset_bytes + at, block)?;
        convert(entry, stored, dtype, at / stored_bytes, block, into)?;
        at += block.len() as u64;
    }
    Ok(())
}

/// Fills `into` with bytes of an entry as they are stored, from an offset on.
pub(super) fn read_stored(
    contents: &Contents,
    entry: &ModelEntry,
    offset_bytes: u64,
    into: &mut [u8],
) -> Result<(), ModelFault> {
    match is_within(entry, offset_bytes, into.len()) {
        true => contents.read(entry.offset_bytes + offset_bytes, into),
        false => Err(ends_before(entry)),
    }
}

/// Whether an entry has these bytes, as it is stored.
fn is_within(entry: &ModelEntry, offset_bytes: u64, len: usize) -> bool {
    let end = offset_bytes.checked_add(len as u64);
    end.is_some_and(|end| end <= entry.len_bytes)
}

fn ends_before(entry: &ModelEntry) -> ModelFault {
    ModelFault::damaged(format!("{} ends before", quoted(&entry.name)))
}

/// Converts elements. The first has this index in the entry.
fn convert(
    entry: &ModelEntry,
    stored: Dtype,
    dtype: DType,
    first: u64,
    from: &[u8],
    into: &mut [u8],
) -> Result<(), ModelFault> {
    use Dtype::{BF16, F16, F32, F64, I16, I64, U16, U64};
    let f64_f32 = |value: f64| Some(value as f32).filter(|to| is_kept(value, f64::from(*to)));
    // As in PyTorch, by way of f32. `from_f64` of the crate `half` ignores the last 32 bits.
    let f64_f16 =
        |value: f64| Some(f16::from_f32(value as f32)).filter(|to| is_kept(value, to.to_f64()));
    let f64_bf16 =
        |value: f64| Some(bf16::from_f32(value as f32)).filter(|to| is_kept(value, to.to_f64()));
    let converted = match (stored, dtype) {
        (I64, DType::I32) => each(
            from,
            into,
            i64::from_le_bytes,
            |v| i32::try_from(v).ok(),
            i32::to_le_bytes,
        ),
        (I16, DType::I32) => each(
            from,
            into,
            i16::from_le_bytes,
            |v| Some(i32::from(v)),
            i32::to_le_bytes,
        ),
        (U64, DType::U32) => each(
            from,
            into,
            u64::from_le_bytes,
            |v| u32::try_from(v).ok(),
            u32::to_le_bytes,
        ),
        (U16, DType::U32) => each(
            from,
            into,
            u16::from_le_bytes,
            |v| Some(u32::from(v)),
            u32::to_le_bytes,
        ),
        (F64, DType::F32) => each(from, into, f64::from_le_bytes, f64_f32, f32::to_le_bytes),
        (F64, DType::F16) => each(from, into, f64::from_le_bytes, f64_f16, f16::to_le_bytes),
        (F64, DType::Bf16) => each(from, into, f64::from_le_bytes, f64_bf16, bf16::to_le_bytes),
        (F32, DType::F16) => each(from, into, wide_f32, f64_f16, f16::to_le_bytes),
        (F32, DType::Bf16) => each(from, into, wide_f32, f64_bf16, bf16::to_le_bytes),
        (F16, DType::F32) => each(from, into, wide_f16, f64_f32, f32::to_le_bytes),
        (F16, DType::Bf16) => each(from, into, wide_f16, f64_bf16, bf16::to_le_bytes),
        (BF16, DType::F32) => each(from, into, wide_bf16, f64_f32, f32::to_le_bytes),
        (BF16, DType::F16) => each(from, into, wide_bf16, f64_f16, f16::to_le_bytes),
        _ => return Err(unsupported(entry, dtype)),
    };
    converted.map_err(|(at, value)| unfit(entry, dtype, first + at as u64, value))
}

/// Fills `into` with elements of an entry that is stored in blocks, as floats.
fn blocks(
    contents: &Contents,
    entry: &ModelEntry,
    kind: &BlockType,
    dtype: DType,
    offset_bytes: u64,
    into: &mut [u8],
) -> Result<(), ModelFault> {
    let (size, per) = (dtype.size_bytes(), kind.elements as u64);
    let format = kind.format.filter(|_| dtype.is_float());
    let format = format.ok_or_else(|| unsupported(entry, dtype))?;
    let elements = entry.len_bytes / kind.bytes as u64 * per;
    let (mut at, count) = (offset_bytes / size, into.len() as u64 / size);
    let is_whole = offset_bytes.is_multiple_of(size) && into.len() as u64 == count * size;
    if !is_whole || at.checked_add(count).is_none_or(|end| end > elements) {
        return Err(ends_before(entry));
    }
    let mut stored = vec![0; BLOCK_BYTES / kind.bytes * kind.bytes];
    let mut values = [0.0; MOST_ELEMENTS];
    let (mut rest, end) = (into, at + count);
    while at < end {
        let block = at / per;
        let taken = ((end - block * per).div_ceil(per)).min((stored.len() / kind.bytes) as u64);
        let stored = &mut stored[..taken as usize * kind.bytes];
        contents.read(entry.offset_bytes + block * kind.bytes as u64, stored)?;
        for bytes in stored.chunks_exact(kind.bytes) {
            format.decode(bytes, &mut values[..kind.elements]);
            let from = (at % per) as usize;
            let wanted = (kind.elements - from).min((end - at) as usize);
            let (filled, after) = rest.split_at_mut(wanted * size as usize);
            let values = bytemuck::cast_slice(&values[from..from + wanted]);
            match dtype {
                DType::F32 => filled.copy_from_slice(values),
                _ => convert(entry, Dtype::F32, dtype, at, values, filled)?,
            }
            (rest, at) = (after, at + wanted as u64);
        }
    }
    Ok(())
}

fn unsupported(entry: &ModelEntry, dtype: DType) -> ModelFault {
    let (name, stored) = (quoted(&entry.name), entry.stored);
    let reason = format!("{name} is {stored}, which cannot be loaded as {dtype}");
    ModelFault(ModelFailure::Unsupported, reason)
}

fn wide_f32(bytes: [u8; 4]) -> f64 {
    f64::from(f32::from_le_bytes(bytes))
}

fn wide_f16(bytes: [u8; 2]) -> f64 {
    f16::from_le_bytes(bytes).to_f64()
}

fn wide_bf16(bytes: [u8; 2]) -> f64 {
    bf16::from_le_bytes(bytes).to_f64()
}

/// A float may be rounded, but a finite one must stay finite.
fn is_kept(value: f64, to: f64) -> bool {
    to.is_finite() || !value.is_finite()
}

/// Converts each element. The error is the first that does not fit, with its index.
fn each<V: Copy + ToString, T, const N: usize, const M: usize>(
    from: &[u8],
    into: &mut [u8],
    decode: impl Fn([u8; N]) -> V,
    fit: impl Fn(V) -> Option<T>,
    encode: impl Fn(T) -> [u8; M],
) -> Result<(), (usize, String)> {
    let pairs = from.chunks_exact(N).zip(into.chunks_exact_mut(M));
    for (at, (from, into)) in pairs.enumerate() {
        let mut stored = [0; N];
        stored.copy_from_slice(from);
        let value = decode(stored);
        let fitted = fit(value).ok_or_else(|| (at, value.to_string()))?;
        into.copy_from_slice(&encode(fitted));
    }
    Ok(())
}

fn unfit(
    entry: &ModelEntry,
    dtype: DType,
    index: u64,
    value: impl std::fmt::Display,
) -> ModelFault {
    let reason = format!(
        "element {index} of {} is {value}, which does not fit into {dtype}",
        quoted(&entry.name)
    );
    ModelFault(ModelFailure::Value, reason)
}
