//! A process that is killed while it spills leaves nothing behind.
#![cfg(unix)]

use std::fs;
use std::time::Duration;

use super::{Folder, Seed, SpillOptions, SpillStore, names, read, spill};
use lapidary_testing::killed::{kill, work_until_killed};

#[test]
#[ignore = "the other test runs it, in a process of its own"]
fn a_child_that_spills_until_it_is_killed() {
    work_until_killed(|folder, _| {
        let options = SpillOptions {
            folder: Some(folder.into()),
            ..SpillOptions::default()
        };
        let store = SpillStore::new(options).unwrap();
        let blocks = [1, 2, 3].map(|value| spill(&store, 1, &vec![value; 900_000]).unwrap());
        drop(read(&blocks[1]).unwrap());
    });
}

#[test]
fn a_killed_process_leaves_no_file_and_the_folder_is_usable() {
    let folder = Folder::new();
    let seed = Seed::new();
    let (child, soon) = (
        "a_child_that_spills_until_it_is_killed",
        Duration::from_millis(8),
    );
    let mut leftovers = 0;
    kill(200, child, &folder.0, soon, &mut seed.rng(), || {
        // A process killed between creating the file and removing its name leaves the file, still
        // empty.
        for left in folder.names() {
            leftovers += 1;
            for file in names(&left) {
                assert_eq!(fs::metadata(&file).unwrap().len(), 0, "{file:?}");
            }
        }
        let block = spill(&folder.store(), 1, &[5; 5000]).unwrap();
        assert_eq!(read(&block).unwrap(), [5; 5000]);
        assert!(folder.names().is_empty(), "the next store removes them");
        true
    });
    println!("{leftovers} of 200 left an empty folder or file for the next one to remove");
}
