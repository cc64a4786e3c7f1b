//! The path of a state file: permissions, what is not replaced, what is removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::file_formats::unfinished::sweep;

use super::{Folder, StateFailure, contents, failure, load, save, small};

#[test]
fn what_is_no_file_is_neither_replaced_nor_read() {
    let folder = Folder::new();
    let inner = folder.0.join("inner");
    fs::create_dir(&inner).unwrap();
    for path in [&inner, Path::new("/"), Path::new(".."), Path::new("")] {
        assert!(save(path, &small(1)).is_err(), "{path:?}");
        assert!(load(path).is_err(), "{path:?}");
    }
    let missing = folder.0.join("missing").join("a.state");
    assert_eq!(failure(save(&missing, &small(1))), StateFailure::NotFound);
    assert_eq!(folder.names(), [inner]);
    #[cfg(unix)]
    {
        let null = Path::new("/dev/null");
        assert_eq!(failure(save(null, &small(1))), StateFailure::Io);
        assert_eq!(failure(load(null)), StateFailure::Io);
        assert_eq!(failure(load(Path::new("/dev/zero"))), StateFailure::Io);
        assert!(!null.metadata().unwrap().is_file());
        assert!(save(Path::new("nul\0byte"), &small(1)).is_err());
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_it_and_links_are_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new();
    save(&folder.file(), &small(1)).unwrap();
    let mode = fs::metadata(folder.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);

    let link = folder.0.join("link");
    symlink(folder.file(), &link).unwrap();
    save(&link, &small(2)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(load(&folder.file()).unwrap(), contents(&small(2)));

    let dangling = folder.0.join("dangling");
    symlink(folder.0.join("nowhere"), &dangling).unwrap();
    assert_eq!(failure(save(&dangling, &small(3))), StateFailure::NotFound);
}

#[test]
fn unfinished_files_go_once_nobody_can_be_writing_them() {
    let folder = Folder::new();
    let unfinished = folder.0.join(".lapidary-state-0123.tmp");
    let others = [
        folder.0.join(".lapidary-state-0123"),
        folder.0.join("a.tmp"),
    ];
    fs::write(&unfinished, b"half").unwrap();
    others
        .iter()
        .for_each(|other| fs::write(other, b"whole").unwrap());
    let now = SystemTime::now();
    for (later_s, is_there) in [(0, true), (3000, true), (4000, false)] {
        sweep(&folder.0, now + Duration::from_secs(later_s));
        assert_eq!(unfinished.exists(), is_there, "{later_s}");
    }
    // After the clock was set back, files seem to come from the future.
    fs::write(&unfinished, b"half").unwrap();
    sweep(&folder.0, now - Duration::from_secs(1 << 20));
    assert!(unfinished.exists());
    assert!(others.iter().all(|other| other.exists()));
}
