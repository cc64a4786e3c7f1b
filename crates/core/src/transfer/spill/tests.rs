//! The spill store beside a plain model; its quota, its room and its folder.

mod crash;
mod damage;
mod faults;
mod folder;
mod speed;

use std::fs;
use std::path::{Path, PathBuf};

use super::file::random;
use super::{SpillBlock, SpillOptions, SpillStore};
use crate::error::{Error, Result, SpillError, SpillFailure};
use crate::units::{KIB, MIB};

impl SpillStore {
    /// The length of the file, which the quota limits.
    fn file_bytes(&self) -> u64 {
        self.levels().1.now
    }
}

impl SpillBlock {
    /// The bytes that the block takes in the file.
    fn stored_bytes(&self) -> u64 {
        self.frames.iter().map(|frame| frame.piece.size_bytes).sum()
    }
}

/// A folder of one test, removed after it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("lapidary-test-{:016x}", random()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn options(&self) -> SpillOptions {
        SpillOptions {
            folder: Some(self.0.clone()),
            ..SpillOptions::default()
        }
    }

    fn store(&self) -> SpillStore {
        SpillStore::new(self.options()).unwrap()
    }

    fn store_of(&self, quota_bytes: u64) -> SpillStore {
        let options = self.options();
        SpillStore::new(SpillOptions {
            quota_bytes,
            ..options
        })
        .unwrap()
    }

    fn names(&self) -> Vec<PathBuf> {
        names(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Prints how to repeat a failed run.
struct Seed(u64);

impl Seed {
    fn new() -> Seed {
        let given = std::env::var("LAPIDARY_SEED").ok();
        Seed(given.map_or_else(random, |seed| seed.parse().unwrap()))
    }

    fn rng(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.0)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with LAPIDARY_SEED={}", self.0);
        }
    }
}

fn noise(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

fn spill(store: &SpillStore, share: u64, bytes: &[u8]) -> Result<SpillBlock> {
    let mut writer = store.begin(bytes.len() as u64, share)?;
    writer.write(bytes)?;
    writer.finish()
}

/// The bytes that were handed out, and how the reading ended.
fn read_part(block: &SpillBlock, offset: u64, len: u64) -> (Vec<u8>, Result<()>) {
    let mut bytes = Vec::new();
    let result = block.read(offset, len, &mut |piece| {
        assert!(!piece.is_empty() && piece.len() < MIB as usize);
        bytes.extend_from_slice(piece);
        Ok(())
    });
    (bytes, result)
}

fn read(block: &SpillBlock) -> Result<Vec<u8>> {
    let (bytes, result) = read_part(block, 0, block.len_bytes);
    result.map(|()| bytes)
}

#[track_caller]
fn failure<T: std::fmt::Debug>(result: Result<T>) -> SpillError {
    match result {
        Err(Error::Spill(error)) => (*error).clone(),
        other => panic!("{other:?} where spilling should have failed"),
    }
}

fn size(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(0..20) {
        0 => 0,
        1..8 => rng.usize(1..200),
        8..16 => rng.usize(1..64 << 10),
        16..19 => rng.usize(1..600 << 10),
        _ => rng.usize(1..3 << 20),
    }
}

/// Random blocks are written and dropped. Each is read in random parts, which must equal the
/// written bytes. Returns the greatest length of the file, and the most bytes that lived in it.
fn check_against_model(store: &SpillStore, steps: u32, most_bytes: usize, seed: u64) -> (u64, u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut live: Vec<(SpillBlock, Vec<u8>)> = Vec::new();
    let (mut longest, mut most) = (0, 0);
    for _ in 0..steps {
        let live_bytes: usize = live.iter().map(|(_, bytes)| bytes.len()).sum();
        if !live.is_empty() && (live_bytes > most_bytes || rng.u32(0..3) == 0) {
            live.swap_remove(rng.usize(0..live.len()));
        } else {
            let len = size(&mut rng);
            let mut bytes = noise(&mut rng, len);
            if rng.bool() {
                bytes.fill(rng.u8(..));
            }
            let mut writer = store.begin(bytes.len() as u64, rng.u64(..)).unwrap();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rng.usize(1..=rest.len()));
                writer.write(now).unwrap();
                rest = later;
            }
            live.push((writer.finish().unwrap(), bytes));
        }
        if let Some((block, bytes)) = rng.choice(&live) {
            let from = rng.usize(0..=bytes.len());
            let to = rng.usize(from..=bytes.len());
            let (got, result) = read_part(block, from as u64, (to - from) as u64);
            result.unwrap();
            assert!(got == bytes[from..to], "{from}..{to} of {}", bytes.len());
        }
        let used: u64 = live.iter().map(|(block, _)| block.stored_bytes()).sum();
        assert_eq!(store.used_bytes(), used);
        assert!(store.file_bytes() >= used);
        longest = longest.max(store.file_bytes());
        most = most.max(used);
    }
    for (block, bytes) in &live {
        assert!(read(block).unwrap() == *bytes);
    }
    drop(live);
    assert_eq!((store.used_bytes(), store.file_bytes()), (0, 0));
    (longest, most)
}

#[test]
fn what_is_read_is_what_was_written() {
    let folder = Folder::new();
    let seed = Seed::new();
    check_against_model(&folder.store(), 1500, 24 << 20, seed.0);
}

#[cfg(feature = "lz4")]
#[test]
fn what_is_compressed_is_read_as_it_was_and_takes_less() {
    let folder = Folder::new();
    let seed = Seed::new();
    let store = SpillStore::new(SpillOptions {
        compress: true,
        ..folder.options()
    })
    .unwrap();
    check_against_model(&store, 800, 24 << 20, seed.0);
    let zeros = spill(&store, 1, &vec![0; 4 << 20]).unwrap();
    assert!(zeros.stored_bytes() <= 64 * KIB, "{zeros:?}");
    let noise = noise(&mut seed.rng(), 1 << 20);
    let noise = spill(&store, 1, &noise).unwrap();
    assert!(noise.stored_bytes() <= MIB + 8 * KIB, "{noise:?}");
}

#[cfg(not(feature = "lz4"))]
#[test]
fn compressing_without_the_feature_is_refused() {
    let options = SpillOptions {
        compress: true,
        ..SpillOptions::default()
    };
    assert!(matches!(
        SpillStore::new(options),
        Err(Error::Option { .. })
    ));
}

#[test]
fn threads_share_a_store() {
    let folder = Folder::new();
    let seed = Seed::new();
    let store = folder.store();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = store.clone();
            let seed = seed.0 ^ thread;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut live = Vec::new();
                for _ in 0..120 {
                    let len = size(&mut rng);
                    let bytes = noise(&mut rng, len);
                    live.push((spill(&store, thread, &bytes).unwrap(), bytes));
                    let (block, bytes) = rng.choice(&live).unwrap();
                    assert!(read(block).unwrap() == *bytes);
                    if rng.bool() {
                        live.swap_remove(rng.usize(0..live.len()));
                    }
                }
            });
        }
    });
    assert_eq!((store.used_bytes(), store.file_bytes()), (0, 0));
}

#[test]
fn in_a_steady_state_the_file_stays_as_long_as_what_lives_in_it() {
    let folder = Folder::new();
    let seed = Seed::new();
    let (longest, most) = check_against_model(&folder.store(), 1500, 8 << 20, seed.0);
    assert!(longest <= most + most / 4 + 4 * MIB, "{longest} for {most}");
}

#[test]
fn the_quota_limits_the_file() {
    for quota_bytes in [4 * KIB, 100 * KIB, MIB, 5 * MIB + 12 * KIB + 5] {
        let folder = Folder::new();
        let store = folder.store_of(quota_bytes);
        let mut blocks = Vec::new();
        let full = loop {
            match spill(&store, 1, &[7; 3000]) {
                Ok(block) => blocks.push(block),
                Err(error) => break failure::<()>(Err(error)),
            }
            assert!(store.file_bytes() <= quota_bytes);
        };
        assert_eq!(full.failure, SpillFailure::QuotaFull);
        assert_eq!(
            (full.requested_bytes, full.quota_bytes),
            (3000, quota_bytes)
        );
        assert_eq!(blocks.len() as u64, quota_bytes / (4 * KIB));
        blocks.pop();
        blocks.push(spill(&store, 1, &[8; 4000]).unwrap());
        assert_eq!(read(blocks.last().unwrap()).unwrap(), [8; 4000]);
    }
}

#[test]
fn without_a_quota_to_speak_of_no_file_is_made() {
    let folder = Folder::new();
    let base = folder.0.join("made-when-needed");
    let options = SpillOptions {
        folder: Some(base.clone()),
        quota_bytes: 0,
        ..SpillOptions::default()
    };
    let store = SpillStore::new(options).unwrap();
    let refused = failure(spill(&store, 1, &[1]));
    assert_eq!(refused.failure, SpillFailure::QuotaFull);
    let empty = spill(&store, 1, &[]).unwrap();
    assert!(read(&empty).unwrap().is_empty());
    assert!(!base.exists());
    assert_eq!(
        failure(store.begin(u64::MAX, 1)).failure,
        SpillFailure::QuotaFull
    );
}

#[test]
fn a_block_that_no_file_system_holds_is_refused() {
    let folder = Folder::new();
    let store = folder.store();
    for len_bytes in [u64::MAX, u64::MAX - 4096, 1 << 63] {
        failure(store.begin(len_bytes, 1));
    }
    assert_eq!((store.used_bytes(), store.file_bytes()), (0, 0));
    assert_eq!(read(&spill(&store, 1, &[1, 2]).unwrap()).unwrap(), [1, 2]);
}

#[test]
fn any_holes_will_do() {
    let folder = Folder::new();
    let store = folder.store_of(2 * MIB);
    let mut blocks: Vec<_> = (0..128u8)
        .map(|value| spill(&store, 1, &[value; 16_000]).unwrap())
        .collect();
    assert_eq!(store.used_bytes(), 2 * MIB);
    let mut odd = false;
    blocks.retain(|_| {
        odd = !odd;
        odd
    });
    let seed = Seed::new();
    // 64 holes of 16 KiB, each with a header of 64 bytes.
    let bytes = noise(&mut seed.rng(), 64 * (16 * 1024 - 64));
    let spread = spill(&store, 2, &bytes).unwrap();
    assert_eq!(store.used_bytes(), 2 * MIB);
    assert!(read(&spread).unwrap() == bytes);
    for (index, block) in blocks.iter().enumerate() {
        assert_eq!(read(block).unwrap(), [2 * index as u8; 16_000]);
    }
}

#[test]
fn a_lower_quota_lets_blocks_stay_and_takes_no_more() {
    let folder = Folder::new();
    let store = folder.store();
    let first = spill(&store, 1, &[1; 3 << 20]).unwrap();
    let second = spill(&store, 1, &[2; 3 << 20]).unwrap();
    store.set_quota(4 * MIB);
    assert!(store.file_bytes() > store.0.state.lock().room.quota_bytes);
    assert_eq!(
        failure(spill(&store, 1, &[3; 1 << 20])).failure,
        SpillFailure::QuotaFull
    );
    assert_eq!(read(&first).unwrap(), [1; 3 << 20]);
    drop(second);
    assert!(store.file_bytes() <= 4 * MIB);
    spill(&store, 1, &[3; 512 << 10]).unwrap();
    store.set_quota(u64::MAX);
    spill(&store, 1, &[3; 8 << 20]).unwrap();
}

#[test]
fn a_refusal_leaves_everything_as_it_was() {
    let folder = Folder::new();
    let store = folder.store_of(5 * MIB);
    let first = spill(&store, 1, &[1; 6000]).unwrap();
    let before = (store.used_bytes(), store.file_bytes());
    // Some frames fit into the hole and into the rest of the quota, and then the next does not.
    let most_bytes = 5 * MIB - store.used_bytes();
    let refused = failure(store.begin(most_bytes, 1));
    assert_eq!(refused.failure, SpillFailure::QuotaFull);
    assert_eq!(refused.used_bytes, before.0);
    assert_eq!((store.used_bytes(), store.file_bytes()), before);
    // One page is left, and the header takes a part of it.
    store.set_quota(before.0 + 4 * KIB);
    failure(store.begin(4 * KIB - 63, 1));
    assert_eq!(store.used_bytes(), before.0);
    let second = spill(&store, 1, &[2; 4096 - 64]).unwrap();
    assert_eq!(read(&first).unwrap(), [1; 6000]);
    assert_eq!(read(&second).unwrap(), [2; 4096 - 64]);
}

#[test]
fn an_unfinished_block_gives_its_room_back() {
    let folder = Folder::new();
    let store = folder.store();
    let mut writer = store.begin(2 * MIB, 1).unwrap();
    writer.write(&[1; 1 << 20]).unwrap();
    assert!(store.used_bytes() >= 2 * MIB);
    drop(writer);
    assert_eq!((store.used_bytes(), store.file_bytes()), (0, 0));
}

#[test]
fn the_announced_length_is_the_length() {
    let folder = Folder::new();
    let store = folder.store();
    let short = store.begin(10, 1).unwrap();
    assert!(failure(short.finish()).cause.contains("10 bytes"));
    let mut long = store.begin(10, 1).unwrap();
    long.write(&[0; 6]).unwrap();
    failure(long.write(&[0; 5]));
    // A caller that ignores the error does not get a block with a gap.
    failure(long.write(&[0; 4]));
    failure(long.finish());
    let block = spill(&store, 1, &[5; 10]).unwrap();
    for (offset, len) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 2)] {
        let (bytes, result) = read_part(&block, offset, len);
        failure(result);
        assert!(bytes.is_empty());
    }
}

#[test]
fn whoever_takes_the_bytes_may_stop() {
    let folder = Folder::new();
    let block = spill(&folder.store(), 1, &[5; 3 << 20]).unwrap();
    let mut pieces = 0;
    let result = block.read(0, 3 * MIB, &mut |_| {
        pieces += 1;
        Err(Error::WouldBlock { what: "the test" })
    });
    assert!(matches!(result, Err(Error::WouldBlock { .. })));
    assert_eq!(pieces, 1);
}

#[test]
fn a_block_outlives_its_store() {
    let folder = Folder::new();
    let block = spill(&folder.store(), 1, &[5; 100]).unwrap();
    assert_eq!(read(&block).unwrap(), [5; 100]);
    drop(block);
    assert!(folder.names().is_empty());
}
