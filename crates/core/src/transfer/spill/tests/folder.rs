//! The folder of the file: who may read it, files in its place, and what is left behind.

use std::fs;

#[cfg(unix)]
use super::super::file::NamedFile;
use super::super::{SpillOptions, SpillStore};
use super::{Folder, failure, read, spill};
use crate::error::SpillFailure;

#[cfg(unix)]
#[test]
fn nobody_else_may_enter_the_folder_or_open_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let mode =
        |path: &std::path::PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let named = NamedFile::create(&folder.0).unwrap();
    assert_eq!(mode(&named.folder), 0o700);
    assert_eq!(mode(&named.path), 0o600);
    assert_ne!(NamedFile::create(&folder.0).unwrap().path, named.path);

    // A folder that the store creates is as private.
    let base = folder.0.join("outer").join("inner");
    let options = SpillOptions {
        folder: Some(base.clone()),
        ..folder.options()
    };
    let store = SpillStore::new(options).unwrap();
    let block = spill(&store, 1, &[1]).unwrap();
    assert_eq!(mode(&base), 0o700);
    let open = block.file.as_ref().unwrap().metadata().unwrap();
    assert_eq!(open.permissions().mode() & 0o7777, 0o600);
}

#[cfg(unix)]
#[test]
fn the_file_has_no_name_while_it_is_used() {
    let folder = Folder::new();
    let store = folder.store();
    let block = spill(&store, 1, &[1; 5000]).unwrap();
    assert!(folder.names().is_empty());
    assert_eq!(read(&block).unwrap(), [1; 5000]);
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_until_it_can() {
    let folder = Folder::new();
    let in_the_way = folder.0.join("file");
    fs::write(&in_the_way, "not a folder").unwrap();
    let mut bases = vec![in_the_way.clone(), in_the_way.join("below")];
    if cfg!(target_os = "linux") {
        bases.push("/proc".into());
        bases.push("/proc/lapidary/spill".into());
        bases.push("/dev/null".into());
        bases.push("a\0b".into());
    }
    for base in &bases {
        let options = SpillOptions {
            folder: Some(base.clone()),
            ..folder.options()
        };
        let store = SpillStore::new(options).unwrap();
        let error = failure(spill(&store, 1, &[1; 100]));
        assert_eq!(error.failure, SpillFailure::Folder, "{error}");
        assert!(error.folder == base.display().to_string() && !error.cause.is_empty());
        assert_eq!((store.used_bytes(), store.file_bytes()), (0, 0));
        if base == &in_the_way {
            fs::remove_file(&in_the_way).unwrap();
            let block = spill(&store, 1, &[1; 100]).unwrap();
            assert_eq!(read(&block).unwrap(), [1; 100]);
            drop((block, store));
            fs::remove_dir(&in_the_way).unwrap();
            fs::write(&in_the_way, "not a folder").unwrap();
        }
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_vanishes_takes_nothing_with_it() {
    let folder = Folder::new();
    let base = folder.0.join("base");
    let options = SpillOptions {
        folder: Some(base.clone()),
        ..folder.options()
    };
    let store = SpillStore::new(options).unwrap();
    fs::create_dir(&base).unwrap();
    fs::remove_dir(&base).unwrap();
    let first = spill(&store, 1, &[1; 100]).unwrap();
    fs::remove_dir_all(&base).unwrap();
    let second = spill(&store, 1, &[2; 9 << 20]).unwrap();
    assert_eq!(read(&first).unwrap(), [1; 100]);
    assert_eq!(read(&second).unwrap(), [2; 9 << 20]);
}

#[cfg(unix)]
#[test]
fn leftovers_are_removed_and_nothing_else() {
    let folder = Folder::new();
    let dead = NamedFile::create(&folder.0).unwrap();
    let elsewhere = folder.0.join("elsewhere");
    let link = folder.0.join("lapidary-spill-link");
    let file = folder.0.join("lapidary-spill-file");
    let full = folder.0.join("lapidary-spill-full");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(&full).unwrap();
    fs::write(elsewhere.join("lapidary-spill-link"), "keep").unwrap();
    fs::write(&file, "keep").unwrap();
    fs::write(full.join("other"), "keep").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();

    let block = spill(&folder.store(), 1, &[1]).unwrap();
    assert!(!dead.folder.exists());
    assert!(elsewhere.join("lapidary-spill-link").exists());
    assert!(link.exists() && file.exists() && full.join("other").exists());
    assert_eq!(read(&block).unwrap(), [1]);
}

#[test]
fn stores_share_a_folder() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        for value in 0..8 {
            let folder = &folder;
            scope.spawn(move || {
                for _ in 0..50 {
                    let block = spill(&folder.store(), 1, &[value; 5000]).unwrap();
                    assert_eq!(read(&block).unwrap(), [value; 5000]);
                }
            });
        }
    });
    assert!(folder.names().is_empty());
}

#[test]
fn the_default_folder_is_the_systems() {
    let store = SpillStore::new(SpillOptions::default()).unwrap();
    let block = spill(&store, 1, &[1; 5000]).unwrap();
    assert_eq!(read(&block).unwrap(), [1; 5000]);
}
