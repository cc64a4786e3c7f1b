//! State files that are cut off, changed, forged, or fail while they are written: each gives an
//! error, and the old file stays.

mod damage;
mod faults;
mod place;

use std::fs;
use std::path::{Path, PathBuf};

use super::format::StateEntry;
use super::{StateReader, StateWriter};
use crate::file_formats::replace::FileOptions;
use lapidary_core::internal::random;
use lapidary_core::{DType, Error, Result, failure::StateFailure};

/// A folder for one test, removed after it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        // Use a file system in memory where there is one: making thousands of states durable on a
        // disk takes minutes.
        let name = format!("lapidary-test-{:016x}", random());
        let bases = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let mut paths = bases.iter().map(|base| base.join(&name));
        Folder(paths.find(|path| fs::create_dir(path).is_ok()).unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.join("a.state")
    }

    fn names(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Arrays with their contents.
type Arrays = Vec<(StateEntry, Vec<u8>)>;

/// A few small arrays. `value` makes two sets differ.
fn small(value: u8) -> Arrays {
    vec![
        (StateEntry::new("x", DType::U8, &[3]), vec![value; 3]),
        (StateEntry::new("none", DType::F32, &[0, 7]), Vec::new()),
        (
            StateEntry::new("flags", DType::Bool, &[2, 2]),
            vec![1, 0, 0, 1],
        ),
        (StateEntry::new("ÿ", DType::F32, &[]), vec![value; 4]),
        (StateEntry::new("w", DType::I8, &[1]), vec![value]),
        (StateEntry::new("h", DType::Bf16, &[1]), vec![value; 2]),
    ]
}

/// One array of several frames between small ones.
fn large(value: u8) -> Arrays {
    let mut arrays = small(value);
    let bytes = vec![value; (5 << 19) + 3];
    let entry = StateEntry::new("large", DType::U8, &[bytes.len()]);
    arrays.insert(1, (entry, bytes));
    arrays
}

fn save_with(path: &Path, arrays: &Arrays, options: &FileOptions) -> Result<()> {
    let entries = arrays.iter().map(|(entry, _)| entry.clone()).collect();
    let mut writer = StateWriter::create(path, entries, options)?;
    for (_, bytes) in arrays {
        for piece in bytes.chunks(700_000) {
            writer.append(piece)?;
        }
    }
    writer.finish()
}

fn save(path: &Path, arrays: &Arrays) -> Result<()> {
    save_with(path, arrays, &FileOptions::default())
}

fn load_with(path: &Path, options: &FileOptions) -> Result<Vec<(String, Vec<u8>)>> {
    let reader = StateReader::open(path, options)?;
    let arrays = reader.entries().iter().enumerate();
    arrays
        .map(|(index, entry)| {
            let mut bytes = vec![0; entry.len_bytes as usize];
            reader.read(index, 0, &mut bytes)?;
            Ok((entry.name.clone(), bytes))
        })
        .collect()
}

fn load(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    load_with(path, &FileOptions::default())
}

fn contents(arrays: &Arrays) -> Vec<(String, Vec<u8>)> {
    let named = |(entry, bytes): &(StateEntry, Vec<u8>)| (entry.name.clone(), bytes.clone());
    arrays.iter().map(named).collect()
}

#[track_caller]
fn failure<T>(result: Result<T>) -> StateFailure {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(Error::State { failure, .. }) => failure,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_is_saved_is_loaded_from_any_offset() {
    let folder = Folder::new();
    let arrays = large(3);
    save(&folder.file(), &arrays).unwrap();
    assert!(load(&folder.file()).unwrap() == contents(&arrays));

    let mut bytes: Vec<u8> = (0..(5 << 19) + 3)
        .map(|at| ((at * 31) >> 8) as u8)
        .collect();
    let arrays = vec![(
        StateEntry::new("a", DType::U8, &[bytes.len()]),
        bytes.clone(),
    )];
    save(&folder.file(), &arrays).unwrap();
    let reader = StateReader::open(&folder.file(), &FileOptions::default()).unwrap();
    reader.verify().unwrap();
    let len = bytes.len();
    bytes.extend([0; 10]);
    for (from, to) in [
        (0, 0),
        (0, 1),
        (5, 1 << 20),
        ((1 << 20) - 1, (2 << 20) + 1),
        (1 << 20, 2 << 20),
        (len - 1, len),
        (len, len),
    ] {
        let mut part = vec![0; to - from];
        reader.read(0, from as u64, &mut part).unwrap();
        assert!(part == bytes[from..to], "{from} to {to}");
    }
    for (index, from, len) in [(0, 0, len + 1), (0, len, 1), (0, usize::MAX, 2), (1, 0, 0)] {
        let read = reader.read(index, from as u64, &mut vec![0; len]);
        assert_eq!(failure(read), StateFailure::Damaged);
    }
}

#[test]
fn too_few_or_too_many_bytes_make_no_file() {
    let folder = Folder::new();
    for bytes in [0, 9, 11] {
        let entries = vec![StateEntry::new("a", DType::U8, &[10])];
        let options = FileOptions::default();
        let mut writer = StateWriter::create(&folder.file(), entries, &options).unwrap();
        let made = writer
            .append(&vec![1; bytes])
            .and_then(|()| writer.finish());
        assert_eq!(failure(made), StateFailure::Io);
        assert!(folder.names().is_empty());
    }
}
