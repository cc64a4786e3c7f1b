//! Replaces files as a whole: the new file is written under a temporary name, made durable, and
//! only then renamed over the old one.

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
    /// Injected faults.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) faults: FileFaults,
}

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// Only the file's owner: other users must not read a program's state.
    Owner,
    /// The usual permissions of the user's programs, because a model file is made to be shared.
    #[cfg(feature = "model-files")]
    Usual,
}

/// What went wrong, in the system's words or ours.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) reason: String,
}

impl Failure {
    fn new(operation: &str, error: &io::Error) -> Failure {
        Failure {
            kind: error.kind(),
            reason: format!("could not {operation}: {error}"),
        }
    }
}

/// A file under construction. If it is dropped before `finish`, no file remains.
#[derive(Debug)]
pub(super) struct Replacement {
    /// The path to replace, with links followed.
    target: PathBuf,
    folder: PathBuf,
    temp: TempFile,
    options: FileOptions,
}

/// A file that is removed unless it was renamed.
#[derive(Debug)]
struct TempFile {
    file: Option<SpillFile>,
    path: Option<PathBuf>,
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Some systems do not remove open files.
        self.file = None;
        // The error has no receiver, and the next save in this folder tries again.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

impl Replacement {
    /// Starts a file that will replace `path`.
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
        let made = |error| Failure::new("make a file beside it", &error);
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
        written.map_err(|error| Failure::new("write it", &error))
    }

    /// Makes the file durable and renames it over the old one.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if let Some(file) = self.temp.file.take() {
            file.sync()
                .map_err(|error| Failure::new("make it durable", &error))?;
        }
        if let Some(temp) = &self.temp.path {
            #[cfg(any(test, feature = "sim"))]
            let struck = self.options.faults.strike_plain(FileSite::Rename);
            #[cfg(not(any(test, feature = "sim")))]
            let struck = Ok(());
            let renamed = struck.and_then(|()| fs::rename(temp, &self.target));
            renamed.map_err(|error| Failure::new("give it its name", &error))?;
        }
        self.temp.path = None;
        sync_folder(&self.folder, &self.options).map_err(|error| {
            let operation = "make its name durable (the new file is in place, but after a power \
                             failure the old one may be back)";
            Failure::new(operation, &error)
        })
    }
}

/// The path of the file to replace or create; links are followed.
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
            followed.map_err(|error| Failure::new("follow the link", &error))?
        }
        _ => path.to_owned(),
    };
    if fs::metadata(&target).is_ok_and(|kind| !kind.is_file()) {
        // A folder cannot be replaced, and a device must not be.
        return refuse("the path is not a regular file, and is not replaced");
    }
    if target.file_name().is_none() {
        return refuse("the path does not end with a file name");
    }
    Ok(target)
}

#[cfg_attr(not(unix), allow(unused_variables, reason = "there is no mode to set"))]
fn new_file(readers: Readers) -> OpenOptions {
    let mut options = OpenOptions::new();
    // `create_new` follows no link and opens no existing file.
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
        // Some file systems do not support this.
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
