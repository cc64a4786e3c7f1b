//! The time from the start of a process to its first result, with empty and with filled caches of
//! drivers and libraries on disk.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cases::Work;
use crate::check::check;
use crate::subject::{Figures, Result, Subject};

/// Makes this program compute its first result and nothing else.
pub(crate) const FIRST_RESULT: &str = "--first-result";

const DONE: &str = "here it is";
const LEAST_ROUNDS: u32 = 3;
const MOST_ROUNDS: u32 = 10;

const PRODUCT: Work = Work::Matmul {
    batch: 1,
    m: 256,
    n: 256,
    k: 256,
    is_b_transposed: false,
};

/// The work of the timed process.
pub(crate) fn first_result(subject: &dyn Subject) -> Result {
    let inputs = PRODUCT.inputs();
    let mut work = subject
        .prepare(&PRODUCT, &inputs)?
        .ok_or("it does not multiply matrices")?;
    work.run()?;
    let product = work.result()?;
    println!("{DONE}");
    std::io::stdout().flush()?;
    check(&PRODUCT, &inputs, &product)
}

pub(crate) fn measure(is_cold: bool, budget: Duration) -> Result<Figures> {
    let begin = Instant::now();
    let mut folder = Folder::new(0)?;
    let first_seconds = time(&folder)?;
    let mut figures = Figures {
        seconds: if is_cold {
            first_seconds
        } else {
            f64::INFINITY
        },
        first_seconds,
        rounds: u32::from(is_cold),
        limit: None,
    };
    while figures.rounds < MOST_ROUNDS
        && (figures.rounds < LEAST_ROUNDS || begin.elapsed() < 2 * budget)
    {
        if is_cold {
            folder = Folder::new(figures.rounds)?;
        }
        figures.seconds = figures.seconds.min(time(&folder)?);
        figures.rounds += 1;
    }
    Ok(figures)
}

/// A folder for caches. Dropping it deletes it.
struct Folder(PathBuf);

impl Folder {
    fn new(number: u32) -> Result<Folder> {
        let name = format!("first-result-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the system clears its temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn time(caches: &Folder) -> Result<f64> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg(FIRST_RESULT).current_dir(&caches.0);
    // The caches of Mesa, of NVIDIA and of all others.
    for name in [
        "MESA_SHADER_CACHE_DIR",
        "__GL_SHADER_DISK_CACHE_PATH",
        "XDG_CACHE_HOME",
    ] {
        child.env(name, &caches.0);
    }
    let start = Instant::now();
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let status = child.wait()?;
    match line.trim() == DONE && status.success() {
        true => Ok(seconds),
        false => Err(format!("the process ended without a result ({status})").into()),
    }
}
