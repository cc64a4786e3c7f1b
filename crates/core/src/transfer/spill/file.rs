//! The spill file: it is private, it is removed in every case, and it is read and written at
//! positions.
//!
//! On Unix the store removes the file's name right after it created the file. On Windows the system
//! deletes the file when it is closed. Both also work for a process that is killed. The file is
//! created in a new folder with mode 0700, under a name that other processes cannot guess. A
//! process that is killed before it removed the name leaves an empty file or folder. The next store
//! that uses the same place removes it. Removing those of a live process does no harm: that process
//! was about to remove them itself, or has the file open.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

#[cfg(any(test, feature = "sim"))]
use crate::driver::sim::{FileFaults, FileSite};

/// The prefix of the names of our folders, and of the files in them.
const NAME: &str = "lapidary-spill-";

/// The most tries. Another process that tidies up may remove the new folder before the file is in
/// it.
const MOST_TRIES: u32 = 16;

/// After this many interruptions in a row, the call returns an error.
const MOST_INTERRUPTS: u32 = 1000;

/// An open file that has no name, or that the system deletes when its handle is closed. By default
/// no file, for blocks that have only sizes: it takes any length.
#[derive(Debug, Default)]
pub struct SpillFile {
    // Fields are dropped in this order: the file is closed before the rest is removed.
    pub(super) file: Option<File>,
    _leftovers: Leftovers,
    #[cfg(any(test, feature = "sim"))]
    pub(super) faults: FileFaults,
}

/// The names that could not be removed while the file is open.
#[derive(Debug, Default)]
struct Leftovers {
    file: Option<PathBuf>,
    folder: Option<PathBuf>,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // No caller could handle an error here, and the next store at this place tries again.
        let _ = self.file.as_ref().map(fs::remove_file);
        let _ = self.folder.as_ref().map(fs::remove_dir);
    }
}

impl SpillFile {
    /// Creates the file under `base`, which is created too if it does not exist.
    pub(super) fn create(
        base: &Path,
        #[cfg(any(test, feature = "sim"))] faults: FileFaults,
    ) -> io::Result<SpillFile> {
        #[cfg(any(test, feature = "sim"))]
        faults.strike_plain(FileSite::Create)?;
        folder_builder().recursive(true).create(base)?;
        sweep(base);
        let named = NamedFile::create(base)?;
        Ok(SpillFile {
            file: Some(named.file),
            _leftovers: Leftovers::after_removing(named.path, named.folder),
            #[cfg(any(test, feature = "sim"))]
            faults,
        })
    }

    /// Wraps a file that the caller names and removes.
    pub fn over(file: File) -> SpillFile {
        SpillFile {
            file: Some(file),
            ..SpillFile::default()
        }
    }

    /// The same file with faults. This is not a parameter of [`over`](Self::over), because a
    /// feature that the crate above may not have must not change a signature.
    #[cfg(any(test, feature = "sim"))]
    #[must_use]
    pub fn with_faults(self, faults: FileFaults) -> SpillFile {
        SpillFile { faults, ..self }
    }

    /// The system's metadata of the file.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        self.system_file()?.metadata()
    }

    /// Makes the written bytes and the file's length durable.
    pub fn sync(&self) -> io::Result<()> {
        #[cfg(any(test, feature = "sim"))]
        self.faults.strike_plain(FileSite::Sync)?;
        self.system_file()?.sync_data()
    }

    pub(super) fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        #[cfg(any(test, feature = "sim"))]
        self.faults.strike_plain(FileSite::SetLen)?;
        (self.file.as_ref()).map_or(Ok(()), |file| file.set_len(len_bytes))
    }

    /// Writes all of `bytes` at `offset_bytes`.
    pub fn write(&self, mut bytes: &[u8], mut offset_bytes: u64) -> io::Result<()> {
        let mut interrupts = 0;
        while !bytes.is_empty() {
            match self.write_some(bytes, offset_bytes) {
                Ok(0) => {
                    let reason = "the file takes no more bytes";
                    return Err(io::Error::new(ErrorKind::WriteZero, reason));
                }
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset_bytes += written as u64;
                    interrupts = 0;
                }
                Err(error) => pause(error, &mut interrupts)?,
            }
        }
        Ok(())
    }

    /// Fills `bytes` from `offset_bytes` on. `false` if the file ends earlier.
    pub fn read(&self, bytes: &mut [u8], mut offset_bytes: u64) -> io::Result<bool> {
        let mut interrupts = 0;
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_some(rest, offset_bytes) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    filled += read;
                    offset_bytes += read as u64;
                    interrupts = 0;
                }
                Err(error) => pause(error, &mut interrupts)?,
            }
        }
        Ok(true)
    }

    fn write_some(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<usize> {
        let write = |bytes: &[u8]| system::write_at(self.system_file()?, bytes, offset_bytes);
        #[cfg(any(test, feature = "sim"))]
        if let Some(kind) = self.faults.strike(FileSite::Write) {
            return kind.write(bytes, write);
        }
        write(bytes)
    }

    fn read_some(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let read = |bytes: &mut [u8]| system::read_at(self.system_file()?, bytes, offset_bytes);
        #[cfg(any(test, feature = "sim"))]
        if let Some(kind) = self.faults.strike(FileSite::Read) {
            return kind.read(bytes, read);
        }
        read(bytes)
    }

    fn system_file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or(ErrorKind::Unsupported.into())
    }
}

/// Ignores an interruption, unless there were too many without progress.
fn pause(error: io::Error, interrupts: &mut u32) -> io::Result<()> {
    *interrupts += 1;
    match error.kind() {
        ErrorKind::Interrupted if *interrupts < MOST_INTERRUPTS => Ok(()),
        _ => Err(error),
    }
}

/// The file while it still has its name.
#[derive(Debug)]
pub(super) struct NamedFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
}

impl NamedFile {
    pub(super) fn create(base: &Path) -> io::Result<NamedFile> {
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..MOST_TRIES {
            let name = unique_name();
            let folder = base.join(&name);
            // The file has the same name as its folder. An attacker may replace a folder by a link
            // to make a sweep delete files elsewhere. Then the sweep finds no file of this name
            // there.
            let path = folder.join(&name);
            if let Err(error) = folder_builder().create(&folder) {
                if error.kind() != ErrorKind::AlreadyExists {
                    return Err(error);
                }
                last = error;
                continue;
            }
            match system::new_file().open(&path) {
                Ok(file) => return Ok(NamedFile { file, path, folder }),
                Err(error) if error.kind() == ErrorKind::NotFound => last = error,
                Err(error) => {
                    let _ = fs::remove_dir(&folder);
                    return Err(error);
                }
            }
        }
        Err(last)
    }
}

impl Leftovers {
    fn after_removing(file: PathBuf, folder: PathBuf) -> Leftovers {
        if cfg!(windows) {
            // The system deletes the file. Until then the folder is in use.
            return Leftovers {
                file: None,
                folder: Some(folder),
            };
        }
        let is_gone = |removed: io::Result<()>| match removed {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        let file_is_gone = is_gone(fs::remove_file(&file));
        let folder_is_gone = is_gone(fs::remove_dir(&folder));
        Leftovers {
            file: (!file_is_gone).then_some(file),
            folder: (!folder_is_gone).then_some(folder),
        }
    }
}

/// Removes the files and folders that killed processes have left in `base`.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(NAME));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let folder = entry.path();
            // The system refuses those of other users, and on Windows those of live processes.
            let _ = fs::remove_file(folder.join(&name));
            let _ = fs::remove_dir(&folder);
        }
    }
}

/// A random number that other processes cannot guess.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn unique_name() -> String {
    format!("{NAME}{:016x}{:016x}", random(), random())
}

/// Creates folders that only their owner may enter.
fn folder_builder() -> DirBuilder {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "there is no mode to set"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn new_file_anywhere() -> OpenOptions {
    let mut options = OpenOptions::new();
    // `create_new` follows no link and opens no existing file.
    options.read(true).write(true).create_new(true);
    options
}

#[cfg(unix)]
mod system {
    //! Reads and writes at positions on Unix.
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    pub(super) fn new_file() -> super::OpenOptions {
        let mut options = super::new_file_anywhere();
        options.mode(0o600);
        options
    }

    pub(super) fn read_at(file: &super::File, bytes: &mut [u8], at: u64) -> std::io::Result<usize> {
        file.read_at(bytes, at)
    }

    pub(super) fn write_at(file: &super::File, bytes: &[u8], at: u64) -> std::io::Result<usize> {
        file.write_at(bytes, at)
    }
}

#[cfg(windows)]
mod system {
    //! Reads and writes at positions on Windows.
    use std::os::windows::fs::{FileExt, OpenOptionsExt};

    /// The system deletes the file when the handle is closed, also when the process ends.
    const FILE_FLAG_DELETE_ON_CLOSE: u32 = 0x0400_0000;
    /// The system keeps the file in its cache, if there is memory, instead of writing it out.
    const FILE_ATTRIBUTE_TEMPORARY: u32 = 0x0000_0100;

    pub(super) fn new_file() -> super::OpenOptions {
        let mut options = super::new_file_anywhere();
        options
            .share_mode(0)
            .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
            .attributes(FILE_ATTRIBUTE_TEMPORARY);
        options
    }

    pub(super) fn read_at(file: &super::File, bytes: &mut [u8], at: u64) -> std::io::Result<usize> {
        file.seek_read(bytes, at)
    }

    pub(super) fn write_at(file: &super::File, bytes: &[u8], at: u64) -> std::io::Result<usize> {
        file.seek_write(bytes, at)
    }
}

#[cfg(not(any(unix, windows)))]
mod system {
    //! A system without files.
    pub(super) fn new_file() -> super::OpenOptions {
        super::new_file_anywhere()
    }

    pub(super) fn read_at(_: &super::File, _: &mut [u8], _: u64) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write_at(_: &super::File, _: &[u8], _: u64) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
