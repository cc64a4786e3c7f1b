//! The modules of a crate, and where the paths in them lead.
//!
//! The modules of a folder are its files and its subfolders. A module in braces within a file is a
//! part of the file. A folder's own file (`mod.rs`, or the file of its name) is the folder's front.
//! A front with items of its own is one more module of the folder, called `mod`. One that only
//! lists and re-exports modules is none: paths go through it.
//!
//! The texts are read without a compiler. A path leads to the module that defines the item, through
//! imports and re-exports. Methods are no paths, so their calls count nowhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, past_closing, words};

/// A module's path from the root of its crate.
pub(crate) type Path = Vec<String>;

/// The name of a front among the modules of its folder.
pub(crate) const FRONT: &str = "mod";

/// Most names that lead from one to the next.
const MOST_STEPS: usize = 16;

/// The modules of one crate.
pub(crate) struct Crate<'a> {
    modules: BTreeMap<Path, Module<'a>>,
    /// Modules with files below them.
    fronts: BTreeSet<Path>,
    /// Fronts and files with items of their own.
    with_items: BTreeSet<Path>,
}

/// One module.
pub(crate) struct Module<'a> {
    pub(crate) file: &'a Source,
    /// The module that the file is; of a module in braces the one around it.
    home: Path,
    /// Its code without modules in braces and without `use`.
    pub(crate) code: String,
    uses: Vec<Use>,
    /// The names of its items.
    items: BTreeSet<String>,
}

/// One path of a `use`.
struct Use {
    path: Path,
    /// The name that it gives; `*` for all of a module.
    name: String,
    is_export: bool,
}

/// Where a path leads.
struct Target {
    module: Path,
    /// The item of the module. `None` if the path leads to the module itself.
    item: Option<String>,
}

impl<'a> Crate<'a> {
    /// The modules in a folder without test modules.
    pub(crate) fn new(files: &'a [Source], folder: &str) -> Self {
        let inner = |file: &'a Source| -> Option<(&'a Source, &'a str)> {
            let inner = file.path.strip_prefix(folder)?.strip_prefix('/')?;
            Some((file, inner.strip_suffix(".rs")?))
        };
        let files: Vec<_> = files.iter().filter_map(inner).collect();
        let has_library = files.iter().any(|(_, inner)| *inner == "lib");
        let mut found = Self {
            modules: BTreeMap::new(),
            fronts: BTreeSet::new(),
            with_items: BTreeSet::new(),
        };
        for (file, inner) in files {
            let mut path: Path = inner.split('/').map(str::to_owned).collect();
            let is_program = inner == "main" && has_library;
            if ["mod", "lib", "main"].contains(&path[path.len() - 1].as_str()) && !is_program {
                path.pop();
            }
            if path.iter().any(|name| name == "tests") {
                continue;
            }
            for length in 0..path.len() {
                found.fronts.insert(path[..length].to_vec());
            }
            found.insert(file, &path, path.clone(), &file.shipped);
        }
        found
    }

    /// Adds a module and those in braces within it.
    fn insert(&mut self, file: &'a Source, home: &Path, path: Path, code: &str) {
        let mut code = code.to_owned();
        while let Some((name, header, body)) = module_in_braces(&code) {
            let inner = code[body.clone()].to_owned();
            self.insert(file, home, joined(&path, &name), &inner);
            blank(&mut code, header..body.end + 1);
        }
        let mut uses = Vec::new();
        for offset in words(&code.clone(), "use") {
            // `impl Trait + use<'a>` names lifetimes.
            if !code[offset + 3..].starts_with('<') {
                let end = code[offset..]
                    .find(';')
                    .map_or(code.len(), |end| offset + end);
                uses.extend(uses_in(&code[..offset], &code[offset + 3..end]));
                blank(&mut code, offset..end);
            }
        }
        if path == ["main"] {
            // The modules of a program stand beside it.
            for offset in words(&code, "mod") {
                let name = first_name(code[offset + 3..].trim_start()).to_owned();
                uses.push(Use {
                    path: vec!["crate".to_owned(), name.clone()],
                    name,
                    is_export: true,
                });
            }
        }
        if has_items(&code) {
            self.with_items.insert(home.clone());
        }
        let module = Module {
            file,
            home: home.clone(),
            items: items_of(&code),
            code,
            uses,
        };
        self.modules.insert(path, module);
    }

    /// Pairs of modules, of which the first imports the second.
    pub(crate) fn imports(&self) -> BTreeSet<(Path, Path)> {
        let mut edges = BTreeSet::new();
        for (path, module) in &self.modules {
            let here = self.node(path);
            // A re-export is an import if the module's own code uses the name.
            let is_used = |one: &&Use| !one.is_export || names(&module.code, &one.name);
            let imports = module
                .uses
                .iter()
                .filter(is_used)
                .map(|one| one.path.clone());
            for named in imports.chain(paths_in(&module.code)) {
                let Some(target) = self.resolve(path, &named, 0) else {
                    continue;
                };
                // The name of a folder around this module: the paths behind it say what is used.
                let is_around = target.item.is_none() && path.starts_with(&target.module);
                let there = self.node(&target.module);
                if !is_around && there != here {
                    edges.insert((here.clone(), there));
                }
            }
        }
        edges
    }

    /// The file and the name of a type that a path in a module leads to. If no item has the name,
    /// a macro of the module makes it.
    pub(crate) fn home_of(&self, path: &Path, named: &[String]) -> Option<(&'a str, String)> {
        let (home, name) = match self.resolve(path, named, 0) {
            Some(target) => (target.module, target.item?),
            None => (path.clone(), named.last()?.clone()),
        };
        Some((&self.modules.get(&home)?.file.path, name))
    }

    /// The modules with their paths.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&Path, &Module<'a>)> {
        self.modules.iter()
    }

    /// The module of a folder that stands for this one.
    fn node(&self, path: &Path) -> Path {
        let home = self.modules.get(path).map_or(path, |module| &module.home);
        let is_front = self.fronts.contains(home) && self.with_items.contains(home);
        if is_front {
            joined(home, FRONT)
        } else {
            home.clone()
        }
    }

    /// Where a path in `module` leads. None if it leaves the crate.
    fn resolve(&self, module: &Path, path: &[String], steps: usize) -> Option<Target> {
        if steps > MOST_STEPS {
            return None;
        }
        let (mut at, mut rest) = (module.clone(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &path[1..]),
            "super" | "self" => {
                while let Some((first, others)) = rest.split_first() {
                    match first.as_str() {
                        "super" => drop(at.pop()),
                        "self" => {}
                        _ => break,
                    }
                    rest = others;
                }
            }
            child if self.modules.contains_key(&joined(module, child)) => {}
            _ => return self.look_up(module, path, steps),
        }
        while let Some((first, others)) = rest.split_first() {
            let inner = joined(&at, first);
            if !self.modules.contains_key(&inner) {
                return match self.look_up(&at, rest, steps) {
                    None if !self.is_imported(&at, first) => Some(Target {
                        module: at,
                        item: Some(first.clone()),
                    }),
                    found => found,
                };
            }
            (at, rest) = (inner, others);
        }
        Some(Target {
            module: at,
            item: None,
        })
    }

    /// Where a path leads that begins with an item or an import of a module.
    fn look_up(&self, at: &Path, path: &[String], steps: usize) -> Option<Target> {
        let (name, rest) = path.split_first()?;
        let module = self.modules.get(at)?;
        if module.items.contains(name) {
            return Some(Target {
                module: at.clone(),
                item: Some(name.clone()),
            });
        }
        if let Some(one) = module.uses.iter().find(|one| one.name == *name) {
            return self.resolve(at, &[&one.path[..], rest].concat(), steps + 1);
        }
        let mut globs = module.uses.iter().filter(|one| one.name == "*");
        globs.find_map(|one| {
            let (_, within) = one.path.split_last()?;
            let target = self.resolve(at, within, steps + 1)?;
            let is_known = target.item.is_none() && target.module != *at;
            self.look_up(&target.module, path, steps + 1)
                .filter(|_| is_known)
        })
    }

    /// Whether a module has an import of this name.
    fn is_imported(&self, at: &Path, name: &str) -> bool {
        let uses = self.modules.get(at).map(|module| &module.uses);
        uses.is_some_and(|uses| uses.iter().any(|one| one.name == name))
    }
}

/// Whether a text has a name other than as a method or a field.
fn names(code: &str, name: &str) -> bool {
    words(code, name).any(|offset| !code[..offset].ends_with('.'))
}

/// The first module in braces of a text: its name, where it begins, and its body.
fn module_in_braces(code: &str) -> Option<(String, usize, std::ops::Range<usize>)> {
    words(code, "mod").find_map(|offset| {
        let (name, _) = code[offset + 3..].split_once('{')?;
        let open = offset + 3 + name.len();
        let name = name.trim();
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let body = open + 1..past_closing(code, open) - 1;
        (is_name && !name.is_empty()).then(|| (name.to_owned(), offset, body))
    })
}

/// Replaces a part of a text by blanks.
fn blank(code: &mut String, range: std::ops::Range<usize>) {
    let blanks = " ".repeat(range.len());
    code.replace_range(range, &blanks);
}

/// Whether a text without `use` has items other than modules.
fn has_items(code: &str) -> bool {
    let mut rest = code.trim_start();
    while !rest.is_empty() {
        let past = |open: usize| &rest[past_closing(rest, open)..];
        let semicolon = rest.find(';').unwrap_or(rest.len() - 1);
        rest = match first_name(rest) {
            "" if rest.starts_with("#[") => past(1),
            "" if rest.starts_with("#![") => past(2),
            "" if rest.starts_with([';', '}']) => &rest[1..],
            "pub" if rest.starts_with("pub(") => past(3),
            "pub" => &rest[3..],
            "mod" => &rest[semicolon + 1..],
            _ => return true,
        }
        .trim_start();
    }
    false
}

/// The names of the items of a module, without those within braces.
fn items_of(code: &str) -> BTreeSet<String> {
    let kinds = "fn struct enum union trait type const static macro_rules";
    let mut top = code.to_owned();
    let mut at = 0;
    while let Some(open) = top[at..].find('{').map(|found| at + found) {
        at = past_closing(&top, open);
        blank(&mut top, open..at);
    }
    let mut items = BTreeSet::new();
    for kind in kinds.split(' ') {
        for offset in words(&top, kind) {
            let after = top[offset + kind.len()..].trim_start_matches(['!', ' ']);
            items.insert(first_name(after).to_owned());
        }
    }
    items
}

/// The name that a text begins with.
pub(crate) fn first_name(text: &str) -> &str {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    &text[..text.find(|c| !is_name(c)).unwrap_or(text.len())]
}

/// The paths of a `use`, given the text before the word and the tree behind it.
fn uses_in(before: &str, tree: &str) -> Vec<Use> {
    let before = before.trim_end();
    let is_export = before.ends_with("pub") || before.ends_with(')');
    let paths = paths_of(tree, &[]).into_iter();
    paths
        .filter_map(|(mut path, name)| {
            if path.len() > 1 && path.last()? == "self" {
                path.pop();
            }
            let name = name.or(path.last().cloned())?;
            Some(Use {
                path,
                name,
                is_export,
            })
        })
        .collect()
}

/// The paths of a tree such as `a::{b, c::d as e}`, with new names.
fn paths_of(tree: &str, before: &[String]) -> Vec<(Path, Option<String>)> {
    let names = |text: &str| -> Vec<String> {
        let names = text.split("::").map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, name) = match tree.split_once(" as ") {
            Some((path, name)) => (path, Some(name.trim().to_owned())),
            None => (tree, None),
        };
        return vec![([before, &names(path)].concat(), name)];
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

/// The paths of two names or more in code.
fn paths_in(code: &str) -> BTreeSet<Path> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = code
        .split(|c| !is_part(c))
        .filter(|path| path.contains("::"));
    paths
        .filter(|path| !path.starts_with(':'))
        .map(|path| {
            let names = path.split(':').filter(|name| !name.is_empty());
            names.map(str::to_owned).collect::<Path>()
        })
        .filter(|path| path.len() > 1)
        .collect()
}

/// A path with one more name.
pub(crate) fn joined(path: &[String], name: &str) -> Path {
    [path, &[name.to_owned()]].concat()
}
