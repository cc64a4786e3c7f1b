//! The bytes of a state file, without file access.
//!
//! ```text
//!    0 magic "LAPSTATE"     8 byte order 0x01020304, u32   12 version u32
//!   16 entries u64         24 bytes of the table u64       32 bytes of the file u64
//!   40 checksum of the table u32        44 zeros           60 checksum of the 60 bytes above u32
//!   64 the table: for each entry
//!        bytes of the name u32   element type u32   rank u32
//!        offset u64   bytes u64   shape, rank × u64   checksum of each MiB, u32   the name
//!    … zeros up to a multiple of 4096, the first array, zeros up to a multiple of 4096, …
//! ```
//!
//! Everything is little-endian, the arrays too; checksums are CRC-32. Arrays follow in the order of
//! the table, as close as their alignment allows, and the file ends with the last one. Empty arrays
//! have the offset 0 and take no room. So each offset follows from the entries before it, and no
//! two arrays can overlap. The first 16 bytes, and the checksum at 60, stay the same in all
//! versions.

use std::collections::HashSet;

use super::StateFault;
use crate::file_formats::quoted;
use lapidary_core::units::Bytes;
use lapidary_core::units::KIB;
use lapidary_core::units::MIB;
use lapidary_core::{DType, failure::StateFailure};

/// Size of the header.
pub(super) const HEADER_BYTES: u64 = 64;

/// Arrays begin at multiples of this, so that they can be mapped in place.
pub(super) const ALIGNMENT_BYTES: u64 = 4 * KIB;

/// Bytes that share one checksum.
pub(super) const FRAME_BYTES: u64 = MIB;

/// Most bytes of a name.
const MOST_NAME_BYTES: usize = 64 << 10;

/// Most bytes of the table, which is read at once: enough for the checksums of 64 TiB.
const MOST_TABLE_BYTES: u64 = 256 * MIB;

/// Most dimensions.
const MOST_RANK: usize = 8;

const MAGIC: [u8; 8] = *b"LAPSTATE";
const BYTE_ORDER: u32 = 0x0102_0304;
const VERSION: u32 = 1;
const CHECKED_BYTES: usize = HEADER_BYTES as usize - 4;

/// Size of an entry without its dimensions, checksums and name.
const LEAST_ENTRY_BYTES: u64 = 28;

/// An array: its name, type, shape and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateEntry {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) len_bytes: u64,
    pub(super) offset_bytes: u64,
    /// One checksum per frame.
    pub(super) checksums: Vec<u32>,
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) count: u64,
    pub(super) table_bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) table_checksum: u32,
}

impl StateEntry {
    /// An array to write.
    pub(crate) fn new(name: &str, dtype: DType, shape: &[usize]) -> StateEntry {
        let shape: Vec<u64> = shape.iter().map(|&dim| dim as u64).collect();
        // `lay_out` refuses impossible shapes.
        let len_bytes = array_bytes(&shape, dtype).unwrap_or(u64::MAX);
        StateEntry {
            name: name.to_owned(),
            dtype,
            shape,
            len_bytes,
            offset_bytes: 0,
            checksums: Vec::new(),
        }
    }

    /// Offset and size of a frame in the array, in bytes.
    pub(super) fn frame(&self, index: u64) -> (u64, u64) {
        let start = index * FRAME_BYTES;
        (start, (self.len_bytes - start).min(FRAME_BYTES))
    }

    fn table_bytes(&self) -> u64 {
        let frames = self.len_bytes.div_ceil(FRAME_BYTES);
        LEAST_ENTRY_BYTES + 8 * self.shape.len() as u64 + 4 * frames + self.name.len() as u64
    }

    fn encode(&self, table: &mut Vec<u8>) {
        for number in [
            self.name.len() as u32,
            dtype_code(self.dtype),
            self.shape.len() as u32,
        ] {
            table.extend(number.to_le_bytes());
        }
        table.extend(self.offset_bytes.to_le_bytes());
        table.extend(self.len_bytes.to_le_bytes());
        for dim in &self.shape {
            table.extend(dim.to_le_bytes());
        }
        for checksum in &self.checksums {
            table.extend(checksum.to_le_bytes());
        }
        table.extend(self.name.as_bytes());
    }
}

/// Assigns each array its offset. Returns the sizes of the table and of the file, in bytes.
pub(super) fn lay_out(entries: &mut [StateEntry]) -> Result<(u64, u64), StateFault> {
    let mut names = HashSet::new();
    for entry in entries.iter() {
        if entry.name.len() > MOST_NAME_BYTES {
            let reason = format!(
                "a name of {} bytes, at most {MOST_NAME_BYTES}: {}",
                entry.name.len(),
                quoted(&entry.name)
            );
            return Err(StateFault(StateFailure::Name, reason));
        }
        if !names.insert(entry.name.as_str()) {
            let reason = format!("two tensors are called {}", quoted(&entry.name));
            return Err(StateFault(StateFailure::Name, reason));
        }
    }
    let too_large = || {
        let reason = "more arrays, or more bytes, than a state file holds";
        StateFault(StateFailure::Io, reason.into())
    };
    let table_bytes = entries.iter().map(StateEntry::table_bytes);
    let table_bytes = table_bytes.fold(0_u64, u64::saturating_add);
    if table_bytes > MOST_TABLE_BYTES || entries.iter().any(|e| e.shape.len() > MOST_RANK) {
        return Err(too_large());
    }
    let mut end = HEADER_BYTES + table_bytes;
    for entry in entries {
        (entry.offset_bytes, end) = placed(end, entry.len_bytes).ok_or_else(too_large)?;
    }
    Ok((table_bytes, end))
}

/// Start and end of an array, if the previous one ends at `end`.
fn placed(end: u64, len_bytes: u64) -> Option<(u64, u64)> {
    if len_bytes == 0 {
        return Some((0, end));
    }
    let offset_bytes = end.checked_next_multiple_of(ALIGNMENT_BYTES)?;
    Some((offset_bytes, offset_bytes.checked_add(len_bytes)?))
}

/// Bytes of a shape; `None` if the number overflows.
fn array_bytes(shape: &[u64], dtype: DType) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let mut dims = shape.iter();
    dims.try_fold(dtype.size_bytes(), |bytes, &dim| bytes.checked_mul(dim))
}

/// Encodes the header and the table.
pub(super) fn encode(entries: &[StateEntry], table_bytes: u64, file_bytes: u64) -> Vec<u8> {
    let mut table = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut table));
    debug_assert_eq!(table.len() as u64, table_bytes);
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&BYTE_ORDER.to_le_bytes());
    bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&(entries.len() as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&table_bytes.to_le_bytes());
    bytes[32..40].copy_from_slice(&file_bytes.to_le_bytes());
    bytes[40..44].copy_from_slice(&crc32fast::hash(&table).to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..CHECKED_BYTES]);
    bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend(table);
    bytes
}

/// Decodes the header of a file of `file_bytes` bytes.
pub(super) fn decode_header(bytes: &[u8], file_bytes: u64) -> Result<Header, StateFault> {
    let cut_off = || {
        let reason = format!("it is cut off after {}", Bytes(bytes.len() as u64));
        StateFault::damaged(reason)
    };
    if bytes.is_empty() {
        return Err(StateFault::damaged("it is empty"));
    }
    if !bytes.starts_with(&MAGIC[..bytes.len().min(8)]) {
        return Err(StateFault::damaged("it is not a state file"));
    }
    let (head, mut rest) = (bytes, bytes.get(8..).ok_or_else(cut_off)?);
    let order = take_u32(&mut rest).ok_or_else(cut_off)?;
    let version = take_u32(&mut rest).ok_or_else(cut_off)?;
    let checked = head.get(..CHECKED_BYTES).ok_or_else(cut_off)?;
    let mut after = &head[CHECKED_BYTES..];
    let checksum = take_u32(&mut after).ok_or_else(cut_off)?;
    let unsupported = |reason: String| Err(StateFault(StateFailure::Unsupported, reason));
    if order == BYTE_ORDER.swap_bytes() {
        return unsupported("a big-endian machine wrote it".into());
    }
    if crc32fast::hash(checked) != checksum || order != BYTE_ORDER {
        return Err(StateFault::damaged("the checksum of the header is wrong"));
    }
    if version != VERSION {
        return unsupported(format!("it has version {version}, not {VERSION}"));
    }
    let mut number = || take_u64(&mut rest).ok_or_else(cut_off);
    let (count, table_bytes, said_bytes) = (number()?, number()?, number()?);
    let table_checksum = take_u32(&mut rest).ok_or_else(cut_off)?;
    if said_bytes != file_bytes {
        return Err(StateFault::damaged(format!(
            "it has {file_bytes} bytes, but {said_bytes} were written"
        )));
    }
    let fits = table_bytes <= MOST_TABLE_BYTES && table_bytes <= file_bytes - HEADER_BYTES;
    if !fits || count > table_bytes / LEAST_ENTRY_BYTES {
        return Err(StateFault::damaged(format!(
            "{count} entries in a table of {table_bytes} bytes do not fit into {file_bytes} bytes"
        )));
    }
    Ok(Header {
        count,
        table_bytes,
        file_bytes,
        table_checksum,
    })
}

/// Decodes the table that belongs to a header.
pub(super) fn decode_table(table: &[u8], header: &Header) -> Result<Vec<StateEntry>, StateFault> {
    if crc32fast::hash(table) != header.table_checksum {
        return Err(StateFault::damaged("the checksum of the table is wrong"));
    }
    let (mut rest, mut entries, mut names) = (table, Vec::new(), HashSet::new());
    let mut end = HEADER_BYTES + header.table_bytes;
    for index in 0..header.count {
        let entry = decode_entry(&mut rest, &mut end, header.file_bytes);
        let entry = entry.map_err(|StateFault(failure, reason)| {
            StateFault(failure, format!("entry {index} of the table: {reason}"))
        })?;
        if !names.insert(entry.name.clone()) {
            let reason = format!("two entries are called {}", quoted(&entry.name));
            return Err(StateFault::damaged(reason));
        }
        entries.push(entry);
    }
    if !rest.is_empty() {
        return Err(StateFault::damaged("the table is longer than its entries"));
    }
    if end != header.file_bytes {
        return Err(StateFault::damaged("the file is longer than its contents"));
    }
    Ok(entries)
}

fn decode_entry(
    rest: &mut &[u8],
    end: &mut u64,
    file_bytes: u64,
) -> Result<StateEntry, StateFault> {
    let cut_off = || StateFault::damaged("it is cut off");
    let name_bytes = take_u32(rest).ok_or_else(cut_off)? as usize;
    let code = take_u32(rest).ok_or_else(cut_off)?;
    let rank = take_u32(rest).ok_or_else(cut_off)? as usize;
    let offset_bytes = take_u64(rest).ok_or_else(cut_off)?;
    let len_bytes = take_u64(rest).ok_or_else(cut_off)?;
    let dtype = DType::ALL
        .into_iter()
        .find(|&dtype| dtype_code(dtype) == code);
    let dtype = dtype.ok_or_else(|| {
        let reason = format!("the unknown element type {code}");
        StateFault(StateFailure::Unsupported, reason)
    })?;
    if name_bytes > MOST_NAME_BYTES || rank > MOST_RANK {
        let reason = format!("a name of {name_bytes} bytes and {rank} dimensions");
        return Err(StateFault::damaged(reason));
    }
    let dims = (0..rank).map(|_| take_u64(rest));
    let shape: Vec<u64> = dims.collect::<Option<_>>().ok_or_else(cut_off)?;
    if array_bytes(&shape, dtype) != Some(len_bytes) {
        let reason = format!("{len_bytes} bytes for {dtype}{shape:?}");
        return Err(StateFault::damaged(reason));
    }
    let place = placed(*end, len_bytes).filter(|(_, end)| *end <= file_bytes);
    match place {
        Some((expected, after)) if expected == offset_bytes => *end = after,
        _ => {
            let reason = format!("{len_bytes} bytes at the impossible offset {offset_bytes}");
            return Err(StateFault::damaged(reason));
        }
    }
    // The array lies within the file, so the number of checksums is small in comparison.
    let frames = len_bytes.div_ceil(FRAME_BYTES) as usize;
    let sums = take(rest, frames.saturating_mul(4)).ok_or_else(cut_off)?;
    let checksums = sums
        .chunks_exact(4)
        .filter_map(|mut sum| take_u32(&mut sum));
    let checksums = checksums.collect();
    let name = take(rest, name_bytes).ok_or_else(cut_off)?;
    let name =
        std::str::from_utf8(name).map_err(|_| StateFault::damaged("its name is not UTF-8"))?;
    Ok(StateEntry {
        name: name.to_owned(),
        dtype,
        shape,
        len_bytes,
        offset_bytes,
        checksums,
    })
}

fn dtype_code(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 1,
        DType::F16 => 2,
        DType::I32 => 3,
        DType::U32 => 4,
        DType::U8 => 5,
        DType::Bool => 6,
        DType::Bf16 => 7,
        DType::I8 => 8,
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?))
}
