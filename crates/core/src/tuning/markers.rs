//! Markers: a file beside the findings while a variant is being tried. If the process of a marker
//! has ended, its variant ended the process.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::KIND;
use crate::cache_file;

/// The longest possible trial. The process that left an older marker has ended, even if another
/// process now has its number.
const LONGEST_TRIAL: Duration = Duration::from_secs(600);

/// A file that names a variant.
#[derive(Debug)]
pub(super) struct Marker(PathBuf);

impl Marker {
    /// Writes a marker for the variant that is tried next. With `for_sure` the marker survives a
    /// crash of the machine. `None` if the marker cannot be written.
    pub(super) fn leave(file: &Path, name: &str, for_sure: bool) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, unique) = this_process();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let marker = file.with_extension(format!("{process}-{unique:016x}-{number}.trying"));
        let is_there = match for_sure {
            true => cache_file::replace_for_sure(&marker, KIND, name.as_bytes()),
            false => cache_file::replace(&marker, KIND, name.as_bytes()),
        };
        is_there.then_some(Marker(marker))
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The variants in trial when processes ended.
#[derive(Debug, Default)]
pub(super) struct LeftVariants {
    /// Variants of processes that have ended, with their markers.
    pub(super) ended: Vec<(String, Marker)>,
    /// Variants of processes that may have ended.
    pub(super) unclear: Vec<String>,
}

/// The markers beside the findings, without those of processes that still run.
pub(super) fn left_behind(file: &Path) -> LeftVariants {
    let (Some(folder), Some(stem)) = (file.parent(), file.file_stem()) else {
        return LeftVariants::default();
    };
    let stem = stem.to_string_lossy();
    let mut left = LeftVariants::default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(owner) = name.to_str().and_then(|name| owner_of(name, &stem)) else {
            continue;
        };
        let state = state_of(owner, &path);
        if state == State::Runs {
            continue;
        }
        let variant = cache_file::read(&path, KIND).and_then(|bytes| String::from_utf8(bytes).ok());
        let variant = variant.filter(|variant| !variant.contains(char::is_control));
        match (variant, state) {
            (Some(variant), State::Ended) => left.ended.push((variant, Marker(path))),
            (Some(variant), _) => left.unclear.push(variant),
            // The marker is damaged, so it bars no variant.
            (None, _) => Marker(path).remove(),
        }
    }
    left
}

/// The number of this process, and a random number. In containers many processes may have the same
/// number.
fn this_process() -> (u32, u64) {
    static UNIQUE: OnceLock<u64> = OnceLock::new();
    let unique = UNIQUE.get_or_init(|| RandomState::new().build_hasher().finish());
    (std::process::id(), *unique)
}

/// The process that wrote a marker, by the name of the file.
fn owner_of(name: &str, stem: &str) -> Option<(u32, u64)> {
    let rest = name.strip_prefix(stem)?.strip_prefix('.')?;
    let mut parts = rest.strip_suffix(".trying")?.splitn(3, '-');
    let process = parts.next()?.parse().ok()?;
    let unique = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some((process, unique))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Ended,
    Unclear,
}

fn state_of(owner: (u32, u64), marker: &Path) -> State {
    let modified = fs::metadata(marker).and_then(|file| file.modified());
    let age = modified.ok().and_then(|at| at.elapsed().ok());
    let (process, _) = this_process();
    if owner == this_process() {
        return State::Runs;
    }
    if owner.0 == process || age.is_some_and(|age| age > LONGEST_TRIAL) {
        return State::Ended;
    }
    let processes = Path::new("/proc");
    match (processes.join("self").exists(), owner.0.to_string()) {
        (true, number) if processes.join(&number).exists() => State::Runs,
        (true, _) => State::Ended,
        (false, _) => State::Unclear,
    }
}
