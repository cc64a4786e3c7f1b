//! The header of a model file: parses JSON from an unknown writer and checks every claim in it.
//!
//! Types and entries are those of the crate `safetensors`, but this module parses them itself, in
//! one pass. That crate's parser accepts a repeated name and keeps the last, and does not say which
//! tensor is wrong. Every header accepted here is also accepted there.

use std::collections::BTreeMap;
use std::fmt;

use safetensors::tensor::TensorInfo;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::contents::Contents;
use super::fault::ModelFault;
use super::meta::MetaValue;
use super::stored::Stored;
use crate::file_formats::quoted;
use lapidary_core::failure::ModelFailure;
use lapidary_core::internal::printable;

/// Most bytes of a header, the limit of all readers of the format.
pub(super) const MOST_HEADER_BYTES: u64 = 100_000_000;

/// Size of the header's length, the first field of the file.
pub(super) const LENGTH_BYTES: u64 = 8;

/// Most columns of the JSON parser's message in an error.
const MOST_QUOTED: usize = 300;

/// The only name that is not a tensor.
pub(super) const METADATA: &str = "__metadata__";

/// One array of a file.
#[derive(Clone, Debug)]
pub(crate) struct ModelEntry {
    pub(crate) name: String,
    pub(crate) stored: Stored,
    pub(crate) shape: Vec<usize>,
    /// The index of its file.
    pub(super) part: usize,
    /// Offset in the file.
    pub(super) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// The contents of a valid header.
#[derive(Debug)]
pub(super) struct Header {
    /// In the order of the file.
    pub(super) entries: Vec<ModelEntry>,
    pub(super) metadata: BTreeMap<String, MetaValue>,
    /// Indices of the entries, sorted by name.
    sorted: Vec<u32>,
}

impl Header {
    pub(super) fn read(contents: &Contents) -> Result<Header, ModelFault> {
        let file_bytes = contents.len_bytes();
        if file_bytes < LENGTH_BYTES {
            return Err(ModelFault::damaged(format!(
                "it has {file_bytes} bytes, but {LENGTH_BYTES} bytes of header length come first"
            )));
        }
        let mut length = [0; LENGTH_BYTES as usize];
        contents.read(0, &mut length)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > MOST_HEADER_BYTES.min(file_bytes - LENGTH_BYTES) {
            return Err(wrong_length(header_bytes, file_bytes, &length));
        }
        let mut text = Vec::new();
        let len = header_bytes as usize;
        if text.try_reserve_exact(len).is_err() {
            let reason = format!("the host has no room for its header of {len} bytes");
            return Err(ModelFault(ModelFailure::Io, reason));
        }
        text.resize(len, 0);
        contents.read(LENGTH_BYTES, &mut text)?;
        let parsed = parse(&text)?;
        let data_at = LENGTH_BYTES + header_bytes;
        let entries = lay_out(parsed.tensors, data_at, file_bytes - data_at)?;
        let metadata = parsed.metadata.unwrap_or_default().into_iter();
        let metadata = metadata.map(|(key, text)| (key, MetaValue::Text(text)));
        Header::over(entries, metadata.collect())
    }

    /// The header of these arrays, whose names must differ.
    pub(super) fn over(
        entries: Vec<ModelEntry>,
        metadata: BTreeMap<String, MetaValue>,
    ) -> Result<Header, ModelFault> {
        let sorted = sort(&entries)?;
        Ok(Header {
            entries,
            metadata,
            sorted,
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let found =
            (self.sorted).binary_search_by(|&at| self.entries[at as usize].name.as_str().cmp(name));
        found.ok().map(|at| self.sorted[at] as usize)
    }
}

/// The error for an impossible header length. It guesses what the file may be instead.
fn wrong_length(header_bytes: u64, file_bytes: u64, start: &[u8; 8]) -> ModelFault {
    let instead = match start {
        b"version " => ": it looks like a pointer of Git LFS, which `git lfs pull` replaces",
        [b'P', b'K', ..] | [0x80, 0x02..=0x04, ..] => {
            ": it looks like a pickle of PyTorch's, to be converted to safetensors"
        }
        [b'<', ..] => ": it looks like a web page, not like the file to download",
        [b'{', ..] => ": it looks like JSON, not like a model",
        _ if header_bytes > MOST_HEADER_BYTES => "",
        _ => ": it was cut off, or is not a safetensors file",
    };
    ModelFault::damaged(format!(
        "its header should have {header_bytes} bytes; the file has {}, and {MOST_HEADER_BYTES} are \
         the most{instead}",
        file_bytes - LENGTH_BYTES,
    ))
}

#[derive(Debug, Default)]
struct Parsed {
    tensors: Vec<(String, TensorInfo)>,
    metadata: Option<BTreeMap<String, String>>,
}

fn parse(text: &[u8]) -> Result<Parsed, ModelFault> {
    let damaged = |reason: String| ModelFault::damaged(format!("its header {reason}"));
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = LENGTH_BYTES + error.valid_up_to() as u64;
        damaged(format!("is not UTF-8, at byte {at}"))
    })?;
    if !text.starts_with('{') {
        return Err(damaged("does not begin with `{`".into()));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = (&mut json).deserialize_map(Entries);
    let parsed = parsed.and_then(|parsed| json.end().map(|()| parsed));
    // The parser quotes unknown text, such as a type.
    parsed.map_err(|error| {
        let error = printable(&error.to_string(), MOST_QUOTED);
        damaged(format!("cannot be understood: {error}"))
    })
}

/// Visitor for the header's object.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut parsed = Parsed::default();
        while let Some(name) = map.next_key::<String>()? {
            let in_entry =
                |error: A::Error| A::Error::custom(format!("{}: {error}", quoted(&name)));
            if name == METADATA {
                let Texts(metadata) = map.next_value().map_err(in_entry)?;
                if parsed.metadata.replace(metadata).is_some() {
                    return Err(A::Error::custom(format!("{} comes twice", quoted(&name))));
                }
            } else {
                let info = map.next_value().map_err(in_entry)?;
                parsed.tensors.push((name, info));
            }
        }
        Ok(parsed)
    }
}

/// Texts by name, without repeated names.
#[derive(Debug)]
pub(super) struct Texts(pub(super) BTreeMap<String, String>);

impl<'de> serde::Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsVisitor).map(Texts)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            if texts.contains_key(&name) {
                return Err(A::Error::custom(format!("{} comes twice", quoted(&name))));
            }
            texts.insert(name, text);
        }
        Ok(texts)
    }
}

/// Sorts the arrays and checks that they fill the data, each as its shape and type say.
fn lay_out(
    mut tensors: Vec<(String, TensorInfo)>,
    data_at: u64,
    data_bytes: u64,
) -> Result<Vec<ModelEntry>, ModelFault> {
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut entries = Vec::with_capacity(tensors.len());
    let mut end = 0;
    for (name, info) in tensors {
        let entry = entry(name, info, data_at, end, data_bytes)?;
        end += entry.len_bytes;
        entries.push(entry);
    }
    if end != data_bytes {
        return Err(ModelFault::damaged(format!(
            "its tensors end at byte {end} of its data, which has {data_bytes}"
        )));
    }
    Ok(entries)
}

/// Checks one array, which must begin where the previous one ends.
fn entry(
    name: String,
    info: TensorInfo,
    data_at: u64,
    expected: u64,
    data_bytes: u64,
) -> Result<ModelEntry, ModelFault> {
    let wrong = |reason: String| Err(ModelFault::damaged(format!("{} {reason}", quoted(&name))));
    let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
    if to < from {
        return wrong(format!(
            "begins at byte {from} and ends before that, at byte {to}"
        ));
    }
    if to > data_bytes {
        return wrong(format!(
            "ends at byte {to} of the data, of which the file has {data_bytes}: it was cut off, or \
             the header is wrong"
        ));
    }
    if from < expected {
        return wrong(format!(
            "begins at byte {from}, inside another tensor that ends at byte {expected}"
        ));
    }
    if from > expected {
        return wrong(format!(
            "begins at byte {from}, but the tensor before it ends at byte {expected}"
        ));
    }
    let stored = Stored::Plain(info.dtype);
    let is = format!("{stored} of shape {:?}", ShownShape(&info.shape));
    match stored.array_bytes(&info.shape) {
        Ok(bytes) if bytes == to - from => {}
        Ok(bytes) => {
            let has = to - from;
            return wrong(format!("is {is}, which takes {bytes} bytes, and has {has}"));
        }
        Err(reason) => return wrong(format!("is {is}: {reason}")),
    }
    Ok(ModelEntry {
        stored,
        shape: info.shape,
        part: 0,
        offset_bytes: data_at + from,
        len_bytes: to - from,
        name,
    })
}

/// Shows the beginning of a shape of any length.
pub(crate) struct ShownShape<'a>(pub(crate) &'a [usize]);

impl fmt::Debug for ShownShape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        match self.0.get(..SHOWN) {
            Some(start) if self.0.len() > SHOWN => {
                write!(f, "{start:?} and {} more", self.0.len() - SHOWN)
            }
            _ => write!(f, "{:?}", self.0),
        }
    }
}

/// Sorts the entries by name, and refuses a repeated name.
fn sort(entries: &[ModelEntry]) -> Result<Vec<u32>, ModelFault> {
    let Ok(count) = u32::try_from(entries.len()) else {
        return Err(ModelFault::damaged("it holds more than 2³² tensors"));
    };
    let mut sorted: Vec<u32> = (0..count).collect();
    let name = |at: u32| entries[at as usize].name.as_str();
    sorted.sort_unstable_by(|&a, &b| name(a).cmp(name(b)));
    match sorted
        .windows(2)
        .find(|pair| name(pair[0]) == name(pair[1]))
    {
        Some(pair) => Err(ModelFault::damaged(format!(
            "its header has two tensors called {}",
            quoted(name(pair[0]))
        ))),
        None => Ok(sorted),
    }
}
