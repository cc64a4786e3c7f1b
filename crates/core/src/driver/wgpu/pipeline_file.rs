//! The file of compiled pipelines. The app may lose it at any time. It begins with a line of text:
//! what it is, the version of its format, and a checksum of the rest. A damaged file, or one of
//! another version, counts as absent. Then the crate `log` gets a warning.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// How the file begins, with the version of its format.
const HEAD: &str = "lapidary pipelines 1";

/// A larger file cannot be one of ours.
const MOST_BYTES: u64 = 256 << 20;

/// The contents of the file. `None` if it is absent or damaged.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    look(path).unwrap_or_else(|why| {
        log::warn!("lapidary: {} is not used: {why}", path.display());
        None
    })
}

/// As [`read`], without a warning. An error says why the file is there but not used.
fn look(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match fs::metadata(path) {
        // A pipe or a device may have no end.
        Ok(file) if !file.is_file() => return Err("it is not a regular file".to_owned()),
        Ok(file) if file.len() <= MOST_BYTES => {}
        Ok(_) => return Err("it is too large".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    }
    let file = fs::read(path).map_err(|error| error.to_string())?;
    let end = file.iter().position(|byte| *byte == b'\n');
    let (head, rest) = file.split_at(end.map_or(file.len(), |end| end + 1));
    match head == headline(rest).as_bytes() {
        true => Ok(Some(rest.to_vec())),
        false => Err("it is broken, or of another version".to_owned()),
    }
}

/// Replaces the file by `bytes` in one step. A failure only makes the next start slower, so it is a
/// warning.
pub(super) fn replace(path: &Path, bytes: &[u8]) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unique = RandomState::new().build_hasher().finish();
    let beside = path.with_file_name(format!("{name}.{unique:016x}.new"));
    let written = (path.parent())
        .map_or(Ok(()), |folder| folder_builder().create(folder))
        .and_then(|()| new_file().open(&beside))
        .and_then(|mut file| {
            file.write_all(headline(bytes).as_bytes())?;
            file.write_all(bytes)
        })
        .and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&beside);
        log::warn!("lapidary: {} is not kept: {error}", path.display());
    }
}

fn headline(rest: &[u8]) -> String {
    format!("{HEAD} crc32 {:08x}\n", crc32fast::hash(rest))
}

/// A driver reads the file back, so only their owner may write into the folder.
fn folder_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_again_and_nothing_else_is() {
        let folder = std::env::temp_dir().join(format!("lapidary-kept-{}", std::process::id()));
        let path = folder.join("file");
        assert_eq!(read(&path), None);
        for bytes in [&b"some\nlines\n"[..], b"", b"others"] {
            replace(&path, b"before");
            replace(&path, bytes);
            assert_eq!(read(&path).as_deref(), Some(bytes));
        }
        let whole = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&whole);
        let next = text.replace("pipelines 1 ", "pipelines 2 ");
        assert_ne!(next, text);
        fs::write(&path, next).unwrap();
        assert_eq!(read(&path), None, "another version's");
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            fs::write(&path, &flipped).unwrap();
            assert_eq!(read(&path), None, "flipped at {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(&path), None, "cut at {at}");
        }
        let left = fs::read_dir(&folder).unwrap().count();
        assert_eq!(left, 1, "no other file is left beside it");
        // First a file where a folder is needed, then a folder that cannot be created.
        fs::remove_file(&path).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            assert_eq!(look(&path), Err("it is not a regular file".to_owned()));
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        replace(&path, b"x");
        assert_eq!(read(&path), None);
        replace(&path.join("no\0name").join("file"), b"x");
        fs::remove_dir_all(&folder).unwrap();
    }
}
