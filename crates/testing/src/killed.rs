//! Processes that are killed during their work, for tests: the files that they leave must be
//! harmless.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tells a child its folder. A process without it is no child.
const FOLDER: &str = "LAPIDARY_TEST_FOLDER";

/// A child ends after this time, even if it is not killed.
const MOST: Duration = Duration::from_secs(20);

/// Runs `work` on the folder repeatedly until the process is killed. This is the whole body of a
/// test that is marked as ignored and runs only as a child. `work` gets the number of earlier
/// calls.
pub fn work_until_killed(mut work: impl FnMut(&Path, usize)) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    println!("ready");
    let begin = Instant::now();
    let rounds = (0..).take_while(|_| begin.elapsed() < MOST);
    rounds.for_each(|round| work(&folder, round));
}

/// After this many children in a row without any work, the next ones get twice the time, because
/// the machine is slow.
const IN_VAIN: u32 = 10;

/// Starts the ignored test `child` `times` times, and kills it within `soon` of its beginning. Then
/// calls `look`, which checks the files and returns whether the child had done some work.
pub fn kill(
    times: usize,
    child: &str,
    folder: &Path,
    mut soon: Duration,
    random: &mut fastrand::Rng,
    mut look: impl FnMut() -> bool,
) {
    let mut in_vain = 0;
    for _ in 0..times {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([child, "--ignored", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let begins = lines.any(|line| line.unwrap().ends_with("ready"));
        assert!(begins, "the child did not begin");
        let while_micros = random.u64(0..soon.as_micros() as u64);
        std::thread::sleep(Duration::from_micros(while_micros));
        process.kill().unwrap();
        let ended = process.wait().unwrap();
        assert!(ended.code().is_none(), "it ended by itself: {ended}");
        in_vain = if look() { 0 } else { in_vain + 1 };
        if in_vain == IN_VAIN {
            (soon, in_vain) = ((2 * soon).min(MOST / 4), 0);
        }
    }
}
