//! Files that replace others whole: written under a name of their own, made durable, and only then
//! put into the place of the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::unfinished;
use lapidary_core::internal::SpillFile;
#[cfg(any(test, feature = "sim"))]
use lapidary_core::sim::{FileFaults, FileSite};

/// How files are read and written.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileOptions {
    /// What goes wrong.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) faults: FileFaults,
}

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// Its owner: what a program keeps is nobody else's affair.
    Owner,
    /// Whoever may read what the user's programs write as a rule: it was made to be given away.
    #[cfg(feature = "safetensors")]
    Usual,
}

/// What went wrong, in the system's words or ours.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) reason: String,
}

impl Failure {
    fn of(operation: &str, error: &io::Error) -> Failure {
        Failure {
            kind: error.kind(),
            reason: format!("could not {operation}: {error}"),
        }
    }
}

/// A file that is being written. Dropped unfinished, it leaves nothing.
#[derive(Debug)]
pub(super) struct Replacement {
    /// What it is to replace, with links followed.
    target: PathBuf,
    folder: PathBuf,
    temp: TempFile,
    options: FileOptions,
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

impl Replacement {
    /// Begins a file that is to be at `path`.
    pub(super) fn create(
        path: &Path,
        readers: Readers,
        options: &FileOptions,
    ) -> Result<Replacement, Failure> {
        let target = resolve(path)?;
        let folder = match target.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        unfinished::sweep(&folder, SystemTime::now());
        let temp_path = unfinished::path(&folder);
        let made = |error| Failure::of("make a file beside it", &error);
        #[cfg(any(test, feature = "sim"))]
        options
            .faults
            .strike_plain(FileSite::Create)
            .map_err(made)?;
        let file = new_file(readers).open(&temp_path).map_err(made)?;
        let file = SpillFile::over(file);
        #[cfg(any(test, feature = "sim"))]
        let file = file.with_faults(options.faults.clone());
        Ok(Replacement {
            target,
            folder,
            temp: TempFile {
                file: Some(file),
                path: Some(temp_path),
            },
            options: options.clone(),
        })
    }

    /// Writes bytes at a position.
    pub(super) fn write(&self, bytes: &[u8], offset_bytes: u64) -> Result<(), Failure> {
        let written = match &self.temp.file {
            Some(file) => file.write(bytes, offset_bytes),
            None => Err(ErrorKind::NotFound.into()),
        };
        written.map_err(|error| Failure::of("write it", &error))
    }

    /// Makes the file durable and puts it into the place of the old one.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if let Some(file) = self.temp.file.take() {
            file.sync()
                .map_err(|error| Failure::of("make it durable", &error))?;
        }
        if let Some(temp) = &self.temp.path {
            #[cfg(any(test, feature = "sim"))]
            let struck = self.options.faults.strike_plain(FileSite::Rename);
            #[cfg(not(any(test, feature = "sim")))]
            let struck = Ok(());
            let renamed = struck.and_then(|()| fs::rename(temp, &self.target));
            renamed.map_err(|error| Failure::of("give it its name", &error))?;
        }
        self.temp.path = None;
        sync_folder(&self.folder, &self.options).map_err(|error| {
            let operation = "make its name durable (the new file is in place, but after a power \
                             failure the old one may be back)";
            Failure::of(operation, &error)
        })
    }
}

/// The file that is to be replaced, or that is to be there; links are followed.
fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    let refuse = |reason: &str| {
        Err(Failure {
            kind: ErrorKind::Other,
            reason: reason.into(),
        })
    };
    let target = match fs::symlink_metadata(path) {
        Ok(kind) if kind.is_symlink() => {
            let followed = fs::canonicalize(path);
            followed.map_err(|error| Failure::of("follow the link", &error))?
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

#[cfg_attr(not(unix), allow(unused_variables, reason = "there is no mode to set"))]
fn new_file(readers: Readers) -> OpenOptions {
    let mut options = OpenOptions::new();
    // `create_new` follows no link and opens nothing that is already there.
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if readers == Readers::Owner {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    options
}

/// Makes the names in a folder durable, where folders can be opened for that.
fn sync_folder(folder: &Path, options: &FileOptions) -> io::Result<()> {
    #[cfg(any(test, feature = "sim"))]
    options.faults.strike_plain(FileSite::SyncFolder)?;
    #[cfg(not(any(test, feature = "sim")))]
    let FileOptions {} = options;
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
