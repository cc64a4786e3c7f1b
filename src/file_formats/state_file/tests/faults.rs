//! Every call of the file system fails, once, every second time and always; and a saving program is
//! killed. The old state must be there, or the new one.

use std::fs;

use super::{Arrays, Folder, StateFailure, contents, failure, large, load};
use super::{load_with, save, save_with, small};
use crate::file_formats::replace::FileOptions;
use lapidary_core::Error;
use lapidary_core::sim::{FileFault, FileFaultKind, FileFaults, FileSite, Repeat};

const SITES: [FileSite; 6] = [
    FileSite::AnyCall,
    FileSite::Create,
    FileSite::Write,
    FileSite::Sync,
    FileSite::Rename,
    FileSite::SyncFolder,
];
const KINDS: [FileFaultKind; 6] = [
    FileFaultKind::DiskFull,
    FileFaultKind::Io,
    FileFaultKind::Interrupted,
    FileFaultKind::Short,
    FileFaultKind::Torn,
    FileFaultKind::Flip,
];

fn options(fault: FileFault) -> (FileOptions, FileFaults) {
    let faults = FileFaults::new(3);
    faults.arm(fault);
    let options = FileOptions {
        faults: faults.clone(),
    };
    (options, faults)
}

/// Saves over an old file; `false` if the fault met no call.
fn run_save(fault: FileFault, old: &Arrays, new: &Arrays) -> bool {
    let folder = Folder::new();
    save(&folder.file(), old).unwrap();
    let (options, faults) = options(fault);
    let saved = save_with(&folder.file(), new, &options);
    assert_eq!(folder.names().len(), 1, "{fault:?}: nothing is left behind");
    // A disk that writes wrong bytes without an error shows only at the next load.
    let lies = matches!(fault.kind, FileFaultKind::Torn | FileFaultKind::Flip);
    let found = load(&folder.file());
    match (saved, found) {
        (Ok(()), Ok(found)) => assert!(found == contents(new), "{fault:?}"),
        (Ok(()), Err(Error::State { .. })) => assert!(lies, "{fault:?}"),
        (Err(error @ Error::State { .. }), Ok(found)) => {
            let is_in_place = error.to_string().contains("the new file is in place");
            let expected = if is_in_place { new } else { old };
            assert!(found == contents(expected), "{fault:?}");
            assert!(!is_in_place || faults.struck() > 0);
        }
        (saved, found) => panic!("{fault:?}: {saved:?}, {:?}", found.map(|_| ())),
    }
    save(&folder.file(), new).unwrap();
    assert!(
        load(&folder.file()).unwrap() == contents(new),
        "all is well again"
    );
    faults.struck() > 0
}

#[test]
fn every_call_may_fail_while_a_state_is_saved() {
    let mut runs = 0;
    for (old, new) in [(small(1), small(2)), (small(3), large(4))] {
        for site in SITES {
            for repeat in [Repeat::Once, Repeat::EverySecond, Repeat::ForEver] {
                for kind in KINDS {
                    let fault = |nth| FileFault {
                        site,
                        nth,
                        repeat,
                        kind,
                    };
                    let struck = (1..).take_while(|&nth| run_save(fault(nth), &old, &new));
                    let struck = struck.count();
                    assert!(struck > 0, "{:?} never struck", fault(1));
                    runs += struck;
                }
            }
        }
    }
    println!("{runs} runs");
}

#[test]
fn every_call_may_fail_while_a_state_is_loaded() {
    let folder = Folder::new();
    let arrays = large(5);
    save(&folder.file(), &arrays).unwrap();
    for site in [FileSite::AnyCall, FileSite::Open, FileSite::Read] {
        for repeat in [Repeat::Once, Repeat::EverySecond, Repeat::ForEver] {
            for kind in KINDS {
                let run = |nth: &u64| {
                    let (nth, fault) = (*nth, (site, repeat, kind));
                    let (options, faults) = options(FileFault {
                        site,
                        nth,
                        repeat,
                        kind,
                    });
                    match load_with(&folder.file(), &options) {
                        Ok(found) => assert!(found == contents(&arrays), "{fault:?}"),
                        Err(error) => assert!(matches!(error, Error::State { .. }), "{error}"),
                    }
                    faults.struck() > 0
                };
                assert!((1..).take_while(run).count() > 0);
            }
        }
    }
}

#[test]
fn an_error_says_what_failed() {
    let check = |site, kind, expected| {
        let folder = Folder::new();
        let (options, _) = options(FileFault {
            site,
            nth: 1,
            repeat: Repeat::Once,
            kind,
        });
        let saved = save_with(&folder.file(), &small(1), &options);
        assert_eq!(failure(saved), expected);
    };
    for site in [
        FileSite::Create,
        FileSite::Write,
        FileSite::Sync,
        FileSite::Rename,
    ] {
        check(site, FileFaultKind::DiskFull, StateFailure::DiskFull);
        check(site, FileFaultKind::Io, StateFailure::Io);
    }
    let folder = Folder::new();
    assert_eq!(failure(load(&folder.file())), StateFailure::NotFound);
    assert_eq!(failure(load(&folder.0)), StateFailure::Io);
}

#[cfg(unix)]
#[test]
#[ignore = "the other test runs it, in a process of its own"]
fn a_child_that_saves_until_it_is_killed() {
    lapidary_testing::killed::work_until_killed(|folder, round| {
        save(&folder.join("a.state"), &large(round as u8)).unwrap();
    });
}

#[cfg(unix)]
#[test]
fn a_killed_process_leaves_a_whole_state() {
    let folder = Folder::new();
    save(&folder.file(), &large(0)).unwrap();
    let seed = std::env::var("LAPIDARY_SEED").ok();
    let seed = seed.map_or_else(super::random, |seed| seed.parse().unwrap());
    println!("LAPIDARY_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let child = "a_child_that_saves_until_it_is_killed";
    let soon = std::time::Duration::from_millis(30);
    let mut leftovers = 0;
    lapidary_testing::killed::kill(100, child, &folder.0, soon, &mut random, || {
        let found = load(&folder.file()).unwrap();
        let value = found[0].1[0];
        assert!(found == contents(&large(value)));
        let before = leftovers;
        for name in folder.names() {
            if name != folder.file() {
                leftovers += 1;
                fs::remove_file(name).unwrap();
            }
        }
        value > 0 || leftovers > before
    });
    println!("{leftovers} of 100 left an unfinished file");
    assert!(leftovers > 0, "none was killed while it saved");
}
