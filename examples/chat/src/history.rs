//! A conversation as a file.

use std::path::Path;

use crate::error::{Error, Result};
use crate::template::Message;

/// Writes what was said. The file is replaced only when all is written.
///
/// # Errors
///
/// [`Error::File`] if the file cannot be written.
pub fn save(path: &Path, messages: &[Message]) -> Result<()> {
    let text = serde_json::to_string_pretty(messages).map_err(|cause| Error::History {
        path: path.to_owned(),
        cause,
    })?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = std::fs::write(&beside, text + "\n");
    let replaced = written.and_then(|()| std::fs::rename(&beside, path));
    replaced.map_err(|cause| Error::File {
        path: path.to_owned(),
        cause,
    })
}

/// Reads what [`save`] wrote.
///
/// # Errors
///
/// [`Error::File`] if there is no such file, [`Error::History`] for another kind of file.
pub fn load(path: &Path) -> Result<Vec<Message>> {
    let text = std::fs::read_to_string(path).map_err(|cause| Error::File {
        path: path.to_owned(),
        cause,
    })?;
    serde_json::from_str(&text).map_err(|cause| Error::History {
        path: path.to_owned(),
        cause,
    })
}
