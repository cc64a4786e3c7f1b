//! Links between modules: no long cycles of imports, and no type that half a crate implements.
//!
//! A module imports another if a path in it leads there; [`crate::modules`] says what a module is
//! and where paths lead. Cycles are sought among the modules of one folder, of which a subfolder is
//! one. So files of different folders may form longer cycles. A file implements a type if it has an
//! `impl` of it without a trait. Within its own layer, the methods of a type stand where their
//! subject is: otherwise the layer would be free functions over an open record.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Crate, Path, first_name};
use crate::source::{Source, words};

/// Most modules in a cycle of imports.
const MOST_IN_CYCLE: usize = 3;

/// Most files outside the layer of a type that implement it. A layer is a module of a crate's root.
const MOST_IMPLEMENTORS: usize = 4;

/// Types that any number of files may implement, with the files that define them.
const PUBLIC_FRONTS: &[(&str, &str)] = &[
    // Its methods are the operations. Each stands beside its kernel.
    ("src/tensor/mod.rs", "Tensor"),
];

/// The modules of one folder that import each other in a cycle, if there are too many.
pub(crate) fn check_cycles(files: &[Source], folders: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    for folder in folders {
        let graph = Crate::new(files, folder).imports();
        for (parent, edges) in by_folder(&graph) {
            let place = [&[(*folder).to_owned()][..], &parent[..]]
                .concat()
                .join("/");
            for cycle in cycles(&edges) {
                if cycle.len() > MOST_IN_CYCLE {
                    let names: Vec<&str> = cycle.iter().map(String::as_str).collect();
                    offences.push(format!(
                        "{place}: {} modules import each other in a circle, at most \
                         {MOST_IN_CYCLE}: {}",
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
pub(crate) fn check_implementors(files: &[Source], folders: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    for folder in folders {
        let within = Crate::new(files, folder);
        let mut by_type: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
        for (path, module) in within.modules() {
            for named in implemented_in(&module.code) {
                if let Some((home, name)) = within.home_of(path, &named) {
                    by_type
                        .entry((home, name))
                        .or_default()
                        .insert(&module.file.path);
                }
            }
        }
        for ((home, name), files) in by_type {
            let is_front = PUBLIC_FRONTS.contains(&(home, &name));
            let files: Vec<_> = (files.into_iter())
                .filter(|file| layer(folder, file) != layer(folder, home))
                .collect();
            if files.len() > MOST_IMPLEMENTORS && !is_front {
                offences.push(format!(
                    "{home}: {} files of other layers implement `{name}`, at most \
                     {MOST_IMPLEMENTORS}: {}",
                    files.len(),
                    files.join(", ")
                ));
            }
        }
    }
    offences
}

/// The module of the crate's root that a file belongs to.
fn layer<'a>(folder: &str, file: &'a str) -> &'a str {
    let within = file.strip_prefix(folder).unwrap_or(file);
    let within = within.trim_start_matches('/');
    let first = within.split('/').next().unwrap_or(within);
    first.trim_end_matches(".rs")
}

/// The paths of the types that have an `impl` without a trait in a text.
fn implemented_in(code: &str) -> Vec<Path> {
    let items = words(code, "impl").filter(|offset| {
        // Within a line the word begins an `impl Trait` type.
        let line = code[..*offset].rsplit('\n').next();
        line.is_none_or(|line| line.trim().is_empty())
    });
    items
        .filter_map(|offset| implemented(&code[offset + "impl".len()..]))
        .collect()
}

/// The path of the type of an `impl` without a trait. `text` begins after that word.
fn implemented(text: &str) -> Option<Path> {
    let head = text.split('{').next()?.trim_start();
    let mut head = match head.strip_prefix('<') {
        Some(rest) => past_generics(rest).trim_start(),
        None => head,
    };
    if head.contains(" for ") {
        return None;
    }
    let mut path = Path::new();
    loop {
        let name = first_name(head);
        path.push(name.to_owned());
        match head[name.len()..].strip_prefix("::") {
            Some(rest) => head = rest,
            None => return (!name.is_empty()).then_some(path),
        }
    }
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
    let files = files.iter();
    files.map(|(path, text)| Source::new(path, text)).collect()
}

#[cfg(test)]
fn cycles_in(files: &[(&str, &str)]) -> Vec<String> {
    check_cycles(&sources(files), &["src"])
}

#[test]
fn a_circle_of_four_modules_is_found_and_one_of_three_is_not() {
    let ring = |last: &str| {
        cycles_in(&[
            (
                "src/a/mod.rs",
                "mod b;\nmod c;\nmod d;\nmod e;\npub use d::D as F;\n",
            ),
            ("src/a/b.rs", "use super::c::C;\n"),
            // Once through the front's re-export and once by a path in the code.
            ("src/a/c.rs", "use crate::a::F;\n"),
            ("src/a/d.rs", last),
            ("src/a/e.rs", "fn f() { super::b::g() }\n"),
        ])
    };
    assert_eq!(ring("use super::{\n    b::{B, g},\n};\n"), [""; 0]);
    let found = ring("use super::{\n    e::{self, E},\n};\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("b, c, d, e"), "{found:?}");
}

#[test]
fn a_folder_is_one_module_of_the_folder_above() {
    let found = cycles_in(&[
        ("src/a.rs", "mod x;\nmod y;\n"),
        ("src/a/x.rs", "use super::y::Y;\nuse crate::b::B;\n"),
        ("src/a/y.rs", "use crate::c::C;\n"),
        ("src/b.rs", "use crate::a::x::X;\n"),
        ("src/c.rs", "use crate::d::D;\n"),
        ("src/d.rs", "use crate::b::B;\n"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("a, b, c, d"), "{found:?}");
}

#[test]
fn a_circle_through_the_front_of_a_folder_is_found() {
    // The front imports `b`, names `c` in its code, and uses what it re-exports of `d`.
    let front = "mod b;\nmod c;\nmod d;\nmod e;\nuse b::B;\npub use d::D;\n";
    let items = "pub struct Top(D);\nfn f() { c::g() }\n";
    let with = |front: &str, third: &str| {
        cycles_in(&[
            ("src/a/mod.rs", front),
            ("src/a/b.rs", "use super::Top;\n"),
            ("src/a/c.rs", "use crate::a::Top;\n"),
            ("src/a/d.rs", third),
            // A folder by its name, and an item by its front.
            ("src/a/e.rs", "use crate::a;\nfn f() { a::Top::new() }\n"),
        ])
    };
    let found = with(&format!("{front}{items}"), "fn f() { super::Top::new() }\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("b, c, d, mod"), "{found:?}");
    // Three are few enough.
    assert_eq!(with(&format!("{front}{items}"), ""), [""; 0]);
    // A front without items is no module: what it imports, its modules import through it.
    assert_eq!(with(front, "use super::B;\n"), [""; 0]);
}

#[test]
fn names_of_a_front_lead_to_the_module_that_has_them() {
    let through = |front: &str| {
        cycles_in(&[
            (
                "src/a.rs",
                &format!("mod b;\nmod c;\nmod d;\nmod e;\n{front}fn f() {{}}\n"),
            ),
            ("src/a/b.rs", "use super::C;\n"),
            (
                "src/a/c.rs",
                "mod inner {\n    use super::super::d::D;\n}\npub struct C;\n",
            ),
            ("src/a/d.rs", "use super::e::E;\n"),
            ("src/a/e.rs", "use super::b::B;\n"),
        ])
    };
    for front in [
        "use c::C;\n",
        "pub use c::*;\n",
        "use c as x;\npub(crate) use x::C;\n",
    ] {
        let found = through(front);
        assert_eq!(found.len(), 1, "{front}: {found:?}");
        assert!(found[0].ends_with("b, c, d, e"), "{front}: {found:?}");
    }
    // The name may come from another crate.
    assert_eq!(through("use other::C;\n"), [""; 0]);
}

#[test]
fn a_type_that_five_files_of_other_layers_implement_is_found() {
    let files = |folder: &str, count: usize| -> Vec<Source> {
        let path = |index: usize| format!("src/{folder}{index}.rs");
        let own =
            "pub struct Big;\nimpl<'a, F: Fn(u8) -> u8> Big<'a, F> {}\nimpl Drop for Other {}\n";
        let text = |index: usize| match index {
            0 => "impl super::Small {}\nimpl crate::a::f::Big {}\n",
            _ => "use crate::a::f::Big as Large;\nimpl Large {\n}\nfn f(x: impl Fn()) {}\n",
        };
        let others = (0..count).map(|index| Source::new(&path(index), text(index)));
        let home = [("src/a.rs", "mod f;\n"), ("src/a/f.rs", own)];
        others.chain(sources(&home)).collect()
    };
    // Any number within the layer.
    assert_eq!(check_implementors(&files("a/g", 9), &["src"]), [""; 0]);
    assert_eq!(check_implementors(&files("g", 4), &["src"]), [""; 0]);
    let found = check_implementors(&files("g", 5), &["src"]);
    assert_eq!(found.len(), 1, "{found:?}");
    let begin = "src/a/f.rs: 5 files of other layers implement";
    assert!(found[0].starts_with(begin), "{found:?}");
}

#[test]
fn types_of_one_name_are_not_added_up() {
    let own = "struct Call;\nimpl Call {}\n";
    let paths = ["a", "b", "c", "d", "e", "f"].map(|name| format!("src/{name}.rs"));
    let files: Vec<Source> = paths.iter().map(|path| Source::new(path, own)).collect();
    assert_eq!(check_implementors(&files, &["src"]), [""; 0]);
}
