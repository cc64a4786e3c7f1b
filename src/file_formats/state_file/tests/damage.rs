//! Forged files: no length, bit or number in them leads to anything but an error.

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use super::super::format::{ALIGNMENT_BYTES, HEADER_BYTES};
use super::{Folder, Result, StateFailure, contents, failure, load, save, small};

/// The bytes of a valid small file.
fn sound() -> Vec<u8> {
    let folder = Folder::new();
    save(&folder.file(), &small(7)).unwrap();
    fs::read(folder.file()).unwrap()
}

/// A folder with one file that each case overwrites. Some systems take long to create a file.
struct Scratch {
    folder: Folder,
    file: fs::File,
}

impl Scratch {
    fn new() -> Scratch {
        let folder = Folder::new();
        let file = fs::File::create_new(folder.file()).unwrap();
        Scratch { folder, file }
    }

    fn load(&mut self, bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
        self.file.seek(SeekFrom::Start(0)).unwrap();
        self.file.write_all(bytes).unwrap();
        self.file.set_len(bytes.len() as u64).unwrap();
        load(&self.folder.file())
    }
}

/// Corrects the checksums of the header and the table, as a forger would.
fn sign(bytes: &mut [u8]) {
    let table_bytes = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    let end = HEADER_BYTES.saturating_add(table_bytes);
    if let Some(table) = bytes.get(HEADER_BYTES as usize..end.min(1 << 40) as usize) {
        let checksum = crc32fast::hash(table);
        bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
    }
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
}

#[track_caller]
fn check(bytes: &[u8], expected: StateFailure) {
    assert_eq!(failure(Scratch::new().load(bytes)), expected);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let (bytes, mut scratch) = (sound(), Scratch::new());
    for len in 0..bytes.len() {
        assert_eq!(
            failure(scratch.load(&bytes[..len])),
            StateFailure::Damaged,
            "{len}"
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    check(&longer, StateFailure::Damaged);
    assert_eq!(scratch.load(&bytes).unwrap(), contents(&small(7)));
}

/// Each bit of the header and the table, and one of each byte behind them, which checksums cover.
/// With `LAPIDARY_EVERY_BIT` each bit of these, too.
#[test]
fn a_file_with_any_bit_flipped_is_refused() {
    let (mut bytes, mut scratch) = (sound(), Scratch::new());
    let is_whole = std::env::var_os("LAPIDARY_EVERY_BIT").is_some();
    let table_bytes = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    let table_end = (HEADER_BYTES + table_bytes) as usize;
    let is_tried = |bit: &usize| is_whole || bit / 8 < table_end || bit % 8 == bit / 8 % 8;
    for bit in (0..bytes.len() * 8).filter(is_tried) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            failure(scratch.load(&bytes)),
            StateFailure::Damaged,
            "{bit}"
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn other_versions_and_other_byte_orders_are_told_from_damage() {
    let mut bytes = sound();
    bytes[12] = 2;
    check(&bytes, StateFailure::Damaged);
    sign(&mut bytes);
    check(&bytes, StateFailure::Unsupported);

    let mut bytes = sound();
    bytes[8..12].reverse();
    check(&bytes, StateFailure::Unsupported);
    check(b"", StateFailure::Damaged);
    check(&[0; 100], StateFailure::Damaged);
    check(&[b'L'; 5000], StateFailure::Damaged);
}

/// Offsets in the table of [`small`]'s file: its first entry is `x`, three bytes.
const FIRST: usize = 64;
const SECOND: usize = FIRST + 28 + 8 + 4 + 1;

#[test]
fn numbers_that_cannot_be_are_refused_before_anything_is_made_of_them() {
    use StateFailure::{Damaged, Unsupported};
    let original = sound();
    let set = |at: usize, value: &[u8]| {
        let mut bytes = original.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        sign(&mut bytes);
        bytes
    };
    for huge in [5, 1 << 20, 1 << 31, 1 << 32, 1 << 60, 1 << 63, u64::MAX] {
        let huge = huge.to_le_bytes();
        for at in [16, 24, 32] {
            check(&set(at, &huge), Damaged);
        }
        for field in [12, 20, 28] {
            check(&set(FIRST + field, &huge), Damaged);
        }
        check(&set(SECOND + 12, &huge), Damaged);
        check(&set(SECOND + 20, &huge), Damaged);
    }
    for huge in [9, 1 << 16, 1 << 20, u32::MAX] {
        let huge: [u8; 4] = huge.to_le_bytes();
        // The bytes behind the name are misread.
        assert!(matches!(
            failure(Scratch::new().load(&set(FIRST, &huge))),
            Damaged | Unsupported
        ));
        check(&set(FIRST + 4, &huge), Unsupported);
        check(&set(FIRST + 8, &huge), Damaged);
    }
    check(&set(FIRST + 4, &[0]), Unsupported);
    // Another element type, whose size does not match the number of bytes.
    check(&set(FIRST + 4, &[1]), Damaged);
    // An empty array with another huge dimension still has no bytes.
    let empty = set(SECOND + 36, &u64::MAX.to_le_bytes());
    assert_eq!(Scratch::new().load(&empty).unwrap(), contents(&small(7)));
    // The first array overlaps the header, overlaps the second, and is not aligned.
    for offset in [
        0,
        64,
        ALIGNMENT_BYTES - 1,
        2 * ALIGNMENT_BYTES,
        3 * ALIGNMENT_BYTES,
    ] {
        check(&set(FIRST + 12, &offset.to_le_bytes()), Damaged);
    }
    // The product of the dimensions wraps around to the right length.
    let mut bytes = original.clone();
    bytes[SECOND + 28..SECOND + 36].copy_from_slice(&(1_u64 << 32).to_le_bytes());
    bytes[SECOND + 36..SECOND + 44].copy_from_slice(&(1_u64 << 32).to_le_bytes());
    sign(&mut bytes);
    check(&bytes, Damaged);
    // A name that is not valid UTF-8.
    check(&set(SECOND - 1, &[0xff]), Damaged);
    // A different valid name is not an error.
    let other = set(SECOND - 1, b"y");
    assert_eq!(Scratch::new().load(&other).unwrap()[0].0, "y");
}

#[test]
fn two_entries_of_one_name_are_refused() {
    let folder = Folder::new();
    let mut arrays = small(7);
    arrays.truncate(3);
    arrays[2].0.name = "y".into();
    save(&folder.file(), &arrays).unwrap();
    let mut bytes = fs::read(folder.file()).unwrap();
    let end = 64 + u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
    assert_eq!(bytes[end - 1], b'y');
    bytes[end - 1] = b'x';
    sign(&mut bytes);
    check(&bytes, StateFailure::Damaged);
}

#[test]
fn bytes_that_are_neither_true_nor_false_are_refused() {
    let folder = Folder::new();
    let mut arrays = small(7);
    arrays[2].1[1] = 2;
    save(&folder.file(), &arrays).unwrap();
    assert_eq!(failure(load(&folder.file())), StateFailure::Damaged);
}

#[test]
fn made_up_tables_never_do_more_than_fail() {
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed = seed.map_or_else(super::random, |seed| seed.parse().unwrap());
    println!("LAPIDARY_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (bytes, mut scratch) = (sound(), Scratch::new());
    let table_end = 64 + u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
    let mut sound_files = 0;
    for _ in 0..5000 {
        let mut bytes = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(16..table_end);
            match rng.u8(0..3) {
                0 => bytes[at] = rng.u8(..),
                1 => bytes[at] = [0, 1, 4, 0x7f, 0x80, 0xff][rng.usize(0..6)],
                _ => bytes[at..(at + 8).min(table_end)].fill([0, 0xff][rng.usize(0..2)]),
            }
        }
        sign(&mut bytes);
        match scratch.load(&bytes) {
            // Names, shapes of empty arrays, and reserved bytes may differ.
            Ok(arrays) => {
                sound_files += 1;
                let all = contents(&small(7));
                assert!(arrays.iter().map(|(_, b)| b).eq(all.iter().map(|(_, b)| b)));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(sound_files < 4000, "{sound_files} of 5000 were sound");
}
