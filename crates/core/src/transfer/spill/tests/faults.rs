//! Every call of the file system fails: once, every second time, and always. The block of the call
//! gets an error, and all other blocks stay as they are.

use super::super::{SpillBlock, SpillOptions};
use super::{Folder, SpillStore, read, read_part, spill};
use crate::driver::sim::Repeat;
use crate::driver::sim::{FileFault, FileFaultKind, FileFaults, FileSite};
use crate::error::{Error, SpillFailure};
use crate::units::MIB;

const SITES: [FileSite; 5] = [
    FileSite::AnyCall,
    FileSite::Create,
    FileSite::Write,
    FileSite::Read,
    FileSite::SetLen,
];
const KINDS: [FileFaultKind; 6] = [
    FileFaultKind::DiskFull,
    FileFaultKind::Io,
    FileFaultKind::Interrupted,
    FileFaultKind::Short,
    FileFaultKind::Torn,
    FileFaultKind::Flip,
];

/// The live blocks, each with the byte that fills it.
type Live = Vec<(SpillBlock, u8)>;

/// Writes, reads and drops blocks while calls fail. Errors are allowed, wrong bytes are not.
fn work(store: &SpillStore, live: &mut Live) {
    for (round, len) in [10, 6000, 9 << 17, 70_000, 1].into_iter().enumerate() {
        let value = round as u8 + 1;
        match spill(store, u64::from(value), &vec![value; len]) {
            Ok(block) => live.push((block, value)),
            Err(error) => assert!(matches!(error, Error::Spill(_)), "{error}"),
        }
        if round == 3 && !live.is_empty() {
            live.remove(0);
        }
        if let Some((block, value)) = live.last() {
            check(block, *value);
        }
    }
    for (block, value) in live {
        check(block, *value);
    }
}

fn check(block: &SpillBlock, value: u8) {
    let (bytes, result) = read_part(block, 0, block.len_bytes);
    assert!(bytes == vec![value; bytes.len()]);
    match result {
        Ok(()) => assert_eq!(bytes.len() as u64, block.len_bytes),
        Err(Error::Spill(_) | Error::SpillCorrupt { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// One run. `false` if the fault struck no call.
fn run(fault: FileFault) -> bool {
    let folder = Folder::new();
    let faults = FileFaults::new(3);
    let options = SpillOptions {
        faults: faults.clone(),
        ..folder.options()
    };
    let store = SpillStore::new(options).unwrap();
    let mut live = Vec::new();
    faults.arm(fault);
    work(&store, &mut live);
    faults.disarm();
    let struck = faults.struck() > 0;

    let lies = matches!(fault.kind, FileFaultKind::Torn | FileFaultKind::Flip);
    for (block, value) in &live {
        match read(block) {
            Ok(bytes) => assert!(bytes == vec![*value; bytes.len()]),
            Err(Error::SpillCorrupt { .. }) => assert!(lies, "{fault:?}"),
            Err(other) => panic!("{fault:?}: {other}"),
        }
    }
    if let Some((block, _)) = live.first() {
        let file = block.file.as_ref().unwrap();
        assert_eq!(file.metadata().unwrap().len(), store.file_bytes());
    }
    let mut after = Vec::new();
    work(&store, &mut after);
    assert_eq!(after.len(), 4, "{fault:?}: all is well again");
    drop((live, after));
    assert_eq!(
        (store.used_bytes(), store.file_bytes()),
        (0, 0),
        "{fault:?}"
    );
    drop(store);
    assert!(folder.names().is_empty(), "{fault:?}");
    struck
}

#[test]
fn every_call_of_the_file_system_may_fail() {
    let mut runs = 0;
    for site in SITES {
        for repeat in [Repeat::Once, Repeat::EverySecond, Repeat::ForEver] {
            for kind in KINDS {
                let fault = |nth| FileFault {
                    site,
                    nth,
                    repeat,
                    kind,
                };
                let struck = (1..).take_while(|nth| run(fault(*nth))).count();
                assert!(struck > 0, "{:?} never struck", fault(1));
                runs += struck;
            }
        }
    }
    println!("{runs} runs");
}

#[test]
fn calls_that_fail_by_chance_do_no_more_harm() {
    for seed in 0..40 {
        for kind in KINDS {
            let folder = Folder::new();
            let faults = FileFaults::new(seed);
            let options = SpillOptions {
                faults: faults.clone(),
                ..folder.options()
            };
            let store = SpillStore::new(options).unwrap();
            faults.arm(FileFault {
                site: FileSite::AnyCall,
                nth: 1,
                repeat: Repeat::OneIn(6),
                kind,
            });
            let mut live = Vec::new();
            work(&store, &mut live);
            faults.disarm();
            live.clear();
            work(&store, &mut live);
            assert_eq!(live.len(), 4);
        }
    }
}

#[test]
fn a_file_that_cannot_be_cut_now_is_cut_later() {
    let folder = Folder::new();
    let options = folder.options();
    let faults = options.faults.clone();
    let store = SpillStore::new(options).unwrap();
    let first = spill(&store, 1, &[1; 100]).unwrap();
    let second = spill(&store, 1, &[2; 9 << 20]).unwrap();
    let long_bytes = store.file_bytes();
    faults.arm(FileFault {
        site: FileSite::SetLen,
        nth: 1,
        repeat: Repeat::ForEver,
        kind: FileFaultKind::Io,
    });
    drop(second);
    assert_eq!(store.file_bytes(), long_bytes);
    // The file is long enough for this block.
    let third = spill(&store, 1, &[3; 9 << 20]).unwrap();
    assert_eq!(read(&third).unwrap(), [3; 9 << 20]);
    faults.disarm();
    drop(third);
    assert!(store.file_bytes() < long_bytes);
    assert_eq!(read(&first).unwrap(), [1; 100]);
}

#[track_caller]
fn expect_one(site: FileSite, kind: FileFaultKind, repeat: Repeat, failure: Option<SpillFailure>) {
    let folder = Folder::new();
    let options = folder.options();
    options.faults.arm(FileFault {
        site,
        nth: 1,
        repeat,
        kind,
    });
    let store = SpillStore::new(options).unwrap();
    let got = match spill(&store, 1, &[1; 3 << 20]) {
        Ok(block) => read(&block).map(|bytes| assert_eq!(bytes, [1; 3 << 20])),
        Err(error) => Err(error),
    };
    match (got, failure) {
        (Ok(()), None) => {}
        (Err(Error::Spill(error)), Some(failure)) => {
            assert_eq!(error.failure, failure, "{error}");
            assert_eq!(error.requested_bytes, 3 * MIB);
        }
        (got, _) => panic!("{got:?}, expected {failure:?}"),
    }
}

#[test]
fn an_error_says_what_failed() {
    use FileFaultKind::{DiskFull, Interrupted, Io, Short};
    use Repeat::{EverySecond, ForEver, Once};
    for site in [FileSite::Create, FileSite::Write, FileSite::SetLen] {
        expect_one(site, DiskFull, Once, Some(SpillFailure::DiskFull));
    }
    expect_one(FileSite::Create, Io, Once, Some(SpillFailure::Folder));
    for site in [FileSite::Write, FileSite::Read, FileSite::SetLen] {
        expect_one(site, Io, Once, Some(SpillFailure::Io));
    }
    for site in [FileSite::Write, FileSite::Read] {
        expect_one(site, Interrupted, Once, None);
        expect_one(site, Interrupted, EverySecond, None);
        expect_one(site, Interrupted, ForEver, Some(SpillFailure::Io));
        expect_one(site, Short, Once, None);
        expect_one(site, Short, EverySecond, None);
    }
    expect_one(FileSite::Write, Short, ForEver, Some(SpillFailure::Io));
}
