//! Writes a state file: under a name of its own first, and in the place of the old one at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::format::{Entry, FRAME_BYTES, encode, lay_out};
use super::{Fault, StateFileOptions, check_system, io_error};
#[cfg(any(test, feature = "sim"))]
use crate::driver::sim::FileSite;
use crate::error::{Result, StateFailure};
use crate::transfer::spill::{SpillFile, random};

/// What the names of unfinished files begin and end with.
const NAME: &str = ".lapidary-state-";
const EXTENSION: &str = ".tmp";

/// An unfinished file that nobody has written to for so long is nobody's any more: whoever was
/// about to finish it was killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A state file that is being written. Dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub(crate) struct StateWriter {
    /// What it is to replace, as it was given, for errors.
    path: PathBuf,
    /// The same with links followed.
    target: PathBuf,
    folder: PathBuf,
    temp: TempFile,
    entries: Vec<Entry>,
    table_bytes: u64,
    file_bytes: u64,
    /// The array that is being written, how many of its bytes are, and the checksum of its last frame.
    current: usize,
    done_bytes: u64,
    frame: crc32fast::Hasher,
    options: StateFileOptions,
}

/// A file that is removed unless it was given another name.
#[derive(Debug)]
struct TempFile {
    file: Option<SpillFile>,
    path: Option<PathBuf>,
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Some systems remove nothing that is open.
        self.file = None;
        // Nobody can be told, and the next one that saves here tries again.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

impl StateWriter {
    /// Begins a file with these arrays, whose bytes are then [appended](Self::append).
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn create(
        path: &Path,
        mut entries: Vec<Entry>,
        options: &StateFileOptions,
    ) -> Result<StateWriter> {
        check_system(path)?;
        let (table_bytes, file_bytes) = lay_out(&mut entries).map_err(|fault| fault.at(path))?;
        let target = resolve(path)?;
        let folder = match target.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        sweep(&folder, SystemTime::now());
        let temp_path = folder.join(format!(
            "{NAME}{:016x}{:016x}{EXTENSION}",
            random(),
            random()
        ));
        let made = |error| io_error(path, "make a file beside it", &error);
        #[cfg(any(test, feature = "sim"))]
        options
            .faults
            .strike_plain(FileSite::Create)
            .map_err(made)?;
        let file = new_file().open(&temp_path).map_err(made)?;
        let file = SpillFile::over(
            file,
            #[cfg(any(test, feature = "sim"))]
            options.faults.clone(),
        );
        Ok(StateWriter {
            path: path.to_owned(),
            target,
            folder,
            temp: TempFile {
                file: Some(file),
                path: Some(temp_path),
            },
            entries,
            table_bytes,
            file_bytes,
            current: 0,
            done_bytes: 0,
            frame: crc32fast::Hasher::new(),
            options: options.clone(),
        })
    }

    /// The next bytes of the arrays, which come in the order of the entries.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.skip_full();
            let Some(entry) = self.entries.get_mut(self.current) else {
                return Err(self.miscounted());
            };
            let (start, frame_bytes) = entry.frame(self.done_bytes / FRAME_BYTES);
            let left = start + frame_bytes - self.done_bytes;
            let (taken, rest) = bytes.split_at((bytes.len() as u64).min(left) as usize);
            self.frame.update(taken);
            let at = entry.offset_bytes + self.done_bytes;
            if taken.len() as u64 == left {
                let frame = std::mem::take(&mut self.frame);
                entry.checksums.push(frame.finalize());
            }
            self.write(taken, at)?;
            self.done_bytes += taken.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Makes the file durable and puts it into the place of the old one.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State).
    pub(crate) fn finish(mut self) -> Result<()> {
        self.skip_full();
        if self.current < self.entries.len() {
            return Err(self.miscounted());
        }
        let head = encode(&self.entries, self.table_bytes, self.file_bytes);
        self.write(&head, 0)?;
        let failed = |operation, error| io_error(&self.path, operation, &error);
        if let Some(file) = self.temp.file.take() {
            file.sync()
                .map_err(|error| failed("make it durable", error))?;
        }
        if let Some(temp) = &self.temp.path {
            #[cfg(any(test, feature = "sim"))]
            let struck = self.options.faults.strike_plain(FileSite::Rename);
            #[cfg(not(any(test, feature = "sim")))]
            let struck = Ok(());
            let renamed = struck.and_then(|()| fs::rename(temp, &self.target));
            renamed.map_err(|error| failed("give it its name", error))?;
        }
        self.temp.path = None;
        sync_folder(&self.folder, &self.options).map_err(|error| {
            let operation = "make its name durable (the new state is in place, but after a power \
                             failure the old one may be back)";
            failed(operation, error)
        })
    }

    fn skip_full(&mut self) {
        let is_full = |entry: &Entry, done_bytes| entry.len_bytes == done_bytes;
        while self
            .entries
            .get(self.current)
            .is_some_and(|entry| is_full(entry, self.done_bytes))
        {
            self.current += 1;
            self.done_bytes = 0;
        }
    }

    fn write(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let Some(file) = &self.temp.file else {
            return Err(self.miscounted());
        };
        let written = file.write(bytes, offset_bytes);
        written.map_err(|error| io_error(&self.path, "write it", &error))
    }

    fn miscounted(&self) -> crate::error::Error {
        let reason = "its arrays were not given as many bytes as their shapes hold";
        Fault(StateFailure::Io, reason.into()).at(&self.path)
    }
}

/// The file that is to be replaced, or that is to be there; links are followed.
fn resolve(path: &Path) -> Result<PathBuf> {
    let refuse = |reason: &str| Err(Fault(StateFailure::Io, reason.into()).at(path));
    let target = match fs::symlink_metadata(path) {
        Ok(kind) if kind.is_symlink() => {
            let followed = fs::canonicalize(path);
            followed.map_err(|error| io_error(path, "follow the link", &error))?
        }
        _ => path.to_owned(),
    };
    if fs::metadata(&target).is_ok_and(|kind| !kind.is_file()) {
        // A folder cannot be replaced, and a device must not be.
        return refuse("what is there is no file, and is not replaced");
    }
    if target.file_name().is_none() {
        return refuse("this is no name for a file");
    }
    Ok(target)
}

/// Removes unfinished files of processes that were killed.
pub(super) fn sweep(folder: &Path, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .is_some_and(|name| name.starts_with(NAME) && name.ends_with(EXTENSION));
        if !is_ours {
            continue;
        }
        let idle = entry.metadata().and_then(|entry| entry.modified());
        let idle = idle.map(|modified| now.duration_since(modified).unwrap_or_default());
        if idle.is_ok_and(|idle| idle > ABANDONED_AFTER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg_attr(not(unix), allow(unused_mut, reason = "there is no mode to set"))]
fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    // `create_new` follows no link and opens nothing that is already there.
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the names in a folder durable, where folders can be opened for that.
fn sync_folder(folder: &Path, options: &StateFileOptions) -> io::Result<()> {
    #[cfg(any(test, feature = "sim"))]
    options.faults.strike_plain(FileSite::SyncFolder)?;
    #[cfg(not(any(test, feature = "sim")))]
    let StateFileOptions {} = options;
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems have no such thing.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}
