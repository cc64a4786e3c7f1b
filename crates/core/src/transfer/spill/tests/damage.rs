//! The file changes under the store. The store finds every change, and other blocks are not
//! affected.

use super::super::frame::HEADER_BYTES;
use super::super::{SpillBlock, SpillStore};
use super::{Folder, Seed, noise, read, read_part, spill};
use crate::error::Error;
use crate::units::MIB;

fn peek(block: &SpillBlock, offset_bytes: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = block.file.as_ref().unwrap();
    assert!(file.read(&mut bytes, offset_bytes).unwrap());
    bytes
}

fn poke(block: &SpillBlock, offset_bytes: u64, bytes: &[u8]) {
    let file = block.file.as_ref().unwrap();
    file.write(bytes, offset_bytes).unwrap();
}

fn flip(block: &SpillBlock, offset_bytes: u64, bit: u32) {
    let byte = peek(block, offset_bytes, 1)[0];
    poke(block, offset_bytes, &[byte ^ 1 << bit]);
}

/// A frame in the file: its offset, and its bytes with the header.
fn frame_of(block: &SpillBlock, index: usize) -> (u64, Vec<u8>) {
    let frame = &block.frames[index];
    let len = HEADER_BYTES as usize + frame.header.stored_bytes as usize;
    let at = frame.piece.offset_bytes;
    (at, peek(block, at, len))
}

#[track_caller]
fn assert_corrupt(block: &SpillBlock, expected: &str) {
    match read(block) {
        Err(Error::SpillCorrupt {
            block_bytes,
            reason,
            ..
        }) => {
            assert_eq!(block_bytes, block.len_bytes);
            assert!(reason.contains(expected), "{reason}, not {expected}");
        }
        other => panic!("damage was not found: {:?}", other.map(|bytes| bytes.len())),
    }
}

fn three(store: &SpillStore) -> [SpillBlock; 3] {
    [1, 2, 3].map(|share| spill(store, share, &[share as u8; 6000]).unwrap())
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let folder = Folder::new();
    let [before, block, after] = three(&folder.store());
    let at = block.frames[0].piece.offset_bytes;
    for byte in 0..HEADER_BYTES {
        for bit in 0..8 {
            flip(&block, at + byte, bit);
            assert_corrupt(&block, "");
            flip(&block, at + byte, bit);
        }
    }
    assert_eq!(read(&block).unwrap(), [2; 6000]);
    assert_eq!(read(&before).unwrap(), [1; 6000]);
    assert_eq!(read(&after).unwrap(), [3; 6000]);
}

#[test]
fn every_flipped_bit_of_the_bytes_is_found() {
    let folder = Folder::new();
    let seed = Seed::new();
    let mut rng = seed.rng();
    let store = folder.store();
    let bytes = noise(&mut rng, 3 << 19);
    let large = spill(&store, 1, &bytes).unwrap();
    let small = spill(&store, 2, &bytes[..70_000]).unwrap();
    for round in 0..10_000 {
        let block = if round % 10 == 0 { &large } else { &small };
        let frame = rng.choice(&block.frames).unwrap();
        let byte = rng.u64(0..u64::from(frame.header.stored_bytes));
        let at = frame.piece.offset_bytes + HEADER_BYTES + byte;
        let bit = rng.u32(0..8);
        flip(block, at, bit);
        // A damaged frame is refused as a whole, so any of its bytes may be asked for.
        let wanted = rng.u64(frame.header.start_bytes..frame.header.end_bytes());
        let (got, result) = read_part(block, wanted, 1);
        assert!(matches!(result, Err(Error::SpillCorrupt { .. })));
        assert!(got.is_empty());
        flip(block, at, bit);
    }
    assert!(read(&large).unwrap() == bytes);
    assert!(read(&small).unwrap() == bytes[..70_000]);
}

#[test]
fn bytes_before_the_damage_are_right() {
    let folder = Folder::new();
    let seed = Seed::new();
    let bytes = noise(&mut seed.rng(), 5 << 19);
    let block = spill(&folder.store(), 1, &bytes).unwrap();
    flip(&block, block.frames[2].piece.offset_bytes + 100, 3);
    let (got, result) = read_part(&block, 0, bytes.len() as u64);
    assert!(matches!(result, Err(Error::SpillCorrupt { .. })));
    let start = block.frames[2].header.start_bytes as usize;
    assert!(got == bytes[..start]);
}

#[test]
fn garbage_and_zeros_are_found() {
    let folder = Folder::new();
    let seed = Seed::new();
    let mut rng = seed.rng();
    let [before, block, after] = three(&folder.store());
    let (at, sound) = frame_of(&block, 0);
    for _ in 0..200 {
        let from = rng.usize(0..sound.len());
        let to = rng.usize(from + 1..=sound.len());
        let junk = match rng.bool() {
            true => noise(&mut rng, to - from),
            false => vec![0; to - from],
        };
        if junk == sound[from..to] {
            continue;
        }
        poke(&block, at + from as u64, &junk);
        assert_corrupt(&block, "");
        poke(&block, at, &sound);
    }
    assert_eq!(read(&block).unwrap(), [2; 6000]);
    assert_eq!(read(&before).unwrap(), [1; 6000]);
    assert_eq!(read(&after).unwrap(), [3; 6000]);
}

#[test]
fn another_shares_frame_is_not_handed_out() {
    let folder = Folder::new();
    let [mine, theirs, other] = three(&folder.store());
    let (my_place, my_frame) = frame_of(&mine, 0);
    let (_, their_frame) = frame_of(&theirs, 0);
    poke(&mine, my_place, &their_frame);
    assert_corrupt(&mine, "another share's");
    poke(&mine, my_place, &my_frame);
    assert_eq!(read(&mine).unwrap(), [1; 6000]);
    assert_eq!(read(&theirs).unwrap(), [2; 6000]);
    assert_eq!(read(&other).unwrap(), [3; 6000]);
}

#[test]
fn what_lay_in_the_same_place_before_is_not_handed_out() {
    let folder = Folder::new();
    let store = folder.store();
    let _first = spill(&store, 1, &[9; 100]).unwrap();
    let old = spill(&store, 1, &[1; 6000]).unwrap();
    let (place, frame) = frame_of(&old, 0);
    drop(old);
    let new = spill(&store, 1, &[2; 6000]).unwrap();
    assert_eq!(new.frames[0].piece.offset_bytes, place, "room is reused");
    poke(&new, place, &frame);
    assert_corrupt(&new, "another block's");
    // Half of the frame is old and half of it new, as a torn write leaves it.
    let (_, frame_of_new) = {
        let again = spill(&store, 1, &[2; 6000]).unwrap();
        frame_of(&again, 0)
    };
    poke(&new, place, &frame_of_new[..3000]);
    assert_corrupt(&new, "another block's");
}

#[test]
fn frames_that_change_places_are_found() {
    let folder = Folder::new();
    let block = spill(&folder.store(), 1, &[7; 5 << 19]).unwrap();
    let (first_place, first) = frame_of(&block, 0);
    let (second_place, second) = frame_of(&block, 1);
    assert_eq!(first.len(), second.len());
    poke(&block, first_place, &second);
    poke(&block, second_place, &first);
    assert_corrupt(&block, "not the one that was written");
}

#[test]
fn a_file_that_was_cut_off_loses_what_was_beyond() {
    for cut in [0, 1, 63, 64, 5000, 8191] {
        let folder = Folder::new();
        let store = folder.store();
        let [first, second, third] = three(&store);
        let file = second.file.clone().unwrap();
        let at = second.frames[0].piece.offset_bytes;
        assert!(first.frames[0].piece.offset_bytes < at);
        assert!(at < third.frames[0].piece.offset_bytes);
        file.set_len(at + cut).unwrap();
        assert_eq!(read(&first).unwrap(), [1; 6000]);
        match cut {
            8191 => assert_eq!(read(&second).unwrap(), [2; 6000]),
            _ => assert_corrupt(&second, "the file ends"),
        }
        assert_corrupt(&third, "the file ends");
        let fourth = spill(&store, 4, &[4; 3 << 19]).unwrap();
        assert_eq!(read(&fourth).unwrap(), [4; 3 << 19]);
    }
}

#[test]
fn a_file_that_failed_is_given_up_when_nobody_needs_it() {
    let folder = Folder::new();
    let store = folder.store();
    let [first, second, third] = three(&store);
    flip(&first, first.frames[0].piece.offset_bytes, 0);
    assert_corrupt(&first, "does not begin");
    drop((first, second));
    let fourth = spill(&store, 4, &[4; 100]).unwrap();
    let same = |a: &SpillBlock, b: &SpillBlock| {
        let [a, b] = [a, b].map(|block| block.file.clone().unwrap());
        std::sync::Arc::ptr_eq(&a, &b)
    };
    assert!(same(&third, &fourth));
    let old = third.file.clone().unwrap();
    drop((third, fourth));
    assert_eq!((store.used_bytes(), store.file_bytes()), (0, 0));
    let fifth = spill(&store, 5, &[5; 100]).unwrap();
    assert!(!std::sync::Arc::ptr_eq(&old, fifth.file.as_ref().unwrap()));
    assert!(store.file_bytes() <= 4 * MIB);
    assert_eq!(read(&fifth).unwrap(), [5; 100]);
}
