//! A process that is killed while it spills leaves nothing behind.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Folder, Seed, SpillOptions, SpillStore, names, read, spill};

/// Tells the child where to spill.
const FOLDER: &str = "LAPIDARY_TEST_SPILL_FOLDER";
const CHILD: &str = "a_child_that_spills_until_it_is_killed";

#[test]
#[ignore = "the other test runs it, in a process of its own"]
fn a_child_that_spills_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    println!("ready");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        let options = SpillOptions {
            folder: Some(folder.clone().into()),
            ..SpillOptions::default()
        };
        let store = SpillStore::new(options).unwrap();
        let blocks = [1, 2, 3].map(|value| spill(&store, 1, &vec![value; 900_000]).unwrap());
        drop(read(&blocks[1]).unwrap());
    }
}

#[test]
fn a_killed_process_leaves_no_file_and_the_folder_is_usable() {
    let folder = Folder::new();
    let seed = Seed::new();
    let mut rng = seed.rng();
    let program = std::env::current_exe().unwrap();
    let mut leftovers = 0;
    for _ in 0..200 {
        let mut child = Command::new(&program)
            .args([CHILD, "--ignored", "--nocapture", "--test-threads=1"])
            .env(FOLDER, &folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().ends_with("ready")),
            "the child did not begin"
        );
        std::thread::sleep(Duration::from_micros(rng.u64(0..8000)));
        child.kill().unwrap();
        child.wait().unwrap();

        // Killed between making the file and taking its name away, it leaves that, still empty.
        for left in folder.names() {
            leftovers += 1;
            for file in names(&left) {
                assert_eq!(fs::metadata(&file).unwrap().len(), 0, "{file:?}");
            }
        }
        let block = spill(&folder.store(), 1, &[5; 5000]).unwrap();
        assert_eq!(read(&block).unwrap(), [5; 5000]);
        assert!(folder.names().is_empty(), "the next one tidies up");
    }
    println!("{leftovers} of 200 left an empty folder or file for the next one to remove");
}
