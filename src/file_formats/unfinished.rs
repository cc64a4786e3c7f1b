//! Unfinished files beside those that they should replace. A killed process leaves one. Its name
//! identifies the process, so that the next save in the folder removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lapidary_core::internal::random;

/// Prefix and extension of unfinished files.
const NAME: &str = ".lapidary-state-";
const EXTENSION: &str = ".tmp";

/// Age after which an unfinished file counts as abandoned, where the process cannot be checked: on
/// another machine, or on a system other than Linux.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A process of this machine, in the namespace of its ids: `MACHINE-ID-START`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maker {
    /// Identifies the machine since its start, and the namespace; 0 if unknown.
    machine: u32,
    id: u32,
    /// Start time of the process, by the machine's clock, because ids are reused.
    start: u64,
}

impl Maker {
    fn this_process() -> Maker {
        let id = std::process::id();
        Maker {
            machine: machine().unwrap_or(0),
            id,
            start: start_of(id).unwrap_or(0),
        }
    }

    /// The process that made the file of this name, if the name tells.
    fn parse(name: &str) -> Option<Maker> {
        let mut parts = name.strip_prefix(NAME)?.split('-');
        Some(Maker {
            machine: u32::from_str_radix(parts.next()?, 16).ok()?,
            id: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
        })
    }

    /// Is the process known to have ended?
    fn is_gone(self) -> bool {
        machine() == Some(self.machine) && start_of(self.id) != Some(self.start)
    }
}

/// Identifies this machine since its start, and this namespace of process ids.
fn machine() -> Option<u32> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hash = crc32fast::Hasher::new();
    hash.update(&boot);
    hash.update(namespace.as_os_str().as_encoded_bytes());
    Some(hash.finalize())
}

/// Start time of a process; `None` if it has ended, or is not visible.
fn start_of(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The process name in brackets may contain anything. The state follows it, and the start time
    // is field 22.
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let has_ended = matches!(*fields.first()?, "Z" | "X");
    fields.get(19)?.parse().ok().filter(|_| !has_ended)
}

/// A new name for an unfinished file in a folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    let Maker { machine, id, start } = Maker::this_process();
    let random = random();
    folder.join(format!(
        "{NAME}{machine:08x}-{id}-{start}-{random:016x}{EXTENSION}"
    ))
}

/// Removes unfinished files of processes that were killed.
pub(crate) fn sweep(folder: &Path, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name.to_str();
        let ours = ours.filter(|name| name.starts_with(NAME) && name.ends_with(EXTENSION));
        let (Some(name), Ok(metadata)) = (ours, entry.metadata()) else {
            continue;
        };
        // The kernel may hide processes of other users.
        let is_gone = is_mine(&metadata) && Maker::parse(name).is_some_and(Maker::is_gone);
        let idle = metadata.modified();
        let idle = idle.map(|modified| now.duration_since(modified).unwrap_or_default());
        if is_gone || idle.is_ok_and(|idle| idle > ABANDONED_AFTER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Does a file belong to the user of this process?
#[cfg(unix)]
fn is_mine(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == metadata.uid())
}

#[cfg(not(unix))]
fn is_mine(_: &fs::Metadata) -> bool {
    false
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_killed_process_goes_at_once_and_that_of_a_living_one_stays() {
        let folder = std::env::temp_dir().join(format!("lapidary-{:016x}", random()));
        fs::create_dir(&folder).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let machine = machine().unwrap();
        let maker = Maker {
            machine,
            id: child.id(),
            start: start_of(child.id()).unwrap(),
        };
        let named = |machine: u32, id: u32, start: u64| {
            let path = folder.join(format!("{NAME}{machine:08x}-{id}-{start}-0{EXTENSION}"));
            fs::write(&path, "half").unwrap();
            path
        };
        let ours = path(&folder);
        fs::write(&ours, "half").unwrap();
        let theirs = named(machine, maker.id, maker.start);
        let elsewhere = named(machine ^ 1, maker.id, 7);
        let before = named(machine, maker.id, maker.start - 1);
        sweep(&folder, SystemTime::now());
        // A reused id belongs to another process.
        let is_there = [&ours, &theirs, &elsewhere, &before].map(|path| path.exists());
        assert_eq!(is_there, [true, true, true, false]);
        child.kill().unwrap();
        child.wait().unwrap();
        sweep(&folder, SystemTime::now());
        let is_there = [&ours, &theirs, &elsewhere].map(|path| path.exists());
        assert_eq!(is_there, [true, false, true]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
