//! The end of whoever looks on.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::MemoryStats;
use super::{Answer, MOST_ANSWER_BYTES, REQUEST, VERSION, place};
use crate::error::{Error, Result};

/// A process that does not answer by then hangs, or has been stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// The memory of another process that serves it: see [`Gpu::serve_monitor`](crate::Gpu::serve_monitor).
///
/// ```no_run
/// use lapidary::monitor::Remote;
///
/// for served in Remote::find() {
///     let mut remote = Remote::connect(&served.path)?;
///     let stats = remote.memory()?;
///     println!("{} ({}): {}", remote.program(), served.pid, stats);
/// }
/// # Ok::<(), lapidary::Error>(())
/// ```
#[derive(Debug)]
pub struct Remote {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    program: String,
}

/// A process of this user that serves its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Its number.
    pub pid: u32,
    /// Its socket.
    pub path: PathBuf,
}

impl Remote {
    /// The processes of this user that serve at the place that is taken where none is named; of those that
    /// end in the meantime nobody knows.
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
                // A process that was killed has left its socket, and nobody is there.
                UnixStream::connect(&path).ok()?;
                Some(Served { pid, path })
            })
            .collect();
        served.sort_by(|a, b| a.path.cmp(&b.path));
        served
    }

    /// Connects to a socket, which must be this user's.
    ///
    /// # Errors
    /// [`Error::Option`]: there is no socket, it is another user's, or nobody listens.
    pub fn connect(path: &Path) -> Result<Remote> {
        place::check_socket(path).map_err(refuse)?;
        let stream = UnixStream::connect(path).map_err(|error| {
            refuse(match error.kind() {
                ErrorKind::ConnectionRefused => {
                    format!(
                        "{}: the process that served there has ended",
                        path.display()
                    )
                }
                _ => format!("{}: {error}", path.display()),
            })
        })?;
        if !place::is_friend(&stream) {
            let path = path.display();
            return Err(refuse(format!(
                "{path}: the process there is another user's"
            )));
        }
        let patient = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        patient.map_err(|error| refuse(error.to_string()))?;
        Ok(Remote {
            stream: BufReader::new(stream),
            path: path.to_owned(),
            program: String::new(),
        })
    }

    /// The numbers of this moment. Of more than 512 makers the greatest are told.
    ///
    /// # Errors
    /// [`Error::Option`]: the process has ended, does not answer within 5 s, or says something that is no
    /// answer.
    pub fn memory(&mut self) -> Result<MemoryStats> {
        let line = self.ask().map_err(|reason| {
            let path = self.path.display();
            refuse(format!("{path}: {reason}"))
        })?;
        let answer: Answer = serde_json::from_slice(&line).map_err(|error| {
            let path = self.path.display();
            refuse(format!(
                "{path}: what it says is no answer of lapidary's: {error}"
            ))
        })?;
        if answer.version != VERSION {
            let (path, version) = (self.path.display(), answer.version);
            return Err(refuse(format!(
                "{path}: it answers in version {version}, this program knows {VERSION}"
            )));
        }
        self.program = answer.program;
        Ok(answer.stats)
    }

    /// The name of the other program, as its last answer says; empty before that.
    pub fn program(&self) -> &str {
        &self.program
    }

    fn ask(&mut self) -> std::result::Result<Vec<u8>, String> {
        let explain = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not answer".to_string(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => "the process has ended".into(),
            _ => error.to_string(),
        };
        let stream = self.stream.get_mut();
        stream.write_all(REQUEST.as_bytes()).map_err(explain)?;
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(MOST_ANSWER_BYTES);
        bounded.read_until(b'\n', &mut line).map_err(explain)?;
        match line.last() {
            Some(b'\n') => Ok(line),
            None => Err("the process has ended".into()),
            Some(_) if line.len() as u64 == MOST_ANSWER_BYTES => Err(format!(
                "its answer is longer than {MOST_ANSWER_BYTES} bytes"
            )),
            Some(_) => Err("the process has ended in the middle of an answer".into()),
        }
    }
}

fn refuse(reason: String) -> Error {
    Error::Option {
        option: "monitor socket",
        reason,
    }
}
