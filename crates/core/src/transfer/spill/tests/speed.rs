//! The speed of the store beside that of a plain file, in one run. It prints and asserts no time.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Instant;

use super::{Folder, SpillOptions, SpillStore, noise};

const BYTES: usize = 256 << 20;

#[test]
#[ignore = "a measurement: run it alone, in a release build, with --nocapture"]
fn the_store_beside_a_plain_file() {
    let folder = Folder::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let bytes = noise(&mut rng, BYTES);
    let mut staging = vec![0u8; BYTES];
    let rate = |begin: Instant| BYTES as f64 / 1e9 / begin.elapsed().as_secs_f64();
    for round in 0..5 {
        let begin = Instant::now();
        let path = folder.0.join("plain");
        let mut options = OpenOptions::new();
        let mut plain = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        for piece in bytes.chunks(1 << 20) {
            plain.write_all(piece).unwrap();
        }
        let plain_write = rate(begin);
        plain.seek(SeekFrom::Start(0)).unwrap();
        let begin = Instant::now();
        for piece in staging.chunks_mut(1 << 20) {
            plain.read_exact(piece).unwrap();
        }
        let plain_read = rate(begin);
        let begin = Instant::now();
        drop(plain);
        std::fs::remove_file(&path).unwrap();
        let plain_drop = begin.elapsed();

        for compress in [false, cfg!(feature = "lz4")] {
            let options = SpillOptions {
                compress,
                ..folder.options()
            };
            let store = SpillStore::new(options).unwrap();
            let begin = Instant::now();
            let mut writer = store.begin(BYTES as u64, 1).unwrap();
            for piece in bytes.chunks(1 << 20) {
                writer.write(piece).unwrap();
            }
            let block = writer.finish().unwrap();
            let write = rate(begin);
            let begin = Instant::now();
            let mut filled = 0;
            let mut sink = |piece: &[u8]| {
                staging[filled..filled + piece.len()].copy_from_slice(piece);
                filled += piece.len();
                Ok(())
            };
            block.read(0, BYTES as u64, &mut sink).unwrap();
            let read = rate(begin);
            assert!(staging == bytes);
            let begin = Instant::now();
            drop(block);
            println!(
                "round {round} compress {compress}: write {write:.2} GB/s (plain {plain_write:.2}), \
                 read {read:.2} GB/s (plain {plain_read:.2}), drop {:.1?} (plain {plain_drop:.1?})",
                begin.elapsed()
            );
        }
    }
}
