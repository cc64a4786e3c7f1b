//! Paths and owners of sockets: a folder that only its owner can open.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A process that takes longer to accept a connection hangs or was stopped.
#[cfg(any(target_os = "linux", target_os = "android"))]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// The effective user of this process.
pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The folder of sockets without an explicit path.
pub(super) fn folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    match runtime {
        Some(folder) => PathBuf::from(folder).join("lapidary"),
        // Other users may write here. So the name has the user's id, and the owner is checked.
        None => std::env::temp_dir().join(format!("lapidary-{}", user())),
    }
}

/// Creates the folder if it is missing, and checks that only this user can open it.
pub(super) fn prepare(folder: &Path) -> Result<(), String> {
    let explain = |error: io::Error| format!("the folder {}: {error}", folder.display());
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(explain(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(explain)?;
    if found.is_symlink() {
        return Err(format!(
            "{} is a symbolic link, whose target can change; the socket needs a real folder",
            folder.display()
        ));
    }
    if !found.is_dir() {
        return Err(format!("{} is not a folder", folder.display()));
    }
    owned(folder, &found)?;
    if found.mode() & 0o077 != 0 {
        return Err(format!(
            "the folder {} is open to other users (mode {:03o}); the socket needs a folder with mode 700",
            folder.display(),
            found.mode() & 0o777,
        ));
    }
    Ok(())
}

/// The process id in the name of a socket.
pub(super) fn pid_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    name.split('-').next()?.parse().ok()
}

/// Removes the sockets of killed processes.
pub(super) fn sweep(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = file.path();
        let pid = pid_of(&path).and_then(|pid| i32::try_from(pid).ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
            continue;
        };
        let is_gone = rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if is_gone && check_socket(&path).is_ok() {
            // Another process may have removed it already.
            let _ = fs::remove_file(&path);
        }
    }
}

/// An error unless this user owns it.
fn owned(path: &Path, found: &Metadata) -> Result<(), String> {
    match found.uid() == user() {
        true => Ok(()),
        false => Err(format!(
            "{} belongs to another user (uid {}, this process has {})",
            path.display(),
            found.uid(),
            user(),
        )),
    }
}

/// An error unless it is a socket of this user.
pub(super) fn check_socket(path: &Path) -> Result<(), String> {
    let explain = |error: io::Error| format!("{}: {error}", path.display());
    let found = fs::symlink_metadata(path).map_err(explain)?;
    if !found.file_type().is_socket() {
        return Err(format!("{} is not a socket", path.display()));
    }
    owned(path, &found)
}

/// Connects to a socket. If its backlog stays full, because the process was stopped, the call ends
/// with `WouldBlock` after a while. Systems other than Linux and Android refuse at once.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        let stream = UnixStream::from(socket);
        stream.set_write_timeout(None)?;
        Ok(stream)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    UnixStream::connect(path)
}

/// Whether a process listens at the socket, even a busy one.
pub(super) fn is_served(path: &Path) -> bool {
    match connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Whether the process at the other end belongs to this user or to the administrator. Only Linux
/// and Android are asked; on other systems the mode of the folder keeps others out.
pub(super) fn is_friend(stream: &UnixStream) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| {
        let uid = peer.uid.as_raw();
        uid == user() || uid == 0
    });
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = stream;
        true
    }
}
