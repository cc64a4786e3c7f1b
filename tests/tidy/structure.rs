//! Links between modules: no long cycles of imports, and no type that half a crate implements.
//!
//! The modules of a folder are its files and its subfolders. A module imports another if a path in
//! it leads there, also through re-exports. A folder's own file (`mod.rs`, or the file of its name)
//! is the front of its modules and not one of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, words};

/// Most modules in a cycle of imports.
const MOST_IN_CYCLE: usize = 3;

/// Most files that implement one type.
const MOST_IMPLEMENTORS: usize = 4;

/// Folders with this limit. Elsewhere a type may be the front of a whole layer.
const OF_PARTS: &[&str] = &["crates/core/src/engine"];

/// A module's path from the root of its crate.
type Path = Vec<String>;

/// The modules of one crate with their files.
struct Crate<'a> {
    modules: BTreeMap<Path, &'a Source>,
    /// The re-exported paths by module and name.
    exports: BTreeMap<(Path, String), Path>,
}

/// The modules of one folder that import each other in a cycle, if there are too many.
pub(crate) fn check_cycles(files: &[Source], folders: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    for folder in folders {
        let modules = modules_of(files, folder);
        let exports = modules
            .iter()
            .flat_map(|(module, file)| {
                let uses = uses_of(&file.shipped)
                    .into_iter()
                    .filter(|one| one.is_export);
                uses.filter_map(|one| Some(((module.clone(), one.path.last()?.clone()), one.path)))
            })
            .collect();
        let graph = Crate { modules, exports }.imports();
        for (parent, edges) in by_folder(&graph) {
            for cycle in cycles(&edges) {
                if cycle.len() > MOST_IN_CYCLE {
                    let names: Vec<&str> = cycle.iter().map(String::as_str).collect();
                    offences.push(format!(
                        "{folder}/{}: {} modules import each other in a circle, at most \
                         {MOST_IN_CYCLE}: {}",
                        parent.join("/"),
                        names.len(),
                        names.join(", ")
                    ));
                }
            }
        }
    }
    offences
}

/// Types that too many files implement.
pub(crate) fn check_implementors(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for folder in OF_PARTS {
        let mut by_type: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for file in files.iter().filter(|file| file.path.starts_with(folder)) {
            for offset in words(&file.shipped, "impl") {
                // Within a line the word begins an `impl Trait` type.
                let is_item = offset == 0 || file.shipped[..offset].ends_with('\n');
                let name = implemented(&file.shipped[offset + 4..]);
                if let Some(name) = name.filter(|_| is_item) {
                    by_type.entry(name).or_default().insert(&file.path);
                }
            }
        }
        for (name, files) in by_type {
            if files.len() > MOST_IMPLEMENTORS {
                let files: Vec<_> = files.into_iter().collect();
                offences.push(format!(
                    "{folder}: {} files implement `{name}`, at most {MOST_IMPLEMENTORS}: {}",
                    files.len(),
                    files.join(", ")
                ));
            }
        }
    }
    offences
}

/// The type of an `impl` without a trait. `text` begins after that word.
fn implemented(text: &str) -> Option<String> {
    let head = text.split('{').next()?.trim_start();
    let head = match head.strip_prefix('<') {
        Some(rest) => past_generics(rest).trim_start(),
        None => head,
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name: String = head.chars().take_while(|c| is_name(*c)).collect();
    let is_inherent = !head.contains(" for ") && !name.is_empty();
    is_inherent.then_some(name)
}

/// The text after the `>` that closes the first generics.
fn past_generics(text: &str) -> &str {
    let mut depth = 1;
    for (offset, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if text[..offset].ends_with('-') => {}
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[offset + 1..];
        }
    }
    ""
}

/// The modules in a folder without test modules.
fn modules_of<'a>(files: &'a [Source], folder: &str) -> BTreeMap<Path, &'a Source> {
    let mut modules = BTreeMap::new();
    for file in files {
        let inner = file
            .path
            .strip_prefix(folder)
            .and_then(|path| path.strip_prefix('/'));
        let Some(inner) = inner.and_then(|path| path.strip_suffix(".rs")) else {
            continue;
        };
        let mut path: Path = inner.split('/').map(str::to_owned).collect();
        if ["mod", "lib", "main"].contains(&path[path.len() - 1].as_str()) {
            path.pop();
        }
        if !path.iter().any(|name| name == "tests") {
            modules.insert(path, file);
        }
    }
    modules
}

/// One path of a `use`.
struct Use {
    path: Path,
    is_export: bool,
}

/// All paths of the `use` items of a text.
fn uses_of(code: &str) -> Vec<Use> {
    let mut uses = Vec::new();
    for offset in words(code, "use") {
        let Some(tree) = code[offset + 3..].split(';').next() else {
            continue;
        };
        let before = code[..offset].trim_end();
        let is_export = before.ends_with("pub") || before.ends_with(')');
        for path in paths_of(tree, &[]) {
            uses.push(Use { path, is_export });
        }
    }
    uses
}

/// The paths of a tree such as `a::{b, c::d}`.
fn paths_of(tree: &str, before: &[String]) -> Vec<Path> {
    let names = |text: &str| -> Vec<String> {
        let text = text.split(" as ").next().unwrap_or_default();
        let names = text.split("::").map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![[before, &names(tree)].concat()];
    };
    let before = [before, &names(head)].concat();
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut paths, mut depth, mut start) = (Vec::new(), 0, 0);
    for (offset, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = inner[start..offset].trim();
                if !branch.is_empty() {
                    paths.extend(paths_of(branch, &before));
                }
                start = offset + 1;
            }
            _ => {}
        }
    }
    paths
}

/// The paths in code outside of `use` that begin at the crate or with `super`.
fn inline_paths(code: &str) -> Vec<Path> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut paths = Vec::new();
    for root in ["crate", "super"] {
        for offset in words(code, root) {
            let path: String = code[offset..].chars().take_while(|c| is_name(*c)).collect();
            let names: Path = path
                .split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
            let is_whole = !code[..offset].ends_with(':');
            if is_whole && names.len() > 1 {
                paths.push(names);
            }
        }
    }
    paths
}

impl Crate<'_> {
    /// Pairs of modules, of which the first imports the second.
    fn imports(&self) -> BTreeSet<(Path, Path)> {
        let mut edges = BTreeSet::new();
        for (module, file) in &self.modules {
            let uses = uses_of(&file.shipped).into_iter();
            let imports = uses.filter(|one| !one.is_export).map(|one| one.path);
            for path in imports.chain(inline_paths(&file.shipped)) {
                if let Some(named) = self.resolve(module, &path, 0) {
                    if named != *module {
                        edges.insert((module.clone(), named));
                    }
                }
            }
        }
        edges
    }

    /// The module that a path in `module` leads to.
    fn resolve(&self, module: &Path, path: &[String], depth: usize) -> Option<Path> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "super" | "self" => {
                let (mut at, mut rest) = (module.clone(), path);
                while let Some((first, others)) = rest.split_first() {
                    match first.as_str() {
                        "super" => drop(at.pop()),
                        "self" => {}
                        _ => break,
                    }
                    rest = others;
                }
                (at, rest)
            }
            child if self.modules.contains_key(&joined(module, child)) => (module.clone(), path),
            _ => return None,
        };
        while let Some((first, others)) = rest.split_first() {
            let inner = joined(&at, first);
            if !self.modules.contains_key(&inner) {
                break;
            }
            (at, rest) = (inner, others);
        }
        let name = rest.first().cloned().unwrap_or_default();
        let exported = self.exports.get(&(at.clone(), name));
        match exported.filter(|_| depth < 8) {
            Some(path) => self.resolve(&at, path, depth + 1).or(Some(at)),
            None => Some(at),
        }
    }
}

fn joined(path: &[String], name: &str) -> Path {
    [path, &[name.to_owned()]].concat()
}

/// The edges between the modules of each folder.
fn by_folder(graph: &BTreeSet<(Path, Path)>) -> BTreeMap<Path, BTreeSet<(String, String)>> {
    let mut folders: BTreeMap<Path, BTreeSet<(String, String)>> = BTreeMap::new();
    for (from, to) in graph {
        let common = from
            .iter()
            .zip(to)
            .take_while(|(from, to)| from == to)
            .count();
        if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
            let edges = folders.entry(from[..common].to_vec()).or_default();
            edges.insert((one.clone(), other.clone()));
        }
    }
    folders
}

/// The sets of modules that reach each other.
fn cycles(edges: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let reach = |start: &str| -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
        while let Some(at) = open.pop() {
            for (_, to) in edges.iter().filter(|(from, _)| *from == at) {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let modules: BTreeSet<&String> = edges.iter().map(|(from, _)| from).collect();
    let reached: BTreeMap<&String, BTreeSet<String>> = modules
        .iter()
        .map(|module| (*module, reach(module)))
        .collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (module, there) in &reached {
        let is_mutual = |other: &&String| {
            reached
                .get(*other)
                .is_some_and(|back| back.contains(*module))
        };
        let cycle: Vec<String> = there.iter().filter(is_mutual).cloned().collect();
        if cycle.len() > 1 && !found.contains(&cycle) {
            found.push(cycle);
        }
    }
    found
}

#[cfg(test)]
fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    files
        .iter()
        .map(|(path, text)| Source::new(path, text))
        .collect()
}

#[test]
fn a_circle_of_four_modules_is_found_and_one_of_three_is_not() {
    let ring = |last: &str| {
        let files = sources(&[
            (
                "src/a/mod.rs",
                "mod b;\nmod c;\nmod d;\nmod e;\npub use d::D;\n",
            ),
            ("src/a/b.rs", "use super::c::C;\n"),
            // Once through the front's re-export and once by a path in the code.
            ("src/a/c.rs", "use crate::a::D;\n"),
            ("src/a/d.rs", last),
            ("src/a/e.rs", "fn f() { super::b::g() }\n"),
        ]);
        check_cycles(&files, &["src"])
    };
    assert_eq!(ring("use super::{\n    b::{B, g},\n};\n"), [""; 0]);
    let found = ring("use super::{\n    e::{self, E},\n};\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("b, c, d, e"), "{found:?}");
}

#[test]
fn a_folder_is_one_module_of_the_folder_above() {
    let files = sources(&[
        ("src/a.rs", "mod x;\nmod y;\n"),
        ("src/a/x.rs", "use super::y::Y;\nuse crate::b::B;\n"),
        ("src/a/y.rs", "use crate::c::C;\n"),
        ("src/b.rs", "use crate::a::x::X;\n"),
        ("src/c.rs", "use crate::d::D;\n"),
        ("src/d.rs", "use crate::b::B;\n"),
    ]);
    let found = check_cycles(&files, &["src"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("a, b, c, d"), "{found:?}");
}

#[test]
fn a_type_that_five_files_implement_is_found() {
    let files = |count: usize| -> Vec<Source> {
        let path = |index: usize| format!("{}/f{index}.rs", OF_PARTS[0]);
        let text = |index: usize| match index {
            0 => "impl<'a, F: Fn(u8) -> u8> Big<'a, F> {}\nimpl Drop for Other {}\n",
            1 => "impl super::Small {}\nimpl Big {}\n",
            _ => "impl Big {\n}\nfn f(x: impl Fn()) {}\n",
        };
        (0..count)
            .map(|index| Source::new(&path(index), text(index)))
            .collect()
    };
    assert_eq!(check_implementors(&files(4)), [""; 0]);
    let found = check_implementors(&files(5));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("5 files implement `Big`"), "{found:?}");
}
