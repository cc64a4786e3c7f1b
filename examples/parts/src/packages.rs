//! The sources of a program's dependencies, which cargo has unpacked on this machine.

use std::env;
use std::path::{Path, PathBuf};

/// The folders of the packages in a lock file. The program was built from them, so nothing is
/// downloaded. The error is a reason.
pub fn folders(lock: &Path) -> Result<Vec<PathBuf>, String> {
    let refuse = |reason: String| {
        format!(
            "the sources of the dependencies cannot be found: {reason}. Name a folder with `--folder`"
        )
    };
    let packages = std::fs::read_to_string(lock)
        .map_err(|error| refuse(format!("{}: {error}", lock.display())))?;
    let registry = registry().ok_or_else(|| refuse("no home folder".into()))?;
    let sources = std::fs::read_dir(&registry)
        .map_err(|error| refuse(format!("{}: {error}", registry.display())))?;
    // Registries may have the same package; one copy is enough.
    let sources: Vec<_> = sources.flatten().map(|source| source.path()).collect();
    let folder_of = |package: String| {
        let mut folders = sources.iter().map(|source| source.join(&package));
        folders.find(|folder| folder.join("src").is_dir())
    };
    Ok(names(&packages).filter_map(folder_of).collect())
}

/// The folder where cargo unpacks the sources of packages: one subfolder per registry.
fn registry() -> Option<PathBuf> {
    let of_cargo = match env::var_os("CARGO_HOME").filter(|name| !name.is_empty()) {
        Some(folder) => folder.into(),
        None => env::home_dir()?.join(".cargo"),
    };
    Some(of_cargo.join("registry").join("src"))
}

/// The packages of a lock file, in the form of cargo's folder names: `serde-1.0.0`.
fn names(lock: &str) -> impl Iterator<Item = String> {
    let value = |package: &str, key: &str| {
        let start = format!("{key} = \"");
        let line = package.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|line| line.strip_suffix('"'))
            .map(str::to_owned)
    };
    lock.split("[[package]]").filter_map(move |package| {
        let (name, version) = (value(package, "name")?, value(package, "version")?);
        Some(format!("{name}-{version}"))
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_lock_names_its_packages() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.2\"\n\n\
                    [[package]]\nname = \"b-c\"\nversion = \"0.3.0+1\"\ndependencies = [\n \"a\",\n]\n";
        let names: Vec<_> = names(lock).collect();
        assert_eq!(names, ["a-1.0.2", "b-c-0.3.0+1"]);
    }
}
