//! No package takes a file of another one by `#[path]`. What several need is a library.

use std::path::{Component, Path, PathBuf};

use crate::source::{Source, words};

/// The modules that a package takes from another. `is_package` tells the folders that have a
/// manifest, by their paths from the root.
pub(crate) fn check(files: &[Source], is_package: impl Fn(&Path) -> bool) -> Vec<String> {
    let package = |path: &Path| {
        path.ancestors()
            .skip(1)
            .find(|at| is_package(at))
            .map(PathBuf::from)
    };
    let mut offences = Vec::new();
    for file in files {
        for offset in words(&file.code, "path") {
            let attribute = file.code[..offset].ends_with("#[");
            let value = file.text[offset..].split('"').nth(1).filter(|_| attribute);
            let Some(value) = value else { continue };
            let taken = joined(Path::new(&file.path), value);
            if package(&taken) != package(Path::new(&file.path)) {
                offences
                    .push(file.offence(offset, "another package has this file: share a library"));
            }
        }
    }
    offences
}

/// The path from the root of a file that is named in another one.
fn joined(from: &Path, value: &str) -> PathBuf {
    let mut path = from.parent().unwrap_or(from).to_path_buf();
    for part in Path::new(value).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[test]
fn a_file_of_another_package_is_found() {
    let is_package = |path: &Path| {
        ["", "examples/a", "examples/b"]
            .iter()
            .any(|one| path == Path::new(one))
    };
    let check = |path: &str, value: &str| {
        let text = format!("#[path = \"{value}\"]\nmod x;\n");
        check(&[Source::new(path, &text)], is_package).len()
    };
    assert_eq!(check("benches/a.rs", "../tests/b/c.rs"), 0);
    assert_eq!(check("examples/a/src/lib.rs", "x/y.rs"), 0);
    assert_eq!(check("examples/a/src/lib.rs", "../../b/src/x.rs"), 1);
    assert_eq!(check("examples/a/src/lib.rs", "../../demo/x.rs"), 1);
    assert_eq!(check("src/lib.rs", "../examples/b/x.rs"), 1);
}
