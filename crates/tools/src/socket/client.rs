//! The client: it asks another process for its statistics.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lapidary_core::stats::{MemoryStats, Snapshot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Answer, Head, OLDEST_VERSION, Request, VERSION, place, refuse};
use crate::Result;

/// A process that takes longer for its whole answer hangs or was stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Size of one read.
const READ_BYTES: usize = 64 << 10;

/// The memory of another process that calls [`serve`](super::serve).
///
/// ```no_run
/// use lapidary_tools::socket::Remote;
///
/// for served in Remote::find() {
///     let mut remote = Remote::connect(&served.path)?;
///     let stats = remote.memory()?;
///     println!("{} ({}): {}", remote.program(), served.pid, stats);
/// }
/// # Ok::<(), lapidary_tools::Error>(())
/// ```
#[derive(Debug)]
pub struct Remote {
    /// None after an error: the next bytes could belong to an earlier request.
    stream: Option<UnixStream>,
    path: PathBuf,
    program: String,
    arguments: String,
}

/// A process of this user that serves its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Its process id.
    pub pid: u32,
    /// Path of its socket.
    pub path: PathBuf,
}

impl Remote {
    /// The processes of this user that serve at the default place. Processes that have ended are
    /// left out.
    pub fn find() -> Vec<Served> {
        let folder = fs::read_dir(place::folder())
            .into_iter()
            .flatten()
            .flatten();
        let mut served: Vec<Served> = folder
            .filter_map(|file| {
                let path = file.path();
                let pid = place::pid_of(&path)?;
                place::check_socket(&path).ok()?;
                // A killed process leaves its socket behind, and connecting to it fails.
                place::connect(&path).ok()?;
                Some(Served { pid, path })
            })
            .collect();
        served.sort_by(|a, b| a.path.cmp(&b.path));
        served
    }

    /// Connects to a socket, which must belong to this user. On Linux and Android the kernel also
    /// tells the user of the process at the other end. On other systems only the owner of the
    /// socket is checked.
    ///
    /// # Errors
    /// [`Error::Socket`](crate::Error::Socket): there is no socket, another user owns it, no
    /// process listens, or none accepts within 2 s.
    pub fn connect(path: &Path) -> Result<Remote> {
        Ok(Remote {
            stream: Some(open(path).map_err(refuse)?),
            path: path.to_owned(),
            program: String::new(),
            arguments: String::new(),
        })
    }

    /// The current statistics. If the process has more than 512 makers, only the greatest are
    /// included. After an error the next call connects again, so a process that was too slow can be
    /// asked again.
    ///
    /// # Errors
    /// [`Error::Socket`](crate::Error::Socket): the process has ended, did not send its whole
    /// answer within 5 s, or sent an invalid answer.
    pub fn memory(&mut self) -> Result<MemoryStats> {
        let answer = self.ask(Request::Memory, parse)?;
        self.program = answer.program;
        self.arguments = answer.arguments;
        Ok(answer.stats)
    }

    /// A snapshot of this moment, which [`Snapshot::save`] writes to a file. It has the last
    /// million events of the history, if the process keeps one.
    ///
    /// # Errors
    /// As [`memory`](Remote::memory). A process of an older version closes the connection.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.ask(Request::Snapshot, |line| {
            Snapshot::from_json(line).map_err(|error| error.to_string())
        })
    }

    /// Asks, and makes a value of the answer's line.
    fn ask<T>(
        &mut self,
        request: Request,
        parse: impl FnOnce(&[u8]) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.reconnect().map_err(refuse)?,
        };
        let answer = ask(&stream, request).and_then(|line| parse(&line));
        let answer =
            answer.map_err(|reason| refuse(format!("{}: {reason}", self.path.display())))?;
        self.stream = Some(stream);
        Ok(answer)
    }

    /// The name of the other program, from its last answer; empty before the first one.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The arguments of the other program, shortened, from its last answer with statistics.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    fn reconnect(&self) -> std::result::Result<UnixStream, String> {
        match fs::symlink_metadata(&self.path) {
            // The socket existed before, so the process has ended and removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(format!("{}: the process has ended", self.path.display()))
            }
            _ => open(&self.path),
        }
    }
}

fn open(path: &Path) -> std::result::Result<UnixStream, String> {
    place::check_socket(path)?;
    let explain = |error: std::io::Error| match error.kind() {
        ErrorKind::ConnectionRefused => format!(
            "{}: the process that served there has ended",
            path.display()
        ),
        ErrorKind::WouldBlock => format!("{}: the process does not answer", path.display()),
        _ => format!("{}: {error}", path.display()),
    };
    let stream = place::connect(path).map_err(explain)?;
    if !place::is_friend(&stream) {
        let path = path.display();
        return Err(format!("{path}: the process belongs to another user"));
    }
    stream.set_write_timeout(Some(PATIENCE)).map_err(explain)?;
    Ok(stream)
}

/// Sends a request and reads the answer's line, within the time limit.
fn ask(mut stream: &UnixStream, request: Request) -> std::result::Result<Vec<u8>, String> {
    let explain = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not answer".to_string(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => "the process has ended".into(),
        _ => error.to_string(),
    };
    let deadline = Instant::now() + PATIENCE;
    stream.write_all(request.line()).map_err(explain)?;
    let mut line = Vec::new();
    let mut bytes = vec![0; READ_BYTES];
    loop {
        if !wait(stream, deadline).map_err(explain)? {
            continue;
        }
        let read = stream.read(&mut bytes).map_err(explain)?;
        let bytes = &bytes[..read];
        line.extend_from_slice(bytes);
        let most_bytes = request.most_bytes();
        if line.len() as u64 > most_bytes {
            return Err(format!("its answer is longer than {most_bytes} bytes"));
        }
        // Bytes after the line make the answer invalid; the parser reports it.
        if bytes.contains(&b'\n') {
            return Ok(line);
        }
        if bytes.is_empty() {
            return Err(match line.is_empty() {
                true => "the process has ended".into(),
                false => "the process has ended in the middle of an answer".into(),
            });
        }
    }
}

/// Sleeps until there is something to read. Returns false if it woke without data, and an error
/// after the deadline.
fn wait(stream: &UnixStream, deadline: Instant) -> std::io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    let left = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], left.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn parse(line: &[u8]) -> std::result::Result<Answer, String> {
    let explain = |error: serde_json::Error| format!("its answer is not one of lapidary: {error}");
    let head: Head = serde_json::from_slice(line).map_err(explain)?;
    match head.version {
        OLDEST_VERSION..=VERSION => serde_json::from_slice(line).map_err(explain),
        version => Err(format!(
            "its answer has version {version}, this program reads {OLDEST_VERSION} to {VERSION}"
        )),
    }
}
