//! Bytes that may be a state file. The file is refused, or both ways of loading give the same
//! tensors and saving these gives the same file.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lapidary::{Error, Gpu, Result, files::State};

use crate::device;
use crate::elements::elements;

/// A device, and a folder that is deleted with its thread.
struct Place {
    gpu: Gpu,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lapidary-fuzz-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("the system has a folder for what is temporary");
        Place {
            gpu: device().0,
            folder,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

thread_local! {
    static PLACE: OnceCell<Place> = const { OnceCell::new() };
}

/// Loads the bytes as they are, and with correct checksums. Returns whether the latter are a state.
pub fn body(bytes: &[u8]) -> bool {
    PLACE.with(|place| {
        let place = place.get_or_init(Place::new);
        look(place, bytes);
        look(place, &with_checksums(bytes))
    })
}

fn look(place: &Place, bytes: &[u8]) -> bool {
    let (file, again) = (place.folder.join("a"), place.folder.join("b"));
    fs::write(&file, bytes).expect("the folder takes files");
    let loaded = accepted(place.gpu.files().load_state(&file));
    let backed = accepted(place.gpu.files().load_state_backed(&file));
    let (Some(loaded), Some(backed)) = (&loaded, &backed) else {
        assert_eq!(loaded.is_some(), backed.is_some());
        return false;
    };
    assert!(loaded.names().eq(backed.names()));
    for name in loaded.names() {
        let [one, other] = [loaded, backed].map(|state| state.get(name).expect("it has the name"));
        assert_eq!((one.shape(), one.dtype()), (other.shape(), other.dtype()));
        assert_eq!(elements(&one), elements(&other), "{name:?}");
    }
    saves_the_same(place, loaded, &again, bytes);
    true
}

fn accepted(loaded: Result<State>) -> Option<State> {
    match loaded {
        Ok(state) => Some(state),
        Err(Error::State { .. }) => None,
        // Tensors that are too large for this device, or have more axes than a tensor may have.
        Err(Error::Shape { .. } | Error::NeverFits { .. } | Error::Overflow { .. }) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// The format leaves no choice, so a state has exactly one file.
fn saves_the_same(place: &Place, state: &State, again: &Path, bytes: &[u8]) {
    let tensors: Vec<_> = state
        .names()
        .map(|name| (name, state.get(name).expect("it has the name")))
        .collect();
    let named: Vec<_> = tensors.iter().map(|(name, it)| (*name, it)).collect();
    place
        .gpu
        .files()
        .save_state(again, &named)
        .expect("it can be saved");
    let saved = fs::read(again).expect("it was saved");
    assert!(saved == bytes, "{}", bytes.escape_ascii());
}

/// The same bytes with correct checksums of header, table and arrays, as far as the table can be
/// parsed. The module `state_file::format` of the library has the offsets.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 64;
    let mut fixed = bytes.to_vec();
    let Some(table_bytes) = number::<8>(&fixed, 24) else {
        return fixed;
    };
    let end = HEADER_BYTES.saturating_add(table_bytes);
    if fixed.len() < HEADER_BYTES || fixed.len() < end {
        return fixed;
    }
    let mut at = HEADER_BYTES;
    while let Some(next) = fix_entry(&mut fixed, at, end) {
        at = next;
    }
    put_checksum(&mut fixed, HEADER_BYTES..end, 40);
    // No reader of this version reads these bytes.
    fixed[44..60].fill(0);
    put_checksum(&mut fixed, 0..60, 60);
    fixed
}

/// Writes the checksums of the array whose entry is at `at`. Returns the place of the next entry.
fn fix_entry(bytes: &mut [u8], at: usize, end: usize) -> Option<usize> {
    const FRAME_BYTES: usize = 1 << 20;
    let (name_bytes, rank) = (number::<4>(bytes, at)?, number::<4>(bytes, at + 8)?);
    let (offset, len) = (number::<8>(bytes, at + 12)?, number::<8>(bytes, at + 20)?);
    let array_end = offset.checked_add(len).filter(|end| *end <= bytes.len())?;
    let mut sum_at = rank.checked_mul(8)?.checked_add(at + 28)?;
    for frame in (offset..array_end).step_by(FRAME_BYTES) {
        if sum_at.checked_add(4)? > end {
            return None;
        }
        put_checksum(bytes, frame..array_end.min(frame + FRAME_BYTES), sum_at);
        sum_at += 4;
    }
    sum_at.checked_add(name_bytes).filter(|next| *next < end)
}

fn put_checksum(bytes: &mut [u8], of: std::ops::Range<usize>, at: usize) {
    let checksum = crc32fast::hash(&bytes[of]);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// The little-endian number of this many bytes at a place.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let found = bytes.get(at..)?.first_chunk::<BYTES>()?;
    let number = found
        .iter()
        .rev()
        .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    usize::try_from(number).ok()
}
