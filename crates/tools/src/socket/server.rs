//! The server in the app: one thread that sleeps until a client asks.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lapidary_core::internal::printable;
use lapidary_core::{
    Gpu,
    stats::{Sampler, Tag},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Answer, MOST_MOMENTS, MOST_SLABS, MOST_TAGS, Request, VERSION, place, refuse};
use crate::Result;

/// Most clients. A new client replaces the one that has been silent longest.
const MOST_CLIENTS: usize = 8;

/// Least time between two answers to one client.
const PACE: Duration = Duration::from_millis(10);

/// A client that takes longer to read its answer is dropped.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most arguments of this process in an answer.
const MOST_ARGUMENTS: usize = 8;

/// Time before the next attempt after accepting failed, for example because the process has no file
/// descriptors left.
const REST: Duration = Duration::from_millis(100);

/// Sends the statistics to other processes of this user, such as `lapidary top`: see [`serve`].
///
/// The modes of the socket and of its folder keep other users out. On Linux and Android the kernel
/// also tells the user of a client.
#[derive(Debug)]
#[must_use = "the socket is closed when this is dropped"]
pub struct MonitorServer {
    path: PathBuf,
    /// Device and inode of the socket. Dropping the guard removes no other file of that name.
    identity: (u64, u64),
    /// Dropping this end wakes the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Sends statistics and snapshots to other processes of this user until the guard is dropped;
/// `lapidary top` shows them live. Exists only on Unix. On other systems the app can draw the
/// monitor itself.
///
/// It is a local socket, not a port. The default path is `$XDG_RUNTIME_DIR/lapidary/<pid>.sock`.
/// The socket has the mode 0600; its folder has the mode 0700 and is created if it is missing.
/// Neither may be a symbolic link. On Linux and Android the kernel also tells the user of a client,
/// and only this user and the administrator are accepted. One thread sleeps until a client asks. If
/// the `Gpu` is dropped before, connections are closed. [`Remote`](super::Remote) is
/// the client for your own programs.
///
/// ```no_run
/// # let gpu = lapidary_core::Gpu::open(Default::default())?;
/// let served = lapidary_tools::socket::serve(&gpu, None)?;
/// println!("lapidary top {}", served.path().display());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Socket`](crate::Error::Socket) if the folder belongs to another user or is open to
/// others. Also if the path is too long for a socket (about 100 bytes), or another file is there.
pub fn serve(gpu: &Gpu, path: Option<&Path>) -> Result<MonitorServer> {
    MonitorServer::start(gpu.memory().sampler(), path)
}

impl MonitorServer {
    fn start(sampler: Sampler, path: Option<&Path>) -> Result<Self> {
        let (listener, path) = match path {
            Some(path) => (listen(path).map_err(refuse)?, path.to_owned()),
            None => listen_by_default().map_err(refuse)?,
        };
        let io = |error: io::Error| refuse(format!("{}: {error}", path.display()));
        let found = fs::symlink_metadata(&path).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        let (wake, woken) = UnixStream::pair().map_err(io)?;
        let mut server = Server {
            sampler,
            listener,
            woken,
            clients: VecDeque::new(),
            rests_until: None,
        };
        let thread = std::thread::Builder::new().name("lapidary monitor".into());
        let thread = thread.spawn(move || server.run()).map_err(io)?;
        Ok(MonitorServer {
            identity: (found.dev(), found.ino()),
            path,
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// Path of the socket. `lapidary top` takes it as an argument or finds it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MonitorServer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // The thread itself may drop this guard, with the last reference to the device. It
            // cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                // A panic of the thread concerns no caller.
                let _ = thread.join();
            }
        }
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket in the default folder, named by the process id. Further sockets have a number too.
fn listen_by_default() -> std::result::Result<(UnixListener, PathBuf), String> {
    let folder = place::folder();
    place::prepare(&folder)?;
    place::sweep(&folder);
    let pid = std::process::id();
    let mut number = 1;
    loop {
        let name = match number {
            1 => format!("{pid}.sock"),
            number => format!("{pid}-{number}.sock"),
        };
        let path = folder.join(name);
        match listen(&path) {
            Err(_) if number < 64 && place::is_served(&path) => number += 1,
            other => return Ok((other?, path)),
        }
    }
}

fn listen(path: &Path) -> std::result::Result<UnixListener, String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    place::prepare(folder.unwrap_or(Path::new(".")))?;
    let explain = |error: io::Error| format!("{}: {error}", path.display());
    if fs::symlink_metadata(path).is_ok() {
        place::check_socket(path)?;
        if place::is_served(path) {
            return Err(format!("a process already serves at {}", path.display()));
        }
        // A killed process left it behind.
        fs::remove_file(path).map_err(explain)?;
    }
    let listener = UnixListener::bind(path).map_err(explain)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(explain)?;
    Ok(listener)
}

struct Client {
    stream: UnixStream,
    /// The received part of a request.
    asked: Vec<u8>,
    /// The answer until all of it is sent, and the sent bytes of it.
    answer: Vec<u8>,
    sent: usize,
    answered_at: Option<Instant>,
    heard_at: Instant,
}

struct Server {
    sampler: Sampler,
    listener: UnixListener,
    woken: UnixStream,
    clients: VecDeque<Client>,
    /// No client is accepted before this time.
    rests_until: Option<Instant>,
}

impl Server {
    fn run(&mut self) {
        loop {
            let Ok(ready) = self.wait() else { return };
            let [woken, arrived, clients @ ..] = &ready[..] else {
                return;
            };
            if *woken {
                return;
            }
            let now = Instant::now();
            let mut ready = clients.iter();
            let sampler = &self.sampler;
            self.clients.retain_mut(|client| {
                let is_ready = ready.next().copied().unwrap_or(false);
                client.step(now, is_ready, sampler).is_ok()
            });
            if *arrived {
                self.accept(now);
            }
        }
    }

    /// Sleeps until something happens. Returns what is ready: the guard, the socket, each client.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let now = Instant::now();
        let rests_until = self.rests_until.filter(|&until| now < until);
        let arrivals = match rests_until {
            // A waiting connection would wake the thread again and again.
            Some(_) => PollFlags::empty(),
            None => PollFlags::IN,
        };
        let mut watched = vec![
            PollFd::new(&self.woken, PollFlags::IN),
            PollFd::new(&self.listener, arrivals),
        ];
        for client in &self.clients {
            let flags = match (client.answer.is_empty(), client.has_asked()) {
                (false, _) => PollFlags::OUT,
                // It is not read from until its request is answered.
                (true, true) => PollFlags::empty(),
                (true, false) => PollFlags::IN,
            };
            watched.push(PollFd::from_borrowed_fd(client.stream.as_fd(), flags));
        }
        let due = self.clients.iter().filter_map(Client::due_at);
        let wait = due
            .chain(rests_until)
            .min()
            .map(|due| due.saturating_duration_since(now));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut watched, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = watched.iter().map(|watched| !watched.revents().is_empty());
        Ok(happened.collect())
    }

    fn accept(&mut self, now: Instant) {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let has_left = error.kind() == ErrorKind::ConnectionAborted;
                self.rests_until = (!has_left && !is_passing(&error)).then(|| now + REST);
                return;
            }
        };
        if !place::is_friend(&stream) || stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.clients.len() >= MOST_CLIENTS {
            let quiet = (0..self.clients.len()).min_by_key(|&index| self.clients[index].heard_at);
            quiet.and_then(|index| self.clients.remove(index));
        }
        self.clients.push_back(Client {
            stream,
            asked: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            answered_at: None,
            heard_at: now,
        });
    }
}

impl Client {
    fn request(&self) -> Option<Request> {
        let mut all = Request::ALL.into_iter();
        all.find(|request| request.line() == self.asked)
    }

    fn has_asked(&self) -> bool {
        self.request().is_some()
    }

    /// When the next step is due for a client that sends nothing.
    fn due_at(&self) -> Option<Instant> {
        match (self.answered_at, self.answer.is_empty(), self.has_asked()) {
            (Some(at), false, _) => Some(at + PATIENCE),
            (Some(at), true, true) => Some(at + PACE),
            (None, true, true) => Some(self.heard_at),
            _ => None,
        }
    }

    /// Takes the next step. After an error the client is dropped.
    fn step(&mut self, now: Instant, is_ready: bool, sampler: &Sampler) -> io::Result<()> {
        if is_ready && self.answer.is_empty() && !self.has_asked() {
            self.hear(now)?;
        }
        let is_time = self.answered_at.is_none_or(|at| now >= at + PACE);
        if let Some(request) = self.request().filter(|_| self.answer.is_empty() && is_time) {
            self.answer = match request {
                Request::Memory => answer(sampler)?,
                Request::Snapshot => snapshot(sampler)?,
            };
            self.asked.clear();
            // A snapshot may take long.
            self.answered_at = Some(Instant::now());
            return self.tell();
        }
        if !self.answer.is_empty() {
            // The client may have read while another one's answer was made.
            self.tell()?;
            let is_late = self.answered_at.is_some_and(|at| now >= at + PATIENCE);
            if is_late && !self.answer.is_empty() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Reads the missing part of a request. Any other bytes are an error.
    fn hear(&mut self, now: Instant) -> io::Result<()> {
        // No more than the shortest request that this may become.
        let missing = Request::ALL.iter().filter_map(|request| {
            let rest = request.line().strip_prefix(&self.asked[..]);
            rest.map(<[u8]>::len)
        });
        let missing = missing.min().ok_or(ErrorKind::InvalidData)?;
        let mut bytes = [0; 16];
        match self.stream.read(&mut bytes[..missing]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.asked.extend_from_slice(&bytes[..read]),
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.heard_at = now;
        let mut all = Request::ALL.iter();
        match all.any(|request| request.line().starts_with(&self.asked)) {
            true => Ok(()),
            false => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn tell(&mut self) -> io::Result<()> {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        (self.answer, self.sent) = (Vec::new(), 0);
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A line with the current statistics; an error when the device is dropped.
fn answer(sampler: &Sampler) -> io::Result<Vec<u8>> {
    let mut stats = sampler.memory().ok_or(ErrorKind::NotConnected)?;
    // Greatest first.
    stats.tags.truncate(MOST_TAGS);
    stats.slabs.truncate(MOST_SLABS);
    stats.host_slabs.truncate(MOST_SLABS);
    let tags = stats.tags.iter_mut().filter_map(|tag| tag.tag.as_mut());
    tags.for_each(Tag::shorten);
    let answer = Answer {
        version: VERSION,
        pid: std::process::id(),
        program: program(),
        arguments: arguments(),
        stats,
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    Ok(line)
}

/// A line with the current snapshot; an error when the device is dropped.
fn snapshot(sampler: &Sampler) -> io::Result<Vec<u8>> {
    let mut snapshot = sampler.snapshot().ok_or(ErrorKind::NotConnected)?;
    let older = snapshot.moments.len().saturating_sub(MOST_MOMENTS);
    drop(snapshot.moments.drain(..older));
    snapshot.dropped += older as u64;
    let mut line = Vec::new();
    snapshot.write_json(&mut line)?;
    line.push(b'\n');
    Ok(line)
}

/// The file name of this program.
fn program() -> String {
    let file = std::env::current_exe().unwrap_or_default();
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The arguments of this process, as far as they are of use to tell programs apart.
fn arguments() -> String {
    let arguments = std::env::args_os().skip(1).take(MOST_ARGUMENTS);
    let arguments: Vec<String> = arguments
        .map(|argument| printable(&argument.to_string_lossy(), 40))
        .collect();
    arguments.join(" ")
}
