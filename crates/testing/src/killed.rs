//! Processes that are killed in the midst of their work, for tests: what they leave must do no
//! harm.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tells a child where to work, and so that it is one.
const FOLDER: &str = "LAPIDARY_TEST_FOLDER";

/// A child works no longer than this, should nobody kill it.
const MOST: Duration = Duration::from_secs(20);

/// Runs `work` on the folder again and again until somebody kills the process: the whole of a test
/// that is a child of another, and is ignored but for that. `work` is told how often it ran before.
pub fn work_until_killed(mut work: impl FnMut(&Path, usize)) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    println!("ready");
    let begin = Instant::now();
    let rounds = (0..).take_while(|_| begin.elapsed() < MOST);
    rounds.for_each(|round| work(&folder, round));
}

/// After so many children in a row that had done nothing, the next ones get twice the time: a
/// machine that is busy with other work is slow.
const IN_VAIN: u32 = 10;

/// So many times: starts the ignored test `child`, kills it within `soon` of its beginning, and
/// looks at what it left: `look` says whether the child had done some of its work.
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
