//! Which texts there are: those of a folder, or of the sources of lapidary's dependencies.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use embed::{Entry, Error, Result, places};
use serde::Deserialize;

use super::{Texts, sentences};

/// A file that is larger is no text that somebody wrote.
const MOST_FILE_BYTES: u64 = 4 << 20;

/// The different sentences, or as many of them as are wanted, spread evenly.
pub(super) fn entries(texts: &Texts) -> Result<Vec<Entry>> {
    let mut taken = Taken {
        entries: Vec::new(),
        seen: HashSet::new(),
    };
    match &texts.folder {
        Some(folder) => taken.folder(folder, folder)?,
        None => {
            for folder in dependencies()? {
                // A package is named by its folder, which has its version.
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
    /// Takes what is in a folder and those in it, by the alphabet. Places are told from `root` on.
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
            // Links may lead in circles.
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
        // What is no text is left out, as is what may not be read.
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

/// What `cargo metadata` says, as far as it is of interest.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    /// Where it was downloaded from, if it was.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// The folders of the packages that lapidary's lock names, in cargo's registry.
fn dependencies() -> Result<Vec<PathBuf>> {
    let refuse = |reason: String| {
        Error::Input(format!(
            "the sources of the dependencies cannot be found: {reason}. Name a folder with `--folder`"
        ))
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
        ])
        .current_dir(places::repository())
        .output()
        .map_err(|error| refuse(format!("cargo cannot be run ({error})")))?;
    if !output.status.success() {
        return Err(refuse(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|error| refuse(error.to_string()))?;
    let packages = metadata
        .packages
        .into_iter()
        .filter(|package| package.source.is_some());
    let folders = packages.filter_map(|package| Some(package.manifest_path.parent()?.to_owned()));
    Ok(folders
        .filter(|folder| folder.join("src").is_dir())
        .collect())
}
