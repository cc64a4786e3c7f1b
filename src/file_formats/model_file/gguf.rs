//! The header of a GGUF file: typed metadata, and the places of tensors. Parses what an unknown
//! writer wrote, and checks every claim in it.
//!
//! ```text
//!   │ "GGUF", version, counts │ key, type, value … │ name, shape, type, offset … │ gap │ tensors │
//! ```
//!
//! The format is that of ggml (`docs/gguf.md` there), versions 2 and 3, little-endian.

use std::collections::BTreeMap;

use safetensors::Dtype;

use super::block_type::BlockType;
use super::contents::Contents;
use super::fault::ModelFault;
use super::header::{Header, MOST_HEADER_BYTES, ModelEntry, ShownShape};
use super::meta::MetaValue;
use super::stored::Stored;
use crate::file_formats::quoted;
use lapidary_core::failure::ModelFailure;

/// The first bytes of a file.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";

/// Bytes that are read from the file at once.
const PART_BYTES: usize = 64 << 10;

/// Most dimensions of a tensor, the limit of ggml.
const MOST_DIMS: u32 = 4;
/// Most lists within lists.
const MOST_DEPTH: u32 = 4;
/// Most values of all lists together: a value takes more memory than its byte in the file.
const MOST_VALUES: u64 = 8 << 20;
/// Most tensors, and most values outside of lists.
const MOST_NAMES: u64 = 1 << 20;
/// Most bytes of a name or a key, the limit of ggml.
const MOST_NAME_BYTES: u64 = (1 << 16) - 1;
/// Tensors are aligned to this many bytes, unless the metadata says otherwise.
const ALIGNMENT: u64 = 32;
const MOST_ALIGNMENT: u64 = 1 << 20;

/// The least bytes of a value with its key, and of a tensor's description.
const LEAST_VALUE_BYTES: u64 = 8 + 4 + 1;
const LEAST_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

pub(super) fn read(contents: &Contents) -> Result<Header, ModelFault> {
    let mut bytes = Bytes::new(contents);
    bytes.take::<4>()?;
    let version = bytes.u32()?;
    if version.swap_bytes() == 2 || version.swap_bytes() == 3 {
        return Err(wrong(
            "it is a big-endian file: convert it to little-endian".into(),
        ));
    }
    if version != 2 && version != 3 {
        return Err(wrong(format!("it has version {version}; 2 and 3 are read")));
    }
    let tensors = bytes.count(|| "tensors".into(), LEAST_TENSOR_BYTES, MOST_NAMES)?;
    let values = bytes.count(
        || "values of metadata".into(),
        LEAST_VALUE_BYTES,
        MOST_NAMES,
    )?;
    let mut metadata = BTreeMap::new();
    for _ in 0..values {
        let key = bytes.name("a key")?;
        let kind = bytes.u32()?;
        let value = bytes.value(kind, 0, &key)?;
        if metadata.contains_key(&key) {
            return Err(wrong(format!("the key {} comes twice", quoted(&key))));
        }
        metadata.insert(key, value);
    }
    if let Some(parts) = metadata.get("split.count").and_then(MetaValue::as_u64) {
        if parts > 1 {
            let reason = format!(
                "it is one of {parts} parts of a model: join them with `llama-gguf-split --merge`"
            );
            return Err(ModelFault(ModelFailure::Unsupported, reason));
        }
    }
    let mut described = Vec::new();
    for _ in 0..tensors {
        described.push(tensor(&mut bytes)?);
    }
    let alignment = match metadata.get("general.alignment") {
        None => ALIGNMENT,
        Some(value) => value.as_u64().unwrap_or(0),
    };
    if !alignment.is_power_of_two() || alignment > MOST_ALIGNMENT {
        return Err(wrong(format!(
            "`general.alignment` is not a power of two of at most {MOST_ALIGNMENT}"
        )));
    }
    let data_at = bytes.at.next_multiple_of(alignment);
    let entries = lay_out(described, data_at, contents.len_bytes(), alignment)?;
    Header::over(entries, metadata)
}

fn wrong(reason: String) -> ModelFault {
    ModelFault::damaged(reason)
}

/// The description of a tensor. Its place is that within the data yet.
fn tensor(bytes: &mut Bytes<'_>) -> Result<ModelEntry, ModelFault> {
    let name = bytes.name("the name of a tensor")?;
    let dims = bytes.u32()?;
    if dims > MOST_DIMS {
        let name = quoted(&name);
        return Err(wrong(format!(
            "{name} has {dims} dimensions; {MOST_DIMS} are the most"
        )));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let dim = usize::try_from(bytes.u64()?);
        let dim = dim.map_err(|_| wrong(format!("{} has a size beyond all", quoted(&name))))?;
        shape.push(dim);
    }
    // The file has the fastest dimension first.
    shape.reverse();
    let number = bytes.u32()?;
    let stored = stored(number).ok_or_else(|| {
        wrong(format!(
            "{} has the type {number}, which is not known",
            quoted(&name)
        ))
    })?;
    let offset_bytes = bytes.u64()?;
    let len_bytes = stored.array_bytes(&shape).map_err(|reason| {
        let (name, shape) = (quoted(&name), ShownShape(&shape));
        wrong(format!("{name} is {stored} of shape {shape:?}: {reason}"))
    })?;
    Ok(ModelEntry {
        name,
        stored,
        shape,
        part: 0,
        offset_bytes,
        len_bytes,
    })
}

fn stored(number: u32) -> Option<Stored> {
    Some(Stored::Plain(match number {
        0 => Dtype::F32,
        1 => Dtype::F16,
        24 => Dtype::I8,
        25 => Dtype::I16,
        26 => Dtype::I32,
        27 => Dtype::I64,
        28 => Dtype::F64,
        30 => Dtype::BF16,
        _ => return BlockType::of_number(number).map(Stored::Blocks),
    }))
}

/// Places the tensors in the file, and checks that they lie in it one after the other.
fn lay_out(
    mut entries: Vec<ModelEntry>,
    data_at: u64,
    file_bytes: u64,
    alignment: u64,
) -> Result<Vec<ModelEntry>, ModelFault> {
    entries.sort_by_key(|entry| entry.offset_bytes);
    let mut end = 0;
    for entry in &mut entries {
        let (from, name) = (entry.offset_bytes, &entry.name);
        let wrong = |reason: String| wrong(format!("{} {reason}", quoted(name)));
        if !from.is_multiple_of(alignment) {
            return Err(wrong(format!(
                "begins at byte {from} of the data, which is not aligned to {alignment}"
            )));
        }
        if from < end {
            return Err(wrong(format!(
                "begins at byte {from}, inside another tensor that ends at byte {end}"
            )));
        }
        let at = data_at.checked_add(from);
        let ends = at.and_then(|at| at.checked_add(entry.len_bytes));
        if ends.is_none_or(|ends| ends > file_bytes) {
            return Err(wrong(format!(
                "begins at byte {from} of the data and has {} bytes, beyond the file's \
                 {file_bytes}: it was cut off, or the header is wrong",
                entry.len_bytes
            )));
        }
        end = from + entry.len_bytes;
        entry.offset_bytes += data_at;
    }
    Ok(entries)
}

/// The bytes of a header, one after the other.
struct Bytes<'a> {
    contents: &'a Contents,
    /// The place of the next byte.
    at: u64,
    part: Vec<u8>,
    part_at: u64,
    /// The values of lists so far.
    values: u64,
}

impl<'a> Bytes<'a> {
    fn new(contents: &'a Contents) -> Self {
        Bytes {
            contents,
            at: 0,
            part: Vec::new(),
            part_at: 0,
            values: 0,
        }
    }

    /// The bytes that a header may still have.
    fn left(&self) -> u64 {
        self.contents.len_bytes().min(MOST_HEADER_BYTES) - self.at
    }

    fn fill(&mut self, mut into: &mut [u8]) -> Result<(), ModelFault> {
        if into.len() as u64 > self.left() {
            return Err(match self.contents.len_bytes() > MOST_HEADER_BYTES {
                true => wrong(format!(
                    "its header has more than {MOST_HEADER_BYTES} bytes"
                )),
                false => wrong(format!("it ends in its header, at byte {}", self.at)),
            });
        }
        while !into.is_empty() {
            let from = (self.at - self.part_at) as usize;
            if from >= self.part.len() {
                let part_bytes = self.left().min(PART_BYTES as u64) as usize;
                self.part.resize(part_bytes, 0);
                self.part_at = self.at;
                self.contents.read(self.at, &mut self.part)?;
                continue;
            }
            let taken = into.len().min(self.part.len() - from);
            let (filled, rest) = into.split_at_mut(taken);
            filled.copy_from_slice(&self.part[from..from + taken]);
            self.at += taken as u64;
            into = rest;
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ModelFault> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, ModelFault> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ModelFault> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number of things, of which each takes at least so many bytes of the header.
    fn count(
        &mut self,
        what: impl Fn() -> String,
        least_bytes: u64,
        most: u64,
    ) -> Result<u64, ModelFault> {
        let count = self.u64()?;
        if count > self.left() / least_bytes {
            let what = what();
            let reason = format!("it should have {count} {what}, for which its header has no room");
            return Err(wrong(reason));
        }
        match count <= most {
            true => Ok(count),
            false => Err(wrong(format!(
                "it has {count} {}; {most} are the most",
                what()
            ))),
        }
    }

    fn bytes_of(
        &mut self,
        what: impl Fn() -> String,
        most_bytes: u64,
    ) -> Result<Vec<u8>, ModelFault> {
        let len = self.u64()?;
        if len > most_bytes.min(self.left()) {
            let what = what();
            return Err(wrong(format!(
                "{what} should have {len} bytes, which do not fit"
            )));
        }
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A key, or the name of a tensor.
    fn name(&mut self, what: &str) -> Result<String, ModelFault> {
        let bytes = self.bytes_of(|| what.to_owned(), MOST_NAME_BYTES)?;
        String::from_utf8(bytes).map_err(|_| wrong(format!("{what} is not UTF-8")))
    }

    /// A text. Some vocabularies have words that are not UTF-8, and llama.cpp takes them.
    fn text(&mut self, key: &str) -> Result<String, ModelFault> {
        let bytes = self.bytes_of(|| quoted(key), u64::MAX)?;
        let text = String::from_utf8(bytes);
        Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// A value of metadata, whose type has this number.
    fn value(&mut self, kind: u32, depth: u32, key: &str) -> Result<MetaValue, ModelFault> {
        Ok(match kind {
            0 => MetaValue::Unsigned(u64::from(self.take::<1>()?[0])),
            1 => MetaValue::Signed(i64::from(i8::from_le_bytes(self.take()?))),
            2 => MetaValue::Unsigned(u64::from(u16::from_le_bytes(self.take()?))),
            3 => MetaValue::Signed(i64::from(i16::from_le_bytes(self.take()?))),
            4 => MetaValue::Unsigned(u64::from(self.u32()?)),
            5 => MetaValue::Signed(i64::from(i32::from_le_bytes(self.take()?))),
            6 => MetaValue::Float(f64::from(f32::from_le_bytes(self.take()?))),
            7 => match self.take::<1>()?[0] {
                0 => MetaValue::Bool(false),
                1 => MetaValue::Bool(true),
                byte => {
                    let key = quoted(key);
                    return Err(wrong(format!("{key} has a truth of {byte}, not 0 or 1")));
                }
            },
            8 => MetaValue::Text(self.text(key)?),
            9 if depth < MOST_DEPTH => {
                let of = self.u32()?;
                let least_bytes = least_bytes(of).ok_or_else(|| unknown(key, of))?;
                let what = || format!("elements of {}", quoted(key));
                let count = self.count(what, least_bytes, MOST_VALUES - self.values)?;
                self.values += count;
                let values = (0..count).map(|_| self.value(of, depth + 1, key));
                MetaValue::List(values.collect::<Result<_, _>>()?)
            }
            9 => {
                let key = quoted(key);
                return Err(wrong(format!("{key} has lists within {MOST_DEPTH} lists")));
            }
            10 => MetaValue::Unsigned(self.u64()?),
            11 => MetaValue::Signed(i64::from_le_bytes(self.take()?)),
            12 => MetaValue::Float(f64::from_le_bytes(self.take()?)),
            _ => return Err(unknown(key, kind)),
        })
    }
}

fn unknown(key: &str, kind: u32) -> ModelFault {
    wrong(format!(
        "{} has the type {kind}, which is not known",
        quoted(key)
    ))
}

/// The least bytes of a value of a type.
fn least_bytes(kind: u32) -> Option<u64> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        _ => return None,
    })
}
