//! The texts to search: those of a folder, or of the sources that this program was built from.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use embed::{Entry, Error, Result, places};

use super::Texts;
use example_parts::{packages, sentences};

/// A larger file was not written by a person.
const MOST_FILE_BYTES: u64 = 4 << 20;

/// The distinct sentences, or at most as many as requested, spread evenly.
pub(super) fn entries(texts: &Texts) -> Result<Vec<Entry>> {
    let mut taken = Taken {
        entries: Vec::new(),
        seen: HashSet::new(),
    };
    match &texts.folder {
        Some(folder) => taken.folder(folder, folder)?,
        None => {
            for folder in packages::folders(&places::lock_file()).map_err(Error::Input)? {
                // The folder's name identifies a package, with its version.
                let root = folder.parent().unwrap_or(&folder).to_owned();
                taken.folder(&folder.join("src"), &root)?;
            }
        }
    }
    let all = taken.entries;
    if all.is_empty() {
        let place = texts
            .folder
            .as_deref()
            .unwrap_or(Path::new("the dependencies' sources"));
        return Err(Error::Input(format!(
            "{} has no sentences in files that end in .rs, .md or .txt: name another `--folder`",
            place.display()
        )));
    }
    let (count, most) = (all.len(), texts.most.get());
    let is_taken = |at: usize| at * most / count != (at + 1) * most / count;
    let spread = all.into_iter().enumerate();
    Ok(spread
        .filter_map(|(at, entry)| (most >= count || is_taken(at)).then_some(entry))
        .collect())
}

struct Taken {
    entries: Vec<Entry>,
    seen: HashSet<String>,
}

impl Taken {
    /// Takes the files of a folder and its subfolders in alphabetical order. Places are relative to
    /// `root`.
    fn folder(&mut self, folder: &Path, root: &Path) -> Result<()> {
        let explain = |error: std::io::Error| {
            Error::file(
                &folder.display().to_string(),
                format!("{error}. Name a folder that can be read"),
            )
        };
        let listing = std::fs::read_dir(folder).map_err(explain)?;
        let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            // Links may form cycles.
            let Ok(about) = path.symlink_metadata() else {
                continue;
            };
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if about.is_dir() && !is_hidden {
                self.folder(&path, root)?;
            } else if about.is_file() && about.len() <= MOST_FILE_BYTES {
                self.file(&path, root);
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, root: &Path) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let read = match extension {
            Some("rs") => sentences::of_rust,
            Some("md" | "txt") => sentences::of_text,
            _ => return,
        };
        // Files that are not text, or may not be read, are left out.
        let Ok(text) = std::fs::read_to_string(path) else {
            return;
        };
        let place = path
            .strip_prefix(root)
            .unwrap_or(path)
            .display()
            .to_string();
        for (line, text) in read(&text) {
            if self.seen.insert(text.clone()) {
                let place = place.clone();
                self.entries.push(Entry { text, place, line });
            }
        }
    }
}
